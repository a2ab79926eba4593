//! What can go wrong, and what the caller may conclude from it.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;

/// A secret has fewer bytes than [`SECRET_BYTES_MIN`](crate::SECRET_BYTES_MIN).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret has {len} bytes: give it at least {}, random ones", crate::SECRET_BYTES_MIN)]
pub struct SecretTooShort {
    /// The bytes that it has.
    pub len: usize,
}

/// Why a connection was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// There is no connection to the address.
    #[error("cannot connect to {addr}: {reason}")]
    Unreachable {
        /// The address.
        addr: String,
        /// What the system says.
        reason: String,
    },
    /// Connecting and the handshake took too long.
    #[error("connecting to {addr} took too long")]
    TimedOut {
        /// The address.
        addr: String,
    },
    /// The two ends did not agree.
    #[error("handshake with {addr}: {error}")]
    Handshake {
        /// The address.
        addr: String,
        /// Why.
        error: HandshakeError,
    },
}

impl ConnectError {
    /// Whether the same attempt may succeed later without anyone changing a configuration.
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
        "it belongs to cluster {theirs:032x}, this is {ours:032x}: check the address; if one was restored from a \
         backup, the other's nodes join it with empty data directories, and its clients connect anew"
    )]
    OtherCluster {
        /// The other end's cluster.
        theirs: u128,
        /// This end's.
        ours: u128,
    },
    /// No version of the protocol is spoken by both ends.
    #[error("it speaks protocol versions {theirs:?}, this build {ours:?}: upgrade the older one")]
    OtherVersion {
        /// The other end's versions.
        theirs: RangeInclusive<u16>,
        /// This end's.
        ours: RangeInclusive<u16>,
    },
    /// Another node answers at this address.
    #[error("node {found:016x} answers, not {expected:016x}: check the address")]
    NotTheNode {
        /// The node that was dialed.
        expected: u64,
        /// The node that is there; 0 when it has no id.
        found: u64,
    },
    /// The server has as many connections as it may.
    #[error("it has too many connections: try again later")]
    Busy,
    /// The other end does not follow the protocol.
    #[error("it does not follow the protocol: {0}")]
    Malformed(&'static str),
    /// It took too long.
    #[error("it took too long")]
    TimedOut,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl HandshakeError {
    /// Whether the same attempt may succeed later without anyone changing a configuration.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy | Self::TimedOut | Self::Broken(_))
    }
}

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing of the call left this process, or the server said that it never looked at it: it has no effect.
    #[error("the call was not sent: {0}")]
    NotSent(NotSent),
    /// The connection broke before the reply: whether the call took effect is unknown.
    #[error("the connection broke before the reply")]
    Broken,
    /// There was no reply before the deadline: whether the call took or will take effect is unknown.
    #[error("no reply before the deadline")]
    TimedOut,
    /// The server answered that it failed.
    #[error(transparent)]
    Failed(#[from] CallFailure),
}

/// Why a call was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The connection is closed, or closed before the call's turn came.
    #[error("the connection is closed")]
    Closed,
    /// The deadline came while the call waited for its turn.
    #[error("its deadline came while it waited for its turn")]
    TimedOut,
    /// The body is above the connection's limit.
    #[error("its body has {len} bytes, the limit is {max}")]
    TooLarge {
        /// Bytes of the body.
        len: usize,
        /// The limit.
        max: usize,
    },
}

impl CallError {
    /// Whether the same call may be made again, later or on another connection, without the risk of doing it twice.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotSent(reason) => !matches!(reason, NotSent::TooLarge { .. }),
            Self::Failed(failure) => failure.is_retryable(),
            Self::Broken | Self::TimedOut => false,
        }
    }

    /// Whether the call may have taken effect, or still take it.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::NotSent(_) => false,
            Self::Failed(failure) => failure.kind == FailureKind::Internal,
            Self::Broken | Self::TimedOut => true,
        }
    }
}

/// The answer of a server that did not do what a call or a stream asked for. What a method itself may answer belongs
/// into the reply's body; this is for what concerns the call as such.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct CallFailure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// More about it, for people: at most [`FAILURE_TEXT_MAX`](crate::FAILURE_TEXT_MAX) bytes are sent.
    pub text: String,
}

/// Kinds of [`CallFailure`]. All but `Internal` say that nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The server does not know the method.
    UnknownMethod,
    /// The caller's role may not do this.
    Forbidden,
    /// The body makes no sense.
    Malformed,
    /// The server has too much to do.
    Overloaded,
    /// The server can't do it now (it is starting, stopping, or not the one to ask).
    Unavailable,
    /// Something went wrong on the way: it may have been done.
    Internal,
    /// The sender of a stream went away before its end.
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

    /// The kind of a code; `Internal`, which concludes nothing, for one of a later version.
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
    /// A failure with a text for people.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Whether nothing was done and the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, FailureKind::Overloaded | FailureKind::Unavailable)
    }
}

/// Why a stream can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The connection broke or is closed: what became of items sent but not answered is unknown.
    #[error("the connection is closed")]
    Broken,
    /// The other end reads no more of this direction.
    #[error("the other end reads no more")]
    Stopped,
    /// The other end ended its direction by a failure.
    #[error(transparent)]
    Failed(#[from] CallFailure),
    /// The item is above the connection's limit; the stream goes on without it.
    #[error("the item has {len} bytes, the limit is {max}")]
    TooLarge {
        /// Bytes of the item.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The connection has as many open streams as it may.
    #[error("too many open streams: finish one, or use another connection")]
    TooMany,
}

impl StreamError {
    /// Whether a new stream, perhaps on a new connection, may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Broken | Self::TooMany => true,
            Self::Failed(failure) => failure.is_retryable(),
            Self::Stopped | Self::TooLarge { .. } => false,
        }
    }
}

/// Why a connection ended. For logs: callers see [`CallError`] and [`StreamError`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("a frame of {len} bytes was announced, the limit is {max}")]
    TooLarge { len: usize, max: usize },
    #[error("a frame's checksum is wrong")]
    Checksum,
    #[error("the connection ended within a frame")]
    Truncated,
    #[error("it does not follow the protocol: {0}")]
    Malformed(&'static str),
    #[error("nothing was heard for too long")]
    Silent,
    #[error("it does not read what is written")]
    Stalled,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<LinkError> for HandshakeError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::TooLarge { .. } => Self::Malformed("a frame that is too large"),
            LinkError::Checksum => Self::Malformed("a wrong checksum"),
            LinkError::Malformed(what) => Self::Malformed(what),
            LinkError::Truncated | LinkError::Silent | LinkError::Stalled | LinkError::Io(_) => {
                Self::Broken(error.to_string())
            }
        }
    }
}
