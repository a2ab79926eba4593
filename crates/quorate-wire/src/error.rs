//! The errors of this crate, and what a caller may conclude from each.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;

use quorate_env::Cause;

/// A secret has fewer bytes than [`SECRET_BYTES_MIN`](crate::SECRET_BYTES_MIN).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret has {len} bytes: use at least {} random bytes", crate::SECRET_BYTES_MIN)]
pub struct SecretTooShort {
    /// The length of the secret, in bytes.
    pub len: usize,
}

/// Why a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The address could not be reached.
    #[error("cannot connect to {addr}: {source}")]
    Unreachable {
        /// The address.
        addr: String,
        /// The error of the operating system, or of the first call.
        source: Cause,
    },
    /// Connecting and the handshake together took longer than the limit.
    #[error("connecting to {addr} timed out")]
    TimedOut {
        /// The address.
        addr: String,
    },
    /// The handshake failed.
    #[error("handshake with {addr}: {error}")]
    Handshake {
        /// The address.
        addr: String,
        /// Why.
        #[source]
        error: HandshakeError,
    },
}

impl ConnectError {
    /// Returns whether the same attempt may succeed later without a change of configuration.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Handshake { error, .. } => error.is_retryable(),
        }
    }
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The secrets differ, or the server has none for this role.
    #[error("the secrets differ: give both ends the same one")]
    WrongSecret,
    /// Both ends know the secret, but belong to different clusters.
    #[error(
        "the other end belongs to cluster {theirs:032x}, this end to {ours:032x}: check the address; if one cluster \
         was restored from a backup, nodes of the other must join it with empty data directories, and clients must \
         reconnect"
    )]
    OtherCluster {
        /// The other end's cluster.
        theirs: u128,
        /// This end's.
        ours: u128,
    },
    /// The two ends have no version of the protocol in common.
    #[error("the other end speaks protocol versions {theirs:?}, this build {ours:?}: upgrade the older one")]
    OtherVersion {
        /// The other end's versions.
        theirs: RangeInclusive<u16>,
        /// This end's.
        ours: RangeInclusive<u16>,
    },
    /// Another node answers at this address.
    #[error("node {found:016x} answered instead of {expected:016x}: check the address")]
    NotTheNode {
        /// The node that was dialed.
        expected: u64,
        /// The node that answered; 0 if it has no id.
        found: u64,
    },
    /// The server has reached its limit of connections.
    #[error("the other end has too many connections: try again later")]
    Busy,
    /// The other end violated the protocol.
    #[error("the other end violated the protocol: {0}")]
    Malformed(&'static str),
    /// The channels that the two ends see are not the same one.
    #[error(
        "the two ends are not on the same channel: only one of them uses TLS, or something between them ends it; use \
         TLS at both ends, and connect them without a proxy that ends it"
    )]
    OtherChannel,
    /// A node connects over TLS without a certificate.
    #[error("a node must have a certificate that the other nodes trust: name one in [tls] of the connecting node")]
    Uncertified,
    /// The other end accepts only TLS.
    #[error("the other end speaks TLS only: give this end the CA of the cluster ('ca' in [tls], or --ca)")]
    NeedsTls,
    /// The other end speaks TLS, and this end does not.
    #[error("the other end speaks TLS, which this end does not: set up [tls] here, or connect without TLS")]
    SpeaksTls,
    /// A user would log in over a channel on which others can listen.
    #[error(
        "a user can log in only over TLS, or on the node's own machine: give this end the CA of the cluster (--ca)"
    )]
    Unprotected,
    /// The user was not let in, for this reason.
    #[error("{0}")]
    NotLoggedIn(String),
    /// The two ends could not agree on a channel.
    #[error("{0}")]
    Tls(#[source] Cause),
    /// The handshake took longer than the limit.
    #[error("the handshake timed out")]
    TimedOut,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[source] Cause),
}

impl HandshakeError {
    /// Returns whether the same attempt may succeed later without a change of configuration.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy | Self::TimedOut | Self::Broken(_))
    }

    /// Returns the error of a stream, or of the channel that protects it.
    pub(crate) fn of_stream(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            Self::Tls(Cause::from(error))
        } else {
            Self::Broken(error.into())
        }
    }
}

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call has no effect: it did not leave this process, or the server said that it did not process it.
    #[error("the call was not sent: {0}")]
    NotSent(#[source] NotSent),
    /// The connection broke before the reply. It is unknown whether the call took effect.
    #[error("the connection broke before the reply")]
    Broken,
    /// No reply came before the deadline. It is unknown whether the call took effect or will.
    #[error("no reply before the deadline")]
    TimedOut,
    /// The server answered with a failure.
    #[error(transparent)]
    Failed(#[from] CallFailure),
}

/// Why a call was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The connection is closed, or was closed before the call could be sent.
    #[error("the connection is closed")]
    Closed,
    /// The deadline passed while the call waited to be sent.
    #[error("its deadline passed while it waited to be sent")]
    TimedOut,
    /// The body exceeds the limit of the connection.
    #[error("its body has {len} bytes, the limit is {max}")]
    TooLarge {
        /// The length of the body, in bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
}

impl CallError {
    /// Returns whether the call may be repeated, later or on another connection, without the risk of a double effect.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotSent(reason) => !matches!(reason, NotSent::TooLarge { .. }),
            Self::Failed(failure) => failure.is_retryable(),
            Self::Broken | Self::TimedOut => false,
        }
    }

    /// Returns whether the call may have taken effect, or may still do so.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::NotSent(_) => false,
            Self::Failed(failure) => failure.kind == FailureKind::Internal,
            Self::Broken | Self::TimedOut => true,
        }
    }
}

