//! The tests that every [`Machine`] must pass: nothing depends on where batches end, on what ran ahead, or on restarts;
//! and a fault is never an outcome.
//!
//! A machine takes part through a [`Fixture`]. The commands are those of the store for tests, or what does the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quorate_model::codec::encode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{
    Appointment, Command, ControlCommand, Entry, LogId, Mode, NodeId, Origin, Outcome, Payload, Proposal, RequestKey,
    SessionId, Stamp, StoreFault, TokenHash, UserCommand, UserRole, Verifier,
};

use crate::requests::KEY_TIME;
use crate::{AppliedRow, Applier, Machine};

const SECOND: u64 = 1_000_000_000;

/// When the first entry was proposed.
const START: u64 = 1_700_000_000 * SECOND;

/// The sessions that a program uses; one more is never opened.
const SESSIONS: u64 = 3;

const CASES: u32 = 96;

/// A machine with its medium, and what does the same on it as the commands of the store for tests.
pub trait Fixture {
    /// The machine.
    type Machine: Machine;

    /// Makes an empty medium and opens it.
    fn new() -> (Self, Self::Machine)
    where
        Self: Sized;

    /// Opens the medium again, after a crash.
    fn restart(&mut self, machine: Self::Machine) -> Self::Machine;

    /// Returns the commands of the first entries.
    fn setup(&self) -> Vec<Command>;

    /// Returns the command for an act.
    fn command(&self, act: Act) -> Command;

    /// Returns what is committed, apply's records included.
    fn contents(&self, machine: &mut Self::Machine) -> String;

    /// Lets each change after so many fail with a fault, or none (`None`).
    fn set_room(&self, machine: &mut Self::Machine, changes: Option<u64>);
}

/// What a command does. Keys and values are small numbers, so that acts meet.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Adds a value under a key, unless there is one; for how many seconds, or for ever (0), where the store has times.
    Add(u8, u8, u8),
    /// Removes the value under a key, and returns it.
    Take(u8),
    /// Fails unless there is this value under the key.
    Expect(u8, u8),
    /// Fails and closes the transaction.
    Abort,
}

/// An entry of a program.
#[derive(Clone, Debug)]
struct Step {
    acts: Vec<Act>,
    mode: Mode,
    /// The session, the sequence and the floor.
    origin: (u64, u64, u64),
    kind: Kind,
    /// The key of a request, and the hash of what it asks for.
    key: Option<(u8, u8)>,
    /// The changes of users: before the acts, and after them.
    users: (UserCommand, UserCommand),
    /// The archiver that is appointed, and whether the appointment expects the present one.
    archiver: (Option<u64>, bool),
    /// How many seconds after the entry before it.
    pause: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Proposal,
    Rejected,
    Blank,
    Tick,
    /// Raises the format level before its acts, which may fail.
    Raise,
    /// Changes users before and after its acts, which may fail.
    Users,
    /// Appoints an archiver before its acts, which may fail.
    Appoint,
}

/// A batch: its size, entries that run ahead of it, and whether the machine restarts before or after it.
#[derive(Clone, Debug)]
struct Batch {
    size: usize,
    /// How many entries to skip, and how many run ahead.
    ahead: Option<(usize, usize)>,
    restarts_ahead: bool,
    restarts: bool,
}

/// Draws an act.
pub fn an_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..6_u8, 0..3_u8, 0..4_u8).prop_map(|(key, value, ttl)| Act::Add(key, value, ttl)),
        3 => (0..6_u8).prop_map(Act::Take),
        2 => (0..6_u8, 0..3_u8).prop_map(|(key, value)| Act::Expect(key, value)),
        1 => Just(Act::Abort),
    ]
}

