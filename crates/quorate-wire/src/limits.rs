//! The limits of a connection. Each one bounds memory that a peer can make this process use, or time that it can take.

use std::time::Duration;

use crate::identity::Purpose;

/// The only version of the protocol that this build speaks.
pub const VERSION: u16 = 1;

/// The maximum content of a handshake frame, in bytes.
pub(crate) const HANDSHAKE_FRAME_MAX: usize = 256;

/// The maximum content of the handshake frame in which a user logs in, in bytes.
pub(crate) const LOGIN_FRAME_MAX: usize = 2 << 10;

/// The maximum length of a channel binding, in bytes. It leaves room beyond what a TLS exporter returns.
pub const BINDING_MAX: usize = 64;

/// The maximum content of a frame without its body, in bytes.
pub(crate) const HEAD_MAX: usize = 32;

/// The maximum length of a failure's text, in bytes. The sender truncates a longer text.
pub const FAILURE_TEXT_MAX: usize = 512;

/// The initial size of a receive buffer, in bytes. It grows only as bytes arrive, to at most twice what it holds.
pub(crate) const READ_CHUNK: usize = 32 << 10;

/// Bodies shorter than this are copied next to their header. Longer ones are written in place, without a copy.
pub(crate) const COPY_BELOW: usize = 4 << 10;

/// The bytes gathered for one write. The last frame may exceed it.
pub(crate) const WRITE_BATCH: usize = 1 << 20;

/// The maximum number of frames without a body (failures, credits, pongs and the like) that may wait to be written. A
/// peer that causes more of them without reading loses its connection.
pub(crate) const CONTROL_QUEUE_MAX: usize = 4_096;

/// Bytes of replies that may wait to be written. A call whose reply does not fit waits for room and still counts.
pub(crate) const REPLY_QUEUE_BYTES: usize = 8 << 20;

/// The cost of a stream item in its window, in addition to the bytes of the item.
pub(crate) const STREAM_ITEM_COST: usize = 16;

/// The silence after which an end of a connection sends a ping.
pub const KEEPALIVE: Duration = Duration::from_secs(5);

/// The number of unanswered pings, one each [`KEEPALIVE`], after which an end closes the connection.
pub const SILENCES_MAX: u32 = 3;

/// The usual time limit for a connection attempt, including the handshake.
pub const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The time within which a write must make progress.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(15);

/// The pause after a listener failed to accept a connection, for example because no file descriptor was left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What one connection may carry. Each end offers its own limits; the smaller value of each applies to both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the body of a call, a reply, or a stream item.
    pub body_bytes: u32,
    /// Calls in flight: sent, and not answered yet.
    pub calls: u32,
    /// Bytes of the bodies of calls in flight. A larger call is accepted if it is the only one.
    pub call_bytes: u32,
    /// Open streams.
    pub streams: u32,
    /// Bytes of items that one end of a stream may send before the other end has taken them.
    pub stream_window: u32,
}

impl Limits {
    /// Returns the limits of this build for a connection of the given purpose.
    pub const fn of(purpose: Purpose) -> Self {
        const KIB: u32 = 1 << 10;
        const MIB: u32 = 1 << 20;
        match purpose {
            // The largest proposal is 32 MiB and must always fit.
            Purpose::Data => {
                Self { body_bytes: 36 * MIB, calls: 1024, call_bytes: 64 * MIB, streams: 32, stream_window: 8 * MIB }
            }
            Purpose::Heartbeat => {
                Self { body_bytes: 256 * KIB, calls: 256, call_bytes: 4 * MIB, streams: 4, stream_window: 256 * KIB }
            }
            Purpose::Image => {
                Self { body_bytes: 4 * MIB, calls: 16, call_bytes: 16 * MIB, streams: 4, stream_window: 8 * MIB }
            }
            Purpose::Client => {
                Self { body_bytes: 36 * MIB, calls: 256, call_bytes: 64 * MIB, streams: 16, stream_window: MIB }
            }
        }
    }

    /// Returns the smaller value of each limit.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            body_bytes: self.body_bytes.min(other.body_bytes),
            calls: self.calls.min(other.calls),
            call_bytes: self.call_bytes.min(other.call_bytes),
            streams: self.streams.min(other.streams),
            stream_window: self.stream_window.min(other.stream_window),
        }
    }

    /// Returns false if a limit is so small that senders would wait for ever.
    pub(crate) fn allow_progress(&self) -> bool {
        self.calls > 0 && self.call_bytes > 0 && self.stream_window > 1
    }

    /// Returns [`Limits::body_bytes`] as a length in memory.
    pub(crate) fn body_max(&self) -> usize {
        usize::try_from(self.body_bytes).unwrap_or(usize::MAX)
    }

    /// Returns the maximum length of a frame after its header.
    pub(crate) fn frame_max(&self) -> usize {
        self.body_max().saturating_add(HEAD_MAX)
    }

    /// Returns the cost of an item in the window. It is at most half of the window, so that an item larger than the
    /// window can pass, and so that a reader that returns credit at half of the window never blocks its sender.
    pub(crate) fn item_cost(&self, len: usize) -> u32 {
        let cost = u32::try_from(len.saturating_add(STREAM_ITEM_COST)).unwrap_or(u32::MAX);
        cost.min(self.stream_window / 2).max(1)
    }

    /// Returns the cost of a call in [`Limits::call_bytes`].
    pub(crate) fn call_cost(&self, len: usize) -> u32 {
        u32::try_from(len).unwrap_or(u32::MAX).min(self.call_bytes)
    }
}
