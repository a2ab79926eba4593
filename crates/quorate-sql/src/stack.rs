//! Room on the stack for SQLite, whoever's thread it runs on.
//!
//! SQLite recurses while it prepares a statement: for nested expressions, subqueries and views, for chains of triggers,
//! foreign keys and generated columns. Limits bound each of these ([`connection`](crate::connection),
//! [`schema_check`](crate::schema_check)); here the room is made that what they allow may need. Measured at the limits:
//! 640 KiB for a query, 1,860 KiB for a statement that writes, some 300 KiB while one runs. A thread that has the room
//! left costs a comparison.

/// Bytes that a query may need.
const QUERY_BYTES: usize = 1 << 20;

/// Bytes that a statement that writes may need.
const WRITE_BYTES: usize = 4 << 20;

/// Bytes of a stack that is made where too little is left.
const STACK_BYTES: usize = 8 << 20;

/// Runs what prepares or runs queries.
pub(crate) fn for_query<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(QUERY_BYTES, STACK_BYTES, run)
}

/// Runs what prepares or runs statements that write.
pub(crate) fn for_write<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(WRITE_BYTES, STACK_BYTES, run)
}