/// Draws a change of a user. Names and tokens are few, so that changes meet.
pub fn a_user_command() -> impl Strategy<Value = UserCommand> {
    let name = || prop_oneof![Just("ann"), Just("bob"), Just("eve")].prop_map(str::to_owned);
    let role = || prop_oneof![2 => Just(UserRole::Admin), 1 => Just(UserRole::Write), 1 => Just(UserRole::Read)];
    let verifier = || {
        proptest::option::of((0..3_u8).prop_map(|salt| Verifier::new(format!("$argon2id$v=19$m=1,t=1,p=1${salt}$"))))
    };
    let hash = || (0..6_u8).prop_map(|byte| TokenHash::new([byte; TokenHash::BYTES]));
    prop_oneof![
        3 => (name(), role(), verifier(), proptest::option::of(hash()))
            .prop_map(|(name, role, verifier, token)| UserCommand::Add { name, role, verifier, token }),
        1 => name().prop_map(UserCommand::Remove),
        1 => (name(), role()).prop_map(|(name, role)| UserCommand::SetRole { name, role }),
        1 => (name(), verifier()).prop_map(|(name, verifier)| UserCommand::SetVerifier { name, verifier }),
        2 => (name(), hash()).prop_map(|(name, hash)| UserCommand::AddToken { name, hash }),
        1 => (name(), hash()).prop_map(|(name, hash)| UserCommand::RemoveToken { name, id: hash.id() }),
    ]
}

fn a_step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![2 => Just(Mode::Atomic), 1 => Just(Mode::Pipeline)];
    let kind = prop_oneof![
        12 => Just(Kind::Proposal),
        1 => Just(Kind::Rejected),
        1 => Just(Kind::Blank),
        1 => Just(Kind::Tick),
        1 => Just(Kind::Raise),
        3 => Just(Kind::Users),
        2 => Just(Kind::Appoint),
    ];
    let acts = proptest::collection::vec(an_act(), 1..4);
    let users = (a_user_command(), a_user_command());
    let archiver = (proptest::option::of(1..4_u64), prop::bool::weighted(0.7));
    let key = proptest::option::weighted(0.4, (0..4_u8, prop_oneof![4 => Just(0_u8), 1 => Just(1_u8)]));
    // Sometimes so long that keys are forgotten.
    let pause = prop_oneof![40 => 0..3_u64, 1 => Just(KEY_TIME / SECOND / 2)];
    let origin = (0..=SESSIONS + 1, 1..20_u64, 0..8_u64);
    (acts, mode, origin, kind, key, (users, archiver), pause).prop_map(
        |(acts, mode, origin, kind, key, (users, archiver), pause)| Step {
            acts,
            mode,
            origin,
            kind,
            key,
            users,
            archiver,
            pause,
        },
    )
}

fn a_program() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(a_step(), 1..40)
}

fn a_split() -> impl Strategy<Value = Vec<Batch>> {
    let ahead = proptest::option::of((prop_oneof![4 => Just(0_usize), 1 => 1..4_usize], 0..12_usize));
    let batch = (1..16_usize, ahead, prop::bool::weighted(0.1), prop::bool::weighted(0.15));
    let batch =
        batch.prop_map(|(size, ahead, restarts_ahead, restarts)| Batch { size, ahead, restarts_ahead, restarts });
    proptest::collection::vec(batch, 1..8)
}

/// Returns the commands of the entry at `index` that appoint an archiver. Which one is the present archiver depends on
/// which of the entries that `appointed` one have failed, so the entry has a command for each.
fn appointments((node, is_right): (Option<u64>, bool), appointed: &mut Vec<u64>, index: u64) -> Vec<Command> {
    let expected = if is_right { appointed.clone() } else { vec![index] };
    appointed.push(index);
    let node = node.map(NodeId);
    expected.into_iter().map(|expected| ControlCommand::Appoint(Appointment { node, expected }).into()).collect()
}

/// A machine under test.
struct Node<F: Fixture> {
    fixture: F,
    applier: Option<Applier<F::Machine>>,
}

