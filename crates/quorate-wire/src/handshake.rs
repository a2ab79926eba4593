//! The handshake: both ends prove that they know the secret, and say who they are.
//!
//! ```text
//! dialing end   HELLO      versions, nonce                                     ->
//!            <- CHALLENGE  version, nonce                                         accepting end
//!               PROOF      cluster, ids, role, purpose, limits, HMAC           ->
//!            <- VERDICT    whether it agrees, cluster, id, limits, HMAC
//! ```
//!
//! Invariants:
//! - The accepting end says nothing of itself but its versions, and computes no HMAC that anyone sees, before the
//!   dialing end has proved itself.
//! - Each HMAC covers everything said so far, under a label of its direction: none can be replayed or reflected.
//! - An identity that does not fit is found out only between ends that know the same secret.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use quorate_env::Rng;

use crate::error::{HandshakeError, LinkError};
use crate::frame::{FrameReader, whole_frame};
use crate::identity::{Identity, Keys, PeerInfo, Purpose, Role, Secret};
use crate::limits::{Limits, VERSION};

mod proof;
mod words;

use proof::Transcript;
use words::{CHALLENGE, Challenge, HELLO, Hello, Nonce, PROOF, Proof, REFUSED, Refusal, VERDICT, Verdict, VerdictCode};

/// What the dialing end brings.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub identity: Identity,
    pub secret: Secret,
    pub role: Role,
    pub purpose: Purpose,
    /// The node that must answer; 0 for any.
    pub expected: u64,
    /// What binds the handshake to the channel below it; empty when that has nothing to offer.
    pub binding: Bytes,
}

/// What the accepting end brings.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub identity: Identity,
    pub keys: Keys,
    pub binding: Bytes,
}

/// The dialing end's part. No limit in time: the caller sets one.
pub(crate) async fn dial<R, W>(
    reader: &mut FrameReader<R>,
    sink: &mut W,
    me: &Introduction,
    rng: &Rng,
    addr: &str,
) -> Result<PeerInfo, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (cluster, node) = (me.identity.cluster(), me.identity.node());
    let mut transcript = Transcript::new();
    let hello = Hello { versions: VERSION..=VERSION, nonce: nonce(rng) };
    say(sink, HELLO, transcript.add(hello.encode())).await?;

    let challenge = transcript.add(hear(reader, CHALLENGE).await?);
    let version = Challenge::decode(challenge).ok_or(MALFORMED)?.version;
    if version != VERSION {
        return Err(HandshakeError::Malformed("a version that was not offered"));
    }

    let proof = Proof {
        cluster,
        node,
        expected: me.expected,
        role: me.role,
        purpose: me.purpose,
        limits: Limits::of(me.purpose),
        binding: me.binding.clone(),
    };
    transcript.add(proof.encode());
    let signed = transcript.sign_as_dialer(&me.secret);
    say(sink, PROOF, &signed).await?;

    let verdict = hear(reader, VERDICT).await?;
    let (verdict, mac) = verdict.split_last_chunk().ok_or(MALFORMED)?;
    transcript.add(Bytes::copy_from_slice(verdict));
    if !transcript.is_signed_by_accepter(&me.secret, mac) {
        return Err(HandshakeError::WrongSecret);
    }
    let verdict = Verdict::decode(verdict).ok_or(MALFORMED)?;
    match verdict.code {
        VerdictCode::Welcome => {}
        VerdictCode::OtherCluster => {
            return Err(HandshakeError::OtherCluster { theirs: verdict.cluster, ours: cluster });
        }
        VerdictCode::NotTheNode => {
            return Err(HandshakeError::NotTheNode { expected: me.expected, found: verdict.node });
        }
        VerdictCode::Busy => return Err(HandshakeError::Busy),
    }
    Ok(PeerInfo {
        cluster: verdict.cluster,
        node: verdict.node,
        role: me.role,
        purpose: me.purpose,
        version,
        limits: verdict.limits.min(proof.limits),
        addr: addr.into(),
    })
}

/// The accepting end's part. No limit in time: the caller sets one. When the dialing end is at fault it is told so.
///
/// `admit` gives one that proved itself a place, or `None` when there is none left for its role.
pub(crate) async fn accept<R, W, P>(
    reader: &mut FrameReader<R>,
    sink: &mut W,
    gate: &Gate,
    rng: &Rng,
    addr: &str,
    admit: impl FnOnce(Role) -> Option<P>,
) -> Result<(PeerInfo, P), HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let result = judge(reader, sink, gate, rng, addr, admit).await;
    if let Some(refusal) = result.as_ref().err().and_then(Refusal::of) {
        // It may be gone; the error that is returned says more.
        let _ = say(sink, REFUSED, &refusal.encode()).await;
    }
    result
}

