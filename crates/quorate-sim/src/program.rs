//! The SQL functions that the simulated program registers, and the one that its next version adds.
//!
//! Invariant: the last node runs the earlier version in its first life, and the current version in all later lives. So
//! the cluster accepts the new function, and the new format level, only from some entry in the middle of a run on, the
//! same entry on all nodes.

use quorate::{Extensions, Value, types::ValueRef};

/// An odd multiplier, so that `scramble` maps different integers to different integers.
const SCRAMBLE: i64 = 0x5851_f42d_4c95_7f2d;

/// A reason why a node can't apply an entry. The statement in the entry asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// The node has not enough memory for the entry.
    Memory,
    /// The entry takes too long.
    Slow,
    /// SQLite finds its database damaged.
    Damage,
    /// The process crashes.
    Crash,
    /// A step of the statement never ends.
    Stuck,
}

impl Ailment {
    /// All ailments.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Slow, Self::Damage, Self::Crash, Self::Stuck];

    /// The number by which a statement names this ailment.
    pub fn number(self) -> i64 {
        self as i64
    }

    fn numbered(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|ailment| ailment.number() == number)
    }

    /// SQLite's result code.
    fn code(self) -> i32 {
        match self {
            Self::Memory => 7,
            Self::Slow => 9,
            Self::Damage => 11,
            // Nothing sees this code: the process is crashing or stuck.
            Self::Crash | Self::Stuck => 10,
        }
    }
}

/// Returns the functions of a version of the program, for the node at this place in the list of nodes.
///
/// `ail(kind, mask)` fails as `kind` says on the nodes whose bits are set in `mask`, and returns 1 on the others.
/// `begin` is called with the kind right before the failure.
pub fn extensions(is_present: bool, place: usize, begin: impl Fn(Ailment) + Send + Sync + 'static) -> Extensions {
    let former = Extensions::default()
        .with_function("scramble", 1, scramble)
        .with_collation("by_length", |a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
        .with_ailment("ail", 2, move |arguments| ails(arguments, place, &begin));
    if is_present { former.with_function("late", 1, scramble) } else { former }
}

fn scramble(arguments: &[ValueRef<'_>]) -> Result<Value, String> {
    match arguments {
        [ValueRef::Integer(number)] => Ok(Value::Integer(number.wrapping_mul(SCRAMBLE))),
        other => Err(format!("{} arguments instead of one integer", other.len())),
    }
}

fn ails(arguments: &[ValueRef<'_>], place: usize, begin: &dyn Fn(Ailment)) -> Option<i32> {
    let [ValueRef::Integer(number), ValueRef::Integer(mask)] = arguments else { return None };
    let ailment = Ailment::numbered(*number).filter(|_| mask >> place & 1 == 1)?;
    begin(ailment);
    Some(ailment.code())
}
