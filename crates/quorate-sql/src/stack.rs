//! Room on the stack for SQLite, whoever's thread it runs on.
//!
//! SQLite recurses while it prepares a statement: for nested expressions, subqueries and views, for chains of triggers,
//! foreign keys and generated columns. Limits bound each of these ([`connection`](crate::connection),
//! [`schema_check`](crate::schema_check)); here the room is made that what they allow may need. Measured at the limits:
//! 640 KiB for a query, 1,860 KiB for a statement that writes, some 300 KiB while one runs. A thread that has the room
//! left costs a comparison.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::usage::{NoMemory, Refusal, refused};

/// Bytes that a query may need.
const QUERY_BYTES: usize = 1 << 20;

/// Bytes that a statement that writes may need.
const WRITE_BYTES: usize = 4 << 20;

/// Bytes of a stack that is made where too little is left.
const STACK_BYTES: usize = 8 << 20;

/// Runs what prepares or runs queries.
///
/// # Errors
///
/// That of `run`, or that the process has no addresses left for a stack.
pub(crate) fn for_query<T, E: From<NoMemory>>(run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    with_room(QUERY_BYTES, STACK_BYTES, run)
}

/// Runs what prepares or runs statements that write.
///
/// # Errors
///
/// As for a query.
pub(crate) fn for_write<T, E: From<NoMemory>>(run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    with_room(WRITE_BYTES, STACK_BYTES, run)
}

fn with_room<T, E: From<NoMemory>>(needed: usize, size: usize, run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut has_begun = false;
    let begin = || {
        has_begun = true;
        run()
    };
    let done = catch_unwind(AssertUnwindSafe(|| stacker::maybe_grow(needed, size, begin)));
    done.unwrap_or_else(|panic| {
        if has_begun {
            resume_unwind(panic);
        }
        // The library panics where the system gives it no stack.
        refused(Refusal::System);
        Err(NoMemory.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_system_has_no_room_for_a_stack_the_call_fails_and_the_next_one_runs() {
        let run = |size| with_room(usize::MAX, size, || Ok::<_, NoMemory>(stacker::remaining_stack()));
        assert_eq!(run(1 << 60), Err(NoMemory));
        assert!(run(STACK_BYTES).is_ok_and(|left| left.is_some_and(|left| left > STACK_BYTES / 2)));
    }

    #[test]
    #[should_panic = "its own"]
    fn a_panic_of_what_runs_is_not_taken_for_a_lack_of_memory() {
        let _ = with_room(usize::MAX, STACK_BYTES, || -> Result<(), NoMemory> { panic!("its own") });
    }
}