async fn judge<R, W, P>(
    reader: &mut FrameReader<R>,
    sink: &mut W,
    gate: &Gate,
    rng: &Rng,
    addr: &str,
    admit: impl FnOnce(Role) -> Option<P>,
) -> Result<(PeerInfo, P), HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut transcript = Transcript::new();
    let hello = Hello::decode(transcript.add(hear(reader, HELLO).await?)).ok_or(MALFORMED)?;
    if !hello.versions.contains(&VERSION) {
        return Err(HandshakeError::OtherVersion { theirs: hello.versions, ours: VERSION..=VERSION });
    }
    let challenge = Challenge { version: VERSION, nonce: nonce(rng) };
    say(sink, CHALLENGE, transcript.add(challenge.encode())).await?;

    let signed = hear(reader, PROOF).await?;
    let (proof, mac) = signed.split_last_chunk().ok_or(MALFORMED)?;
    transcript.add(Bytes::copy_from_slice(proof));
    let proof = Proof::decode(proof).ok_or(MALFORMED)?;
    let secret = gate.keys.of(proof.role).ok_or(HandshakeError::WrongSecret)?;
    if !transcript.is_signed_by_dialer(secret, mac) || proof.binding != gate.binding {
        return Err(HandshakeError::WrongSecret);
    }
    transcript.add(Bytes::copy_from_slice(mac));
    if proof.role != Role::Peer && proof.purpose != Purpose::Client {
        return Err(HandshakeError::Malformed("a client on a connection for nodes"));
    }

    let (cluster, node) = (gate.identity.cluster(), gate.identity.node());
    let judged = compare(&proof, cluster, node).and_then(|()| admit(proof.role).ok_or(HandshakeError::Busy));
    let limits = Limits::of(proof.purpose).min(proof.limits);
    let verdict = Verdict { code: VerdictCode::of(&judged), cluster, node, limits };
    transcript.add(verdict.encode());
    say(sink, VERDICT, &transcript.sign_as_accepter(secret)).await?;
    let peer = PeerInfo {
        cluster: proof.cluster,
        node: proof.node,
        role: proof.role,
        purpose: proof.purpose,
        version: VERSION,
        limits,
        addr: addr.into(),
    };
    judged.map(|place| (peer, place))
}

/// Whether the dialing end wants this node of this cluster. Clusters differ only if both ends belong to one.
fn compare(proof: &Proof, cluster: u128, node: u64) -> Result<(), HandshakeError> {
    if proof.cluster != cluster && proof.cluster != 0 && cluster != 0 {
        return Err(HandshakeError::OtherCluster { theirs: proof.cluster, ours: cluster });
    }
    if proof.expected != node && proof.expected != 0 {
        return Err(HandshakeError::NotTheNode { expected: proof.expected, found: node });
    }
    Ok(())
}

/// Tells a connection that nobody has looked at yet that there are too many. Does not wait.
pub(crate) fn busy_frame() -> Bytes {
    whole_frame(REFUSED, &Refusal::Busy.encode()).freeze()
}

/// What a message says, as it would be said again; `None` if it says nothing.
pub(crate) fn reencode(kind: u8, body: &[u8]) -> Option<Vec<u8>> {
    let again = match kind {
        HELLO => Hello::decode(body)?.encode(),
        CHALLENGE => Challenge::decode(body)?.encode(),
        PROOF => Proof::decode(body)?.encode(),
        VERDICT => Verdict::decode(body)?.encode(),
        REFUSED => Refusal::decode(body)?.encode(),
        _ => return None,
    };
    Some(again.into())
}

const MALFORMED: HandshakeError = HandshakeError::Malformed("a handshake message that can't be read");

fn nonce(rng: &Rng) -> Nonce {
    let mut nonce = Nonce::default();
    rng.fill(&mut nonce);
    nonce
}

async fn say<W: AsyncWrite + Unpin>(sink: &mut W, kind: u8, body: &[u8]) -> Result<(), HandshakeError> {
    let frame = whole_frame(kind, body);
    let written = async {
        sink.write_all(&frame).await?;
        sink.flush().await
    };
    written.await.map_err(|error| LinkError::Io(error).into())
}

/// The next message, which must be of a kind, or else the other end's refusal.
async fn hear<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>, kind: u8) -> Result<Bytes, HandshakeError> {
    match reader.next().await? {
        Some((found, body)) if found == kind => Ok(body),
        Some((REFUSED, body)) => Err(Refusal::decode(&body).map_or(MALFORMED, Refusal::into_error)),
        Some(_) => Err(HandshakeError::Malformed("a message out of turn")),
        None => Err(HandshakeError::Broken("the other end closed it".to_owned())),
    }
}

#[cfg(test)]
mod tests;
