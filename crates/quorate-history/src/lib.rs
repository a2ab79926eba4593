//! Checkers of client histories: could any correct database have produced these results?
//!
//! A history is a list of operations, each with the times at which its client started it and received its outcome. A
//! checker takes a history and returns a [`Verdict`]; it uses no database, network or clock.
//!
//! Invariants:
//! - [`Verdict::Wrong`] is a proof: no strictly serializable execution produces the history.
//! - An operation with [`Outcome::Unknown`] may have happened at any time after its start, or never, whichever explains
//!   the history.
//! - A checker that gives up returns [`Verdict::Unknown`]; it never passes what it did not check.

#![forbid(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "indices into tables that the same function made")]

pub mod append;
pub mod bank;
pub mod register;
pub mod set;

/// Nanoseconds of a monotonic clock that all clients share.
pub type Nanos = u64;

/// What a client knows about the effect of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It took effect between its start and its end.
    Done,
    /// It had no effect and never will.
    Failed,
    /// It may have taken effect, or may still do so.
    Unknown,
}

/// An operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op<T> {
    /// The time before it was sent.
    pub begun: Nanos,
    /// The time after its outcome was received, or the client gave up.
    pub ended: Nanos,
    /// Its outcome.
    pub outcome: Outcome,
    /// The request and its result.
    pub what: T,
}

impl<T> Op<T> {
    /// The time by which it has certainly taken effect; the end of time if it may not have.
    fn effective_by(&self) -> Nanos {
        if self.outcome == Outcome::Done { self.ended } else { Nanos::MAX }
    }

    fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }
}

/// The conclusion of a checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A correct database could have produced this history.
    Right,
    /// No correct database could have; holds some of the reasons.
    Wrong(Vec<String>),
    /// The checker reached no conclusion; holds the reason.
    Unknown(String),
}

impl Verdict {
    /// The verdict on two parts of a history together.
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

    /// The verdict of a checker that finds every anomaly, given its findings.
    fn of(findings: Vec<String>) -> Self {
        if findings.is_empty() { Self::Right } else { Self::Wrong(findings) }
    }
}
