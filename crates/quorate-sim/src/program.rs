//! What the simulated program brings along for its SQL, and that its next version brings more.
//!
//! Invariant: the last node runs the former version in its first life, and the present one ever after. So writes may
//! use what is new only from some moment in the middle of a run on, on all nodes from the same entry.

use quorate::{Extensions, Value, ValueRef};

/// An odd number, by which each integer becomes another.
const SCRAMBLE: i64 = 0x5851_f42d_4c95_7f2d;

/// What such a version of the program brings along.
pub fn extensions(is_present: bool) -> Extensions {
    let former = Extensions::default()
        .with_function("scramble", 1, scramble)
        .with_collation("by_length", |a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    if is_present { former.with_function("late", 1, scramble) } else { former }
}

fn scramble(arguments: &[ValueRef<'_>]) -> Result<Value, String> {
    match arguments {
        [ValueRef::Integer(number)] => Ok(Value::Integer(number.wrapping_mul(SCRAMBLE))),
        other => Err(format!("{} arguments, or no integer", other.len())),
    }
}
