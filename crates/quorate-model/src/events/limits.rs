//! The limits of events.

/// The most bytes of the name of a channel.
pub const CHANNEL_BYTES_MAX: usize = 256;

/// The most bytes of what an event says.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// The most events of an entry.
pub const ENTRY_EVENTS_MAX: usize = 1 << 16;

/// The most bytes of the events of an entry.
pub const ENTRY_BYTES_MAX: u64 = 16 << 20;

/// The bytes that an event counts besides its channel and what it says.
pub const EVENT_BYTES: u64 = 64;

/// The events that are kept: the latest ones.
pub const KEPT_EVENTS_MAX: u64 = 1_000_000;

/// The bytes of the events that are kept. If they take more, events are removed although there are fewer than
/// [`KEPT_EVENTS_MAX`].
pub const KEPT_BYTES_MAX: u64 = 256 << 20;

/// The most events that an event removes when it is added. So what is kept exceeds its limits for a while if large
/// events follow very small ones.
pub const TRIMMED_PER_EVENT: u64 = 256;

/// The most channels, and the most patterns, of a filter.
pub const FILTER_PARTS_MAX: usize = 1_000;

/// The most bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 1 << 10;

/// The most events of an answer.
pub const PAGE_EVENTS_MAX: u32 = 1_000;

/// The bytes of events after which an answer ends; it has at least one event.
pub const PAGE_BYTES_MAX: u64 = 4 << 20;

/// The most events that an answer looks at.
pub const PAGE_LOOKED_AT_MAX: u64 = 10_000;
