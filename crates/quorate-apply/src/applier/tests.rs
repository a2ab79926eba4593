//! The archiver: which appointments change it, and that it survives what the data survive.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use quorate_model::codec::encode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{
    Appointment, Archiver, Command, ControlCommand, ControlReply, Entry, Failure, ItemsCommand, LogId, Mode, NodeId,
    Payload, Proposal, Results, Stamp, StoreIdentity,
};

use super::Applier;
use crate::memory::Memory;

fn appoint(node: Option<u64>, expected: u64) -> Command {
    ControlCommand::Appoint(Appointment { node: node.map(NodeId), expected }).into()
}

fn archiver(node: u64, token: u64) -> Option<Archiver> {
    Some(Archiver { node: NodeId(node), token })
}

struct Node(Applier<Memory>);

impl Node {
    fn new() -> Self {
        Self(Applier::new(Memory::new(StoreIdentity::default()), FORMAT_LEVEL).unwrap())
    }

    /// Starts again with the bytes that its machine was kept in.
    fn restart(&mut self) {
        let bytes = self.0.machine().encode().unwrap();
        self.0 = Applier::new(Memory::decode(&bytes).unwrap(), FORMAT_LEVEL).unwrap();
    }

    fn apply(&mut self, mode: Mode, commands: Vec<Command>) -> Result<Results, Failure> {
        let index = self.0.applied().index() + 1;
        let bytes = encode_proposal(&Proposal { mode, ..Proposal::new(None, commands) }).unwrap();
        let payload = Payload::Proposal(Stamp { now: 1, seed: 0 }, bytes);
        let mut outcomes = Vec::new();
        let entry = Entry { log_id: LogId { term: 1, node: NodeId(1), index }, payload };
        self.0.apply_batch(&[entry], &mut outcomes).unwrap();
        outcomes.remove(0).map(|reply| reply.results)
    }

    fn reply(&mut self, command: Command) -> ControlReply {
        let results = self.apply(Mode::Atomic, vec![command]).unwrap();
        [ControlReply::Done, ControlReply::Archiver(self.0.archiver())]
            .into_iter()
            .find(|reply| results.as_slice() == [(*reply).into()])
            .unwrap()
    }
}

#[test]
fn an_appointment_replaces_only_the_archiver_that_it_expects() {
    let mut node = Node::new();
    assert_eq!(node.0.archiver(), None);
    assert_eq!(node.reply(appoint(Some(7), 1)), ControlReply::Archiver(None), "there is none");
    assert_eq!(node.reply(appoint(Some(7), 0)), ControlReply::Done);
    assert_eq!(node.0.archiver(), archiver(7, 2), "the token is the index of the entry");
    for expected in [0, 1, 3] {
        assert_eq!(node.reply(appoint(Some(8), expected)), ControlReply::Archiver(archiver(7, 2)));
    }
    assert_eq!(node.reply(appoint(Some(7), 2)), ControlReply::Done);
    assert_eq!(node.0.archiver(), archiver(7, 6), "the same node under another token");
    assert_eq!(node.reply(appoint(None, 6)), ControlReply::Done);
    assert_eq!(node.0.archiver(), None);
    assert_eq!(node.reply(appoint(None, 6)), ControlReply::Archiver(None));
}

#[test]
fn an_entry_that_fails_appoints_nobody() {
    let mut node = Node::new();
    let failing = || vec![appoint(Some(7), 0), ItemsCommand::Abort.into()];
    node.apply(Mode::Atomic, failing()).unwrap_err();
    assert_eq!(node.0.archiver(), None);
    node.apply(Mode::Pipeline, failing()).unwrap();
    assert_eq!(node.0.archiver(), archiver(7, 2), "each command of a pipeline is for itself");
    // The second command sees what the first one did.
    node.apply(Mode::Atomic, vec![appoint(Some(8), 2), appoint(Some(9), 2)]).unwrap();
    assert_eq!(node.0.archiver(), archiver(8, 3));
    node.apply(Mode::Atomic, vec![appoint(Some(9), 3), appoint(None, 4)]).unwrap();
    assert_eq!(node.0.archiver(), None);
}

proptest! {
    /// Tokens rise, and an archiver lasts until an appointment that expects it.
    #[test]
    fn the_archiver_is_the_last_one_that_was_rightly_appointed(
        steps in prop::collection::vec((proptest::option::of(1..4_u64), any::<bool>(), any::<bool>()), 1..30),
    ) {
        let (mut node, mut expected, mut highest) = (Node::new(), None, 0);
        for (index, (appointed, is_right, restarts)) in (1..).zip(steps) {
            let present = Archiver::token_of(expected);
            let outcome_hash = node.0.outcome_hash();
            node.reply(appoint(appointed, if is_right { present } else { present + 1 }));
            prop_assert_ne!(node.0.outcome_hash(), outcome_hash);
            if is_right {
                expected = appointed.and_then(|id| archiver(id, index));
            }
            if restarts {
                node.restart();
            }
            prop_assert_eq!(node.0.archiver(), expected);
            let token = Archiver::token_of(expected);
            prop_assert!(token == 0 || token >= highest);
            highest = highest.max(token);
        }
    }
}