impl<F: Fixture> Node<F> {
    fn new() -> Self {
        let (fixture, machine) = F::new();
        Self { fixture, applier: Some(Applier::new(machine, FORMAT_LEVEL).unwrap()) }
    }

    fn applier(&mut self) -> &mut Applier<F::Machine> {
        self.applier.as_mut().unwrap()
    }

    fn restart(&mut self) {
        let machine = self.fixture.restart(self.applier.take().unwrap().into_machine());
        self.applier = Some(Applier::new(machine, FORMAT_LEVEL).unwrap());
    }

    fn apply(&mut self, entries: &[Entry]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        while outcomes.len() < entries.len() {
            self.applier().apply_batch(&entries[outcomes.len()..], &mut outcomes).unwrap();
        }
        outcomes
    }

    fn apply_in(&mut self, mut entries: &[Entry], split: &[Batch]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for Batch { size, ahead, restarts_ahead, restarts } in split.iter().cycle() {
            if let Some((skip, count)) = ahead {
                let ahead: Vec<_> = entries.iter().skip(*skip).take(*count).cloned().collect();
                self.applier().prefetch(&ahead);
            }
            if *restarts_ahead {
                self.restart();
            }
            let (batch, rest) = entries.split_at(entries.len().min(*size));
            outcomes.extend(self.apply(batch));
            if *restarts {
                self.restart();
            }
            entries = rest;
            if rest.is_empty() {
                return outcomes;
            }
        }
        outcomes
    }

    /// Everything in which machines must agree.
    fn state(&mut self) -> (AppliedRow, String) {
        let row = self.applier().row().clone();
        let Self { fixture, applier } = self;
        (row, fixture.contents(applier.as_mut().unwrap().machine_mut()))
    }

    /// Returns the entries of a program, the setup and the sessions first.
    fn entries(&self, program: &[Step]) -> Vec<Entry> {
        let setup = self.fixture.setup();
        let first_session = setup.len() as u64 + 1;
        let proposals = setup.into_iter().map(|command| Proposal::new(None, vec![command]));
        let sessions = (0..SESSIONS).map(|_| Proposal::new(None, vec![ControlCommand::OpenSession.into()]));
        let first = proposals.chain(sessions).map(|proposal| (Kind::Proposal, 0, proposal));
        // The first step is the entry at this index.
        let first_step = first_session + SESSIONS;
        let mut appointed = vec![0];
        let steps = (first_step..).zip(program).map(|(index, step)| {
            let (session, sequence, floor) = step.origin;
            let session = SessionId(first_session + session - 1);
            let origin = (step.origin.0 > 0).then_some(Origin { session, sequence, floor });
            let commands = match step.kind {
                Kind::Tick => vec![ControlCommand::Tick.into()],
                kind => {
                    let raise = (kind == Kind::Raise).then(|| ControlCommand::Raise(FORMAT_LEVEL).into());
                    let user = |command: &UserCommand| {
                        (kind == Kind::Users).then(|| ControlCommand::from(command.clone()).into())
                    };
                    let acts = step.acts.iter().map(|act| self.fixture.command(*act));
                    let appoint = (kind == Kind::Appoint).then(|| appointments(step.archiver, &mut appointed, index));
                    let before = raise.into_iter().chain(user(&step.users.0)).chain(appoint.into_iter().flatten());
                    before.chain(acts).chain(user(&step.users.1)).collect()
                }
            };
            let proposal = Proposal { mode: step.mode, ..Proposal::new(origin, commands) };
            let is_plain = matches!(step.kind, Kind::Proposal | Kind::Rejected);
            let key = step.key.filter(|_| is_plain).map(|(key, hash)| RequestKey::new(vec![key], [hash; 32]).unwrap());
            (step.kind, step.pause, key.into_iter().fold(proposal, Proposal::with_key))
        });
        let mut now = START;
        let entry = |(index, (kind, pause, proposal)): (u64, (Kind, u64, Proposal))| {
            now += pause * SECOND;
            let (stamp, bytes) = (Stamp { now, seed: index }, encode_proposal(&proposal).unwrap());
            let payload = match kind {
                Kind::Proposal | Kind::Tick | Kind::Raise | Kind::Users | Kind::Appoint => {
                    Payload::Proposal(stamp, bytes)
                }
                Kind::Rejected => Payload::Rejected(stamp, bytes),
                Kind::Blank => Payload::Blank,
            };
            Entry { log_id: LogId { term: 1, node: NodeId(1), index }, payload }
        };
        (1..).zip(first.chain(steps)).map(entry).collect()
    }
}

