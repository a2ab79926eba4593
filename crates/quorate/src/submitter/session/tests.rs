//! Tests a session against a model of the cluster's session table. Whatever is lost, duplicated, late or reordered,
//! each write takes effect once, and no write is refused while its caller waits for it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The cluster's answer to a copy of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Applied, with its number among all applied writes.
    Done(usize),
    Forgotten,
    WindowExceeded,
}

/// A model of the cluster's session table: it keeps the outcomes above the floor.
#[derive(Default)]
struct Table {
    floor: u64,
    kept: BTreeMap<u64, usize>,
    applied: Vec<u64>,
}

impl Table {
    fn apply(&mut self, origin: Origin) -> Answer {
        self.floor = self.floor.max(origin.floor);
        self.kept = self.kept.split_off(&(self.floor + 1));
        if origin.sequence <= self.floor {
            return Answer::Forgotten;
        }
        if origin.sequence - self.floor > SESSION_WINDOW {
            return Answer::WindowExceeded;
        }
        let number = *self.kept.entry(origin.sequence).or_insert_with(|| {
            self.applied.push(origin.sequence);
            self.applied.len()
        });
        Answer::Done(number)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A write begins.
    Begin,
    /// A copy of any proposal that was sent reaches the cluster; the answer reaches the client if `heard`.
    Deliver { which: prop::sample::Index, heard: bool },
    /// The caller of a waiting write is dropped.
    Abandon(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Begin),
        6 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(which, heard)| Step::Deliver { which, heard }),
        1 => any::<prop::sample::Index>().prop_map(Step::Abandon),
    ];
    prop::collection::vec(step, 0..200)
}

fn open() -> Session {
    let mut session = Session::default();
    assert_eq!(session.turn(), Turn::Open);
    session.opened(Some(SessionId(7)));
    session
}

proptest! {
    #[test]
    fn each_write_takes_effect_once_and_none_is_refused(steps in steps()) {
        let (mut session, mut table) = (open(), Table::default());
        let (mut sent, mut waiting) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Begin => {
                    let Turn::Write(ticket) = session.turn() else { panic!("the window is large enough") };
                    sent.push(ticket);
                    waiting.push(ticket);
                }
                Step::Deliver { which, heard } if !sent.is_empty() => {
                    let ticket = *which.get(&sent);
                    let answer = table.apply(ticket.origin());
                    if let Some(at) = waiting.iter().position(|other| *other == ticket) {
                        prop_assert!(matches!(answer, Answer::Done(_)), "{answer:?} for {ticket:?}");
                        if heard {
                            session.finish(waiting.swap_remove(at));
                        }
                    }
                }
                Step::Abandon(which) if !waiting.is_empty() => {
                    session.finish(waiting.swap_remove(which.index(waiting.len())));
                }
                Step::Deliver { .. } | Step::Abandon(_) => {}
            }
        }
        let mut applied = table.applied.clone();
        applied.sort_unstable();
        applied.dedup();
        prop_assert_eq!(applied.len(), table.applied.len(), "a write took effect twice");
    }
}

#[test]
fn a_full_window_waits_for_the_oldest_write() {
    let mut session = open();
    let mut tickets = Vec::new();
    while let Turn::Write(ticket) = session.turn() {
        tickets.push(ticket);
    }
    assert_eq!(tickets.len() as u64, SESSION_WINDOW);
    session.finish(tickets[1]);
    assert_eq!(session.turn(), Turn::Wait, "the oldest is still out");
    session.finish(tickets[0]);
    let (Turn::Write(a), Turn::Write(b)) = (session.turn(), session.turn()) else { panic!("two are free") };
    assert_eq!((a.origin().floor, b.origin().floor, session.turn()), (2, 2, Turn::Wait));
}

#[test]
fn one_write_opens_the_session_and_others_wait() {
    let mut session = Session::default();
    assert_eq!((session.turn(), session.turn()), (Turn::Open, Turn::Wait));
    session.opened(None);
    assert_eq!(session.turn(), Turn::Open, "the next one tries");
}

#[test]
fn an_expired_session_is_replaced_and_its_tickets_are_void() {
    let mut session = open();
    let Turn::Write(old) = session.turn() else { panic!("it is open") };
    session.expired(old.session());
    assert_eq!(session.turn(), Turn::Open);
    session.opened(Some(SessionId(9)));
    let Turn::Write(new) = session.turn() else { panic!("it is open") };
    session.finish(old);
    session.expired(old.session());
    let Turn::Write(next) = session.turn() else { panic!("it is still open") };
    assert_eq!((new.origin().sequence, next.origin().sequence, next.origin().floor), (1, 2, 0));
}
