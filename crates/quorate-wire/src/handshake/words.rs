//! The messages of the handshake and their encodings (docs/wire-format.md).

use std::ops::RangeInclusive;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::HandshakeError;
use crate::identity::{Purpose, Role};
use crate::limits::{BINDING_MAX, HANDSHAKE_FRAME_MAX, Limits, VERSION};
use crate::message::shortened;

pub(super) const HELLO: u8 = 1;
pub(super) const CHALLENGE: u8 = 2;
pub(super) const PROOF: u8 = 3;
pub(super) const VERDICT: u8 = 4;
pub(super) const REFUSED: u8 = 5;
pub(super) const LOGIN: u8 = 6;

/// The first bytes of every connection.
const MAGIC: [u8; 8] = *b"quorate\0";

/// The length of a signature, in bytes.
pub(super) const MAC_LEN: usize = 32;

/// A number used once.
pub(super) type Nonce = [u8; 32];

const PROOF_LEN_MAX: usize = 16 + 8 + 8 + 1 + 1 + LIMITS_LEN + 1 + BINDING_MAX + MAC_LEN;
const LIMITS_LEN: usize = 5 * 4;
const _: () = assert!(PROOF_LEN_MAX <= HANDSHAKE_FRAME_MAX, "the longest message fits");

/// The first message of the dialing end.
pub(super) struct Hello {
    pub versions: RangeInclusive<u16>,
    pub nonce: Nonce,
}

impl Hello {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_slice(&MAGIC);
        out.put_u16_le(*self.versions.start());
        out.put_u16_le(*self.versions.end());
        out.put_slice(&self.nonce);
        out.freeze()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let magic: [u8; 8] = take(&mut rest)?;
        let versions = rest.try_get_u16_le().ok()?..=rest.try_get_u16_le().ok()?;
        let nonce = take(&mut rest)?;
        // A later version may append fields. The version numbers decide whether this build can speak it.
        (magic == MAGIC && (rest.is_empty() || *versions.end() > VERSION)).then_some(Self { versions, nonce })
    }
}

/// The accepting end's request for a proof.
pub(super) struct Challenge {
    pub version: u16,
    pub nonce: Nonce,
}

impl Challenge {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u16_le(self.version);
        out.put_slice(&self.nonce);
        out.freeze()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let challenge = Self { version: rest.try_get_u16_le().ok()?, nonce: take(&mut rest)? };
        rest.is_empty().then_some(challenge)
    }
}

/// The identity of the dialing end and what it asks for. Its signature follows it.
pub(super) struct Proof {
    pub cluster: u128,
    pub node: u64,
    pub expected: u64,
    pub role: Role,
    pub purpose: Purpose,
    pub limits: Limits,
    pub binding: Bytes,
}

impl Proof {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u128_le(self.cluster);
        out.put_u64_le(self.node);
        out.put_u64_le(self.expected);
        out.put_u8(self.role.code());
        out.put_u8(self.purpose.code());
        put_limits(&mut out, self.limits);
        let binding = self.binding.get(..self.binding.len().min(BINDING_MAX)).unwrap_or_default();
        out.put_u8(u8::try_from(binding.len()).unwrap_or(u8::MAX));
        out.put_slice(binding);
        out.freeze()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let (cluster, node) = (rest.try_get_u128_le().ok()?, rest.try_get_u64_le().ok()?);
        let expected = rest.try_get_u64_le().ok()?;
        let role = Role::from_code(rest.try_get_u8().ok()?)?;
        let purpose = Purpose::from_code(rest.try_get_u8().ok()?)?;
        let limits = take_limits(&mut rest)?;
        let binding_len = usize::from(rest.try_get_u8().ok()?);
        if binding_len > BINDING_MAX || rest.len() != binding_len {
            return None;
        }
        let binding = Bytes::copy_from_slice(rest);
        Some(Self { cluster, node, expected, role, purpose, limits, binding })
    }
}

/// The accepting end's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerdictCode {
    Welcome,
    OtherCluster,
    NotTheNode,
    Busy,
}

impl VerdictCode {
    pub(super) fn of<T>(result: &Result<T, HandshakeError>) -> Self {
        match result {
            Ok(_) => Self::Welcome,
            Err(HandshakeError::OtherCluster { .. }) => Self::OtherCluster,
            Err(HandshakeError::NotTheNode { .. }) => Self::NotTheNode,
            Err(_) => Self::Busy,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Welcome => 0,
            Self::OtherCluster => 1,
            Self::NotTheNode => 2,
            Self::Busy => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        let all = [Self::Welcome, Self::OtherCluster, Self::NotTheNode, Self::Busy];
        all.into_iter().find(|verdict| verdict.code() == code)
    }
}

/// The accepting end's decision and identity. Its signature follows it.
pub(super) struct Verdict {
    pub code: VerdictCode,
    pub cluster: u128,
    pub node: u64,
    pub limits: Limits,
}

impl Verdict {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(self.code.code());
        out.put_u128_le(self.cluster);
        out.put_u64_le(self.node);
        put_limits(&mut out, self.limits);
        out.freeze()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let code = VerdictCode::from_code(rest.try_get_u8().ok()?)?;
        let (cluster, node) = (rest.try_get_u128_le().ok()?, rest.try_get_u64_le().ok()?);
        let limits = take_limits(&mut rest)?;
        rest.is_empty().then_some(Self { code, cluster, node, limits })
    }
}