/// Outcomes and state are those of entries that were applied one by one, wherever batches end, whatever ran ahead, and
/// whenever the machine restarts.
pub fn nothing_depends_on_where_batches_end<F: Fixture>() {
    let run = |(program, split): (Vec<Step>, Vec<Batch>)| {
        let (mut one_by_one, mut node) = (Node::<F>::new(), Node::<F>::new());
        let entries = node.entries(&program);
        let expected: Vec<_> = entries.iter().flat_map(|entry| one_by_one.apply(std::slice::from_ref(entry))).collect();
        let outcomes = node.apply_in(&entries, &split);
        for (entry, (outcome, expected)) in entries.iter().zip(outcomes.iter().zip(&expected)) {
            prop_assert_eq!(outcome, expected, "{:?}", entry);
        }
        prop_assert_eq!(node.state(), one_by_one.state());
        node.restart();
        prop_assert_eq!(node.state(), one_by_one.state());
        Ok(())
    };
    TestRunner::new(Config::with_cases(CASES)).run(&(a_program(), a_split()), run).unwrap();
}

/// A fault keeps the entries that were committed before it, and undoes all others. If the others are applied again,
/// also after a restart, the outcomes and the state are those of a run without a fault.
pub fn a_fault_is_never_an_outcome<F: Fixture>() {
    let run = |(program, split, room, restarts): (Vec<Step>, Vec<Batch>, u64, bool)| {
        let (mut healthy, mut node) = (Node::<F>::new(), Node::<F>::new());
        let entries = node.entries(&program);
        let expected = healthy.apply(&entries);
        let mut outcomes = Vec::new();
        node.set_room(Some(room));
        let fault = loop {
            let left = &entries[outcomes.len()..];
            let Batch { size, ahead, .. } = &split[outcomes.len() % split.len()];
            if let Some((skip, count)) = ahead {
                let ahead: Vec<_> = left.iter().skip(*skip).take(*count).cloned().collect();
                node.applier().prefetch(&ahead);
            }
            let size = left.len().min(*size);
            match node.applier().apply_batch(&left[..size], &mut outcomes) {
                _ if outcomes.len() == entries.len() => break None,
                Ok(()) => {}
                Err(fault) => break Some(fault),
            }
        };
        let is_full = fault.as_ref().is_none_or(|fault| matches!(fault, StoreFault::Full(_)));
        prop_assert!(is_full, "{:?}", fault);
        node.set_room(None);
        if restarts {
            node.restart();
        }
        prop_assert_eq!(node.applier().applied().index(), outcomes.len() as u64);
        let left = entries[outcomes.len()..].to_vec();
        outcomes.extend(node.apply(&left));
        prop_assert_eq!(outcomes, expected);
        prop_assert_eq!(node.state(), healthy.state());
        Ok(())
    };
    let strategy = (a_program(), a_split(), 0..120_u64, any::<bool>());
    TestRunner::new(Config::with_cases(CASES)).run(&strategy, run).unwrap();
}

impl<F: Fixture> Node<F> {
    fn set_room(&mut self, changes: Option<u64>) {
        let Self { fixture, applier } = self;
        fixture.set_room(applier.as_mut().unwrap().machine_mut(), changes);
    }
}
