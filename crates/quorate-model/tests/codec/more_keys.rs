//! Keys: the bytes of commands and replies that joined level 5 after the first ones never change.

use std::ops::Bound;

use quorate_model::keys::{
    Aggregate, BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Condition, End, Expiry,
    HashCommand, KEYS_LEVEL, KeyCommand, KeySize, KeysCommand, KeysReply, Kind, ListCommand, Overflow, Page, Range,
    SetOperation, SortedSetCommand, SpaceCommand, StringCommand,
};

use super::*;

fn key() -> Bytes {
    Bytes::from_static(b"key")
}

fn bits() -> [BitCommand; 4] {
    let integer = BitInteger { signed: true, bits: 5 };
    let actions = [BitAction::Get, BitAction::Set(-1, Overflow::Wrap), BitAction::Add(0, Overflow::Fail)];
    let steps = actions.map(|action| BitStep { integer, offset: 300, action }).into();
    let range = BitRange { start: -2, end: Some(0), unit: BitUnit::Bit };
    let all = BitRange { start: 0, end: None, unit: BitUnit::Byte };
    [
        BitCommand::Fields { key: key(), steps },
        BitCommand::Count { key: key(), range },
        BitCommand::Find { key: key(), one: true, range: all },
        BitCommand::Combine { operation: BitOperation::Not, keys: vec![key()], store: Bytes::new() },
    ]
}

fn sorted_sets() -> [SortedSetCommand; 5] {
    let range = Range::Member(Bound::Included(key()), Bound::Unbounded);
    [
        SortedSetCommand::PopFirst { keys: vec![key(), Bytes::new()], count: 2, reverse: true },
        SortedSetCommand::Scan { key: key(), from: Bytes::new(), limit: 10 },
        SortedSetCommand::Draw { key: key(), count: 2, repeats: true, seed: 300 },
        SortedSetCommand::StoreRange { key: key(), to: key(), range, reverse: true, offset: 1, limit: 2 },
        SortedSetCommand::Combine {
            operation: SetOperation::Intersection,
            sources: vec![(key(), 0.0), (Bytes::new(), -0.5)],
            aggregate: Aggregate::Highest,
            store: Some(key()),
        },
    ]
}

fn golden_commands() -> Proposal {
    let (fields, at) = (vec![key(), Bytes::new()], Some(0));
    let strings = vec![(key(), Bytes::new())];
    let keys =
        [KeyCommand::CountAll, KeyCommand::Flush, KeyCommand::Draw { seed: 300 }, KeyCommand::Measure { key: key() }];
    let values = [
        StringCommand::SetAll { strings, condition: Condition::Missing, expiry: Expiry::Keep },
        StringCommand::GetExpire { key: key(), at, relative: false },
    ];
    let hashes = [
        HashCommand::GetExpire { key: key(), fields: fields.clone(), at: None, relative: false },
        HashCommand::Take { key: key(), fields },
    ];
    let lists = [
        ListCommand::PopFirst { keys: vec![key()], count: 1, end: End::Right },
        ListCommand::Find { key: key(), value: Bytes::new(), from: End::Right, skip: 1, limit: 2, within: 3 },
    ];
    let commands = keys.map(KeysCommand::Key).into_iter();
    let commands = commands.chain(values.map(KeysCommand::String)).chain(bits().map(KeysCommand::Bits));
    let commands = commands.chain(hashes.map(KeysCommand::Hash)).chain(sorted_sets().map(KeysCommand::SortedSet));
    let commands = commands.chain(lists.map(KeysCommand::List));
    golden_proposal_of(commands.map(|command| Command::Keys(SpaceCommand { space: 0, command })).collect())
}

fn golden_replies() -> Outcome {
    let scored = vec![(key(), -0.5), (Bytes::new(), 0.0)];
    let replies = [
        KeysReply::Integers(vec![Some(-3), None, Some(0)]),
        KeysReply::MembersOf(key(), vec![key(), Bytes::new()]),
        KeysReply::Indexes(vec![0, 300]),
        KeysReply::ScoredOf(key(), scored.clone()),
        KeysReply::ScoredPage(Page { rows: scored, next: Some(Bytes::new()) }),
        KeysReply::Size(KeySize { kind: Kind::List, count: 2, bytes: 300 }),
    ];
    Ok(Reply::of(replies.into_iter().map(CommandResult::Keys).collect::<Vec<_>>()))
}

#[test]
fn their_bytes_never_change() {
    let proposal = golden_commands();
    assert_eq!(proposal.level_needed(), KEYS_LEVEL);
    golden("proposal-keys-more-5.hex", &codec::encode_proposal(&proposal).unwrap());
    golden("reply-keys-more-5.hex", &codec::encode_outcome(&golden_replies()));
}
