//! What the tests share.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::indexing_slicing, reason = "each test uses a part")]

use quorate_keys::*;

/// Collects what a visit gives.
macro_rules! collect {
    ($tables:expr, $method:ident, $($argument:expr),*) => {{
        let mut rows = Vec::new();
        $tables
            .$method($($argument,)* &mut |row| {
                rows.push(row);
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        rows
    }};
}
pub(crate) use collect;

pub const ALL_PLACES: Span<Place> = Span { from: FIRST_PLACE, to: None };

pub mod counting;
pub mod invariants;

/// Runs a command at a time with a large budget.
pub fn run_at<T: Tables<Error = KeysError>>(
    tables: &mut T,
    now: u64,
    command: KeysCommand,
) -> Result<KeysReply, KeysError> {
    let mut context = Context::new(now, Version::new(now, 0), 1 << 40);
    Keys::new(tables, &mut context, 0).run(&command)
}