/// The answer of a server that did not carry out a call or a stream. It covers failures of the call as such; the
/// results and errors of a method belong in the body of the reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct CallFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// Details for people. At most [`FAILURE_TEXT_MAX`](crate::FAILURE_TEXT_MAX) bytes are sent.
    pub text: String,
}

/// The kinds of [`CallFailure`]. All but `Internal` mean that nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The server does not know the method.
    UnknownMethod,
    /// The caller's role does not permit this.
    Forbidden,
    /// The body could not be decoded.
    Malformed,
    /// The server is overloaded.
    Overloaded,
    /// The server can't do it now: it is starting, stopping, or not the right node to ask.
    Unavailable,
    /// The call failed part-way and may have taken effect.
    Internal,
    /// The sender of a stream was dropped before it ended the stream.
    Abandoned,
}

impl FailureKind {
    const ALL: [Self; 7] = [
        Self::UnknownMethod,
        Self::Forbidden,
        Self::Malformed,
        Self::Overloaded,
        Self::Unavailable,
        Self::Internal,
        Self::Abandoned,
    ];

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::UnknownMethod => 1,
            Self::Forbidden => 2,
            Self::Malformed => 3,
            Self::Overloaded => 4,
            Self::Unavailable => 5,
            Self::Internal => 6,
            Self::Abandoned => 7,
        }
    }

    /// Returns the kind of a code. An unknown code, from a later version, gives `Internal`, which promises nothing.
    pub(crate) fn from_code(code: u8) -> Self {
        Self::ALL.into_iter().find(|kind| kind.code() == code).unwrap_or(Self::Internal)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownMethod => "unknown method",
            Self::Forbidden => "forbidden",
            Self::Malformed => "malformed request",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal error",
            Self::Abandoned => "abandoned by its sender",
        })
    }
}

impl CallFailure {
    /// Creates a failure with a text for people.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Returns whether nothing was done and the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, FailureKind::Overloaded | FailureKind::Unavailable)
    }
}

/// Why a stream can't continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The connection broke or is closed. It is unknown what became of items that were sent but not answered.
    #[error("the connection is closed")]
    Broken,
    /// The other end no longer reads this direction.
    #[error("the other end stopped reading")]
    Stopped,
    /// The other end ended its direction with a failure.
    #[error(transparent)]
    Failed(#[from] CallFailure),
    /// The item exceeds the limit of the connection and was not sent. The stream remains usable.
    #[error("the item has {len} bytes, the limit is {max}")]
    TooLarge {
        /// The length of the item, in bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The connection has reached its limit of open streams.
    #[error("too many open streams: finish one, or use another connection")]
    TooMany,
}

impl StreamError {
    /// Returns whether a new stream, possibly on a new connection, may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Broken | Self::TooMany => true,
            Self::Failed(failure) => failure.is_retryable(),
            Self::Stopped | Self::TooLarge { .. } => false,
        }
    }
}

/// Why a connection ended, for the log. Callers get a [`CallError`] or a [`StreamError`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the other end announced a frame of {len} bytes, the limit is {max}")]
    TooLarge { len: usize, max: usize },
    #[error("the checksum of a frame is wrong")]
    Checksum,
    #[error("the connection ended in the middle of a frame")]
    Truncated,
    #[error("the other end violated the protocol: {0}")]
    Malformed(&'static str),
    #[error("the other end was silent for too long")]
    Silent,
    #[error("the other end does not read")]
    Stalled,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How a client of TLS begins, read as the lower half of a frame's length: a handshake (22) in a record of version 3.
const TLS_RECORD: usize = 0x0316;

impl From<LinkError> for HandshakeError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::TooLarge { len, .. } if len & 0xFFFF == TLS_RECORD => Self::SpeaksTls,
            LinkError::TooLarge { .. } => Self::Malformed("it sent a frame that is too large"),
            LinkError::Checksum => Self::Malformed("it sent a frame with a wrong checksum"),
            LinkError::Malformed(what) => Self::Malformed(what),
            LinkError::Io(error) => Self::of_stream(error),
            LinkError::Truncated | LinkError::Silent | LinkError::Stalled => Self::Broken(Cause::from(error)),
        }
    }
}
