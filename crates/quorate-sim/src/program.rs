//! What the simulated program brings along for its SQL, and that its next version brings more.
//!
//! Invariant: the last node runs the former version in its first life, and the present one ever after. So writes may
//! use what is new only from some moment in the middle of a run on, on all nodes from the same entry.

use quorate::{Extensions, Value, ValueRef};

/// An odd number, by which each integer becomes another.
const SCRAMBLE: i64 = 0x5851_f42d_4c95_7f2d;

/// What keeps a node from applying an entry, as the entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// It has no memory for it.
    Memory,
    /// It takes too long.
    Slow,
    /// SQLite finds its database damaged.
    Damage,
    /// The process dies of it.
    Crash,
    /// A step of it never ends.
    Stuck,
}

impl Ailment {
    /// All.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Slow, Self::Damage, Self::Crash, Self::Stuck];

    /// The number by which a statement names it.
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
            // What the process says that is dying or stuck is heard by nobody.
            Self::Crash | Self::Stuck => 10,
        }
    }
}

/// What such a version of the program brings along, on the node at this place among all.
///
/// `ail(kind, mask)` returns 1, but on the nodes whose bits are set in the mask it fails as the kind says; `begin` is
/// called with the kind before it does.
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
        other => Err(format!("{} arguments, or no integer", other.len())),
    }
}

fn ails(arguments: &[ValueRef<'_>], place: usize, begin: &dyn Fn(Ailment)) -> Option<i32> {
    let [ValueRef::Integer(number), ValueRef::Integer(mask)] = arguments else { return None };
    let ailment = Ailment::numbered(*number).filter(|_| mask >> place & 1 == 1)?;
    begin(ailment);
    Some(ailment.code())
}
