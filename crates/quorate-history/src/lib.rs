//! Histories of what clients were told, and whether any correct database could have told it.
//!
//! A history is a list of operations, each with the moments at which its client began it and heard of its end. A
//! checker takes a history and returns a [`Verdict`]; it knows no database, no network and no clock.
//!
//! Invariants:
//! - [`Verdict::Wrong`] is a proof: no strictly serializable execution gives that history.
//! - What a client does not know ([`Outcome::Unknown`]) may have happened at any time after its beginning, or never,
//!   whichever explains the history.
//! - A checker that gives up says [`Verdict::Unknown`]; it never passes what it did not check.

#![forbid(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "indices into tables that the same function made")]

pub mod append;
pub mod bank;
pub mod register;
pub mod set;

/// Nanoseconds of one monotonic clock, the same for all clients.
pub type Nanos = u64;

/// What a client knows of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It took effect, between its beginning and its end.
    Done,
    /// It had no effect, and never will.
    Failed,
    /// It may have taken effect, or may still.
    Unknown,
}

/// An operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op<T> {
    /// Before it was sent.
    pub begun: Nanos,
    /// After its outcome was heard, or given up.
    pub ended: Nanos,
    /// Its result.
    pub outcome: Outcome,
    /// What was asked, and what was answered.
    pub what: T,
}

impl<T> Op<T> {
    /// The moment after which it has certainly taken effect, if it ever did.
    fn effective_by(&self) -> Nanos {
        if self.outcome == Outcome::Done { self.ended } else { Nanos::MAX }
    }

    fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }
}

/// What a checker concludes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A correct database may have told this history.
    Right,
    /// None could have, and why: some of what was found.
    Wrong(Vec<String>),
    /// The checker did not find out, and why.
    Unknown(String),
}

impl Verdict {
    /// That of all parts of a history together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wrong(mut findings), Self::Wrong(more)) => {
                findings.extend(more);
                Self::Wrong(findings)
            }
            (wrong @ Self::Wrong(_), _) | (_, wrong @ Self::Wrong(_)) => wrong,
            (unknown @ Self::Unknown(_), _) | (_, unknown @ Self::Unknown(_)) => unknown,
            (Self::Right, Self::Right) => Self::Right,
        }
    }

    /// The verdict of a checker that misses nothing, from all that it found.
    fn of(findings: Vec<String>) -> Self {
        if findings.is_empty() { Self::Right } else { Self::Wrong(findings) }
    }
}
