//! The limits of the door.

use std::time::Duration;

use quorate_keys::Space;

/// The most arguments of a command, its name among them.
pub const ARGUMENTS_MAX: usize = 128 << 10;

/// The most bytes of an argument.
pub const ARGUMENT_BYTES_MAX: usize = quorate_keys::limits::VALUE_BYTES_MAX;

/// The most bytes of all arguments of a command together.
pub const COMMAND_BYTES_MAX: usize = ARGUMENT_BYTES_MAX + (1 << 20);

/// The most arguments of a command before the client has logged in.
pub const LOGIN_ARGUMENTS_MAX: usize = 10;

/// The most bytes of an argument before the client has logged in.
pub const LOGIN_ARGUMENT_BYTES_MAX: usize = 16 << 10;

/// The most bytes of a command that is written as one line, and of a line that holds a length.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// The databases that keep keys durably: those below this one.
pub const DATABASES: Space = 8;

/// The databases that will be caches: those from [`DATABASES`] to below this one.
pub const CACHES_END: Space = 16;

/// The most requests that are done together.
pub const BATCH_REQUESTS_MAX: usize = 1 << 10;

/// The most commands of a transaction.
pub const TRANSACTION_COMMANDS_MAX: usize = 10_000;

/// The most commands of a transaction of which each may keep the thread of the port for milliseconds.
pub const TRANSACTION_COSTLY_MAX: usize = 100;

/// The most bytes that all commands of a transaction take: those of their arguments, and some for each.
pub const TRANSACTION_BYTES_MAX: usize = COMMAND_BYTES_MAX;

/// The most keys that a transaction depends on.
pub const WATCHED_KEYS_MAX: usize = 1_000;

/// The most channels and patterns of a connection.
pub const SUBSCRIPTIONS_MAX: usize = 10_000;

/// The most bytes of the names of all channels and patterns of a connection together.
pub const SUBSCRIPTION_BYTES_MAX: usize = 4 << 20;

/// The most bytes of what a client says of itself: a name, or a version.
pub const LABEL_BYTES_MAX: usize = 256;

/// The most bytes of the name that a client gives a request.
pub const REQUEST_NAME_BYTES_MAX: usize = 128;

/// The bytes that are read from a client at once.
pub const READ_BYTES: usize = 16 << 10;

/// A connection that has needed buffers of more bytes than these gives them back.
pub const BUFFER_BYTES_KEPT: usize = 64 << 10;

/// The most bytes that are read from a client that waits.
pub const PIPELINE_BYTES_MAX: usize = 1 << 20;

/// The time within which a client must read something of its replies.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(10);
