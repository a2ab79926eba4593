//! Tests of the encodings of the appointment of an archiver, and of its reply.

use proptest::prelude::*;
use quorate_model::{
    ARCHIVER_LEVEL, Appointment, Archiver, Command, CommandResult, ControlCommand, ControlReply, DecodeError, NodeId,
    Reply, codec,
};

use super::{golden, golden_proposal_of};

pub fn any_appointment() -> impl Strategy<Value = Appointment> {
    let node = proptest::option::of(any::<u64>().prop_map(NodeId));
    let expected = prop_oneof![Just(0), any::<u64>()];
    (node, expected).prop_map(|(node, expected)| Appointment { node, expected })
}

pub fn any_reply() -> impl Strategy<Value = ControlReply> {
    let archiver = any::<(u64, u64)>().prop_map(|(node, token)| Archiver { node: NodeId(node), token });
    proptest::option::of(archiver).prop_map(ControlReply::Archiver)
}

#[test]
fn the_bytes_of_level_4_never_change() {
    let appointment = |node: Option<u64>, expected| Appointment { node: node.map(NodeId), expected };
    let appointments = [appointment(Some(1 << 63), 0), appointment(Some(2), 300), appointment(None, 301)];
    let commands = appointments.map(|appointment| Command::Control(ControlCommand::Appoint(appointment)));
    let proposal = golden_proposal_of(commands.into());
    assert_eq!(proposal.level, ARCHIVER_LEVEL);
    golden("proposal-archiver-4.hex", &codec::encode_proposal(&proposal).unwrap());
    let present = [Some(Archiver { node: NodeId(2), token: 300 }), None];
    let results: Vec<CommandResult> = present.map(|present| ControlReply::Archiver(present).into()).into();
    golden("reply-archiver-4.hex", &codec::encode_outcome(&Ok(Reply::of(results))));
}

#[test]
fn an_archiver_is_a_node() {
    // A reply with the archiver, if there is one: a node; a node and a token; a token.
    let reply = |archiver: &[u8]| {
        let field = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
        codec::decode_outcome(&field(1, &field(1, &field(1, &field(3, archiver)))).into())
    };
    assert!(reply(&[]).is_ok());
    assert!(reply(&[0x08, 2]).is_ok());
    assert!(reply(&[0x08, 2, 0x10, 3]).is_ok());
    assert_eq!(reply(&[0x10, 3]), Err(DecodeError::Unknown));
}
