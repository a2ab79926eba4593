//! Ensures that SQLite has enough stack on any thread.
//!
//! SQLite recurses while it prepares a statement: for nested expressions, subqueries and views, and for chains of
//! triggers, foreign keys and generated columns. Limits bound the depth of each ([`connection`](crate::connection),
//! [`schema_check`](crate::schema_check)); this module provides the stack that statements within those limits may need.
//! Measured at the limits: 640 KiB for a query, 1,860 KiB for a statement that writes, about 300 KiB while a statement
//! runs. On a thread with enough free stack, the check costs one comparison.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::usage::{NoMemory, Refusal, refused};

/// Bytes of stack that a query may need.
const QUERY_BYTES: usize = 1 << 20;

/// Bytes of stack that a statement that writes may need.
const WRITE_BYTES: usize = 4 << 20;

/// Bytes of the separate stack that is allocated if the thread has too little left.
const STACK_BYTES: usize = 8 << 20;

/// Calls `run`, which prepares or runs queries, with enough stack for them.
///
/// # Errors
///
/// Returns the error of `run`, or [`NoMemory`] if the process has no address space left for a stack.
pub(crate) fn for_query<T, E: From<NoMemory>>(run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    with_room(QUERY_BYTES, STACK_BYTES, run)
}

/// Calls `run`, which prepares or runs statements that write, with enough stack for them.
///
/// # Errors
///
/// As for [`for_query`].
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
        // `stacker` panics if the system can't allocate the stack.
        refused(Refusal::System);
        Err(NoMemory.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_cannot_be_allocated_is_an_error() {
        let run = |size| with_room(usize::MAX, size, || Ok::<_, NoMemory>(stacker::remaining_stack()));
        assert_eq!(run(1 << 60), Err(NoMemory));
        assert!(run(STACK_BYTES).is_ok_and(|left| left.is_some_and(|left| left > STACK_BYTES / 2)));
    }

    #[test]
    #[should_panic = "its own"]
    fn a_panic_of_the_callback_is_passed_on() {
        let _ = with_room(usize::MAX, STACK_BYTES, || -> Result<(), NoMemory> { panic!("its own") });
    }
}
