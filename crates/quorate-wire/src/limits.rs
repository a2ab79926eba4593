//! How much a connection may carry at once. Every number here bounds memory that a peer can make this process use.

use std::time::Duration;

use crate::identity::Purpose;

/// The highest and only version of the protocol that this build speaks.
pub const VERSION: u16 = 1;

/// Bytes of a handshake's frame.
pub(crate) const HANDSHAKE_FRAME_MAX: usize = 256;

/// Bytes of a channel binding: what TLS exporters give, with room.
pub const BINDING_MAX: usize = 64;

/// Bytes that a frame may hold beside its body.
pub(crate) const HEAD_MAX: usize = 32;

/// Bytes of a failure's text; what is longer is cut.
pub const FAILURE_TEXT_MAX: usize = 512;

/// Bytes that a receive buffer starts with. It grows only as bytes arrive, to at most twice what it holds.
pub(crate) const READ_CHUNK: usize = 32 << 10;

/// Bodies below this are copied beside their header; from it on they are written from where they are.
pub(crate) const COPY_BELOW: usize = 4 << 10;

/// Bytes that are gathered for one write, give or take a frame.
pub(crate) const WRITE_BATCH: usize = 1 << 20;

/// Frames without a body of their own (replies that failed, credits, pongs) that may wait to be written. A peer that
/// makes more of them without reading breaks its connection.
pub(crate) const CONTROL_QUEUE_MAX: usize = 4_096;

/// Bytes of replies that may wait to be written; calls whose reply finds no room wait with it, and still count.
pub(crate) const REPLY_QUEUE_BYTES: usize = 8 << 20;

/// What a stream's item costs of its window beside its bytes.
pub(crate) const STREAM_ITEM_COST: usize = 16;

/// Silence after which an end of a connection asks the other whether it is there.
pub const KEEPALIVE: Duration = Duration::from_secs(5);

/// A connection is given up after this many times [`KEEPALIVE`] in silence.
pub const SILENCES_MAX: u32 = 3;

/// Time in which a write must make progress.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(15);

/// Pause after a listener failed to accept (no file descriptor left, for one).
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What one connection may carry. Each end says what it can take; the smaller of each number holds for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the body of a call, a reply, or an item of a stream.
    pub body_bytes: u32,
    /// Calls without a reply.
    pub calls: u32,
    /// Bytes of the bodies of calls without a reply. One larger call is let through alone.
    pub call_bytes: u32,
    /// Open streams.
    pub streams: u32,
    /// Bytes of items that one end of a stream may have sent before the other took them.
    pub stream_window: u32,
}

impl Limits {
    /// What this build takes on a connection of the given purpose.
    pub const fn of(purpose: Purpose) -> Self {
        const KIB: u32 = 1 << 10;
        const MIB: u32 = 1 << 20;
        match purpose {
            // The largest proposal is 32 MiB, and one must always fit.
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

    /// The smaller of each.
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

    /// Whether nothing would wait for ever.
    pub(crate) fn let_something_pass(&self) -> bool {
        self.calls > 0 && self.call_bytes > 0 && self.stream_window > 1
    }

    /// Bytes of the body of a call or an item, as a length in memory.
    pub(crate) fn body_max(&self) -> usize {
        usize::try_from(self.body_bytes).unwrap_or(usize::MAX)
    }

    /// Bytes that the part of a frame after its header may have.
    pub(crate) fn frame_max(&self) -> usize {
        self.body_max().saturating_add(HEAD_MAX)
    }

    /// What an item costs of the window. No more than half of it, so that an item larger than the window passes, and
    /// so that giving credit back when half is used up never leaves a sender waiting.
    pub(crate) fn item_cost(&self, len: usize) -> u32 {
        let cost = u32::try_from(len.saturating_add(STREAM_ITEM_COST)).unwrap_or(u32::MAX);
        cost.min(self.stream_window / 2).max(1)
    }

    /// What a call costs of [`Limits::call_bytes`].
    pub(crate) fn call_cost(&self, len: usize) -> u32 {
        u32::try_from(len).unwrap_or(u32::MAX).min(self.call_bytes)
    }
}