/// What the accepting end tells a dialing end that has not proved itself. It discloses nothing about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    WrongSecret,
    OtherVersion(RangeInclusive<u16>),
    Malformed,
    TimedOut,
    Busy,
    OtherChannel,
    Uncertified,
    NeedsTls,
    Unprotected,
    NotLoggedIn(String),
}

/// The most bytes of the reason for which a user was not let in.
const REASON_MAX: usize = 200;

impl Refusal {
    /// Returns the refusal to send for an error, if any.
    pub(super) fn of(error: &HandshakeError) -> Option<Self> {
        match error {
            HandshakeError::WrongSecret => Some(Self::WrongSecret),
            HandshakeError::OtherVersion { ours, .. } => Some(Self::OtherVersion(ours.clone())),
            HandshakeError::Malformed(_) => Some(Self::Malformed),
            HandshakeError::TimedOut => Some(Self::TimedOut),
            HandshakeError::OtherChannel => Some(Self::OtherChannel),
            HandshakeError::Uncertified => Some(Self::Uncertified),
            HandshakeError::Unprotected => Some(Self::Unprotected),
            HandshakeError::NotLoggedIn(why) => Some(Self::NotLoggedIn(why.clone())),
            // A client of TLS gets an answer that is none of TLS.
            HandshakeError::SpeaksTls => Some(Self::Malformed),
            // Either the verdict has already reported it, or the connection is gone.
            HandshakeError::OtherCluster { .. }
            | HandshakeError::NotTheNode { .. }
            | HandshakeError::Busy
            | HandshakeError::NeedsTls
            | HandshakeError::Tls(_)
            | HandshakeError::Broken(_) => None,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::WrongSecret => out.put_u8(1),
            Self::OtherVersion(versions) => {
                out.put_u8(2);
                out.put_u16_le(*versions.start());
                out.put_u16_le(*versions.end());
            }
            Self::Malformed => out.put_u8(3),
            Self::TimedOut => out.put_u8(4),
            Self::Busy => out.put_u8(5),
            Self::OtherChannel => out.put_u8(6),
            Self::Uncertified => out.put_u8(7),
            Self::NeedsTls => out.put_u8(8),
            Self::Unprotected => out.put_u8(9),
            Self::NotLoggedIn(why) => {
                out.put_u8(10);
                out.put_slice(shortened(why, REASON_MAX).as_bytes());
            }
        }
        out.freeze()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        match rest.try_get_u8().ok()? {
            1 => Some(Self::WrongSecret),
            2 => Some(Self::OtherVersion(rest.try_get_u16_le().ok()?..=rest.try_get_u16_le().ok()?)),
            3 => Some(Self::Malformed),
            4 => Some(Self::TimedOut),
            5 => Some(Self::Busy),
            6 => Some(Self::OtherChannel),
            7 => Some(Self::Uncertified),
            8 => Some(Self::NeedsTls),
            9 => Some(Self::Unprotected),
            10 => Some(Self::NotLoggedIn(std::str::from_utf8(rest).ok()?.to_owned())),
            _ => None,
        }
    }

    pub(super) fn into_error(self) -> HandshakeError {
        match self {
            Self::WrongSecret => HandshakeError::WrongSecret,
            Self::OtherVersion(theirs) => HandshakeError::OtherVersion { theirs, ours: VERSION..=VERSION },
            Self::Malformed => HandshakeError::Malformed("it refused this end's message as malformed"),
            Self::TimedOut => HandshakeError::TimedOut,
            Self::Busy => HandshakeError::Busy,
            Self::OtherChannel => HandshakeError::OtherChannel,
            Self::Uncertified => HandshakeError::Uncertified,
            Self::NeedsTls => HandshakeError::NeedsTls,
            Self::Unprotected => HandshakeError::Unprotected,
            Self::NotLoggedIn(why) => HandshakeError::NotLoggedIn(why),
        }
    }
}

fn put_limits(out: &mut BytesMut, limits: Limits) {
    for limit in [limits.body_bytes, limits.calls, limits.call_bytes, limits.streams, limits.stream_window] {
        out.put_u32_le(limit);
    }
}

fn take_limits(rest: &mut &[u8]) -> Option<Limits> {
    let limits = Limits {
        body_bytes: rest.try_get_u32_le().ok()?,
        calls: rest.try_get_u32_le().ok()?,
        call_bytes: rest.try_get_u32_le().ok()?,
        streams: rest.try_get_u32_le().ok()?,
        stream_window: rest.try_get_u32_le().ok()?,
    };
    limits.allow_progress().then_some(limits)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*array)
}
