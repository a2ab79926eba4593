//! Keys: the bytes of what joined at level 6 never change.

use quorate_model::keys::{
    Collection, Condition, ElementCommand, Expiry, ExpiryCondition, HashCommand, KEY_CHECKS_LEVEL, KeyCommand,
    KeysCommand, RELATIVE_LEVEL, SetCommand, SpaceCommand, StringCommand, Version,
};

use super::*;

fn key() -> Bytes {
    Bytes::from_static(b"key")
}

/// Each command that may have an expiry that counts from the stamp of its entry.
fn relative_expiries() -> [KeysCommand; 8] {
    let (of, fields, at, relative) = (Collection::Set, vec![key()], Some(300), true);
    let (pairs, expiry) = (vec![(key(), Bytes::new())], Expiry::In(300));
    let (always, condition) = (Condition::Always, ExpiryCondition::Earlier);
    [
        KeyCommand::Expire { key: key(), at, condition, relative }.into(),
        StringCommand::GetExpire { key: key(), at, relative }.into(),
        ElementCommand::Expire { of, key: key(), fields: fields.clone(), at, condition, relative }.into(),
        HashCommand::GetExpire { key: key(), fields: fields.clone(), at, relative }.into(),
        StringCommand::Set { key: key(), value: key(), condition: always.clone(), expiry, get: false }.into(),
        StringCommand::SetAll { strings: pairs.clone(), condition: always.clone(), expiry }.into(),
        HashCommand::Set { key: key(), fields: pairs, condition: always, expiry }.into(),
        SetCommand::Add { key: key(), members: fields, expiry }.into(),
    ]
}

fn golden_check() -> Proposal {
    let expect = KeyCommand::Expect { key: key(), version: Some(Version(300)) };
    let read = Read::Keys(SpaceCommand { space: 3, command: KeysCommand::Key(expect) });
    let check = ReadCheck { read, stamp: Stamp::default(), answer: 1 << 100 };
    let pipeline = Proposal { mode: Mode::Pipeline, ..golden_proposal_of(vec![]) };
    pipeline.with_read_checks(vec![check])
}

#[test]
fn their_bytes_never_change() {
    let check = golden_check();
    assert_eq!((check.level, check.level_needed()), (KEY_CHECKS_LEVEL, KEY_CHECKS_LEVEL));
    golden("proposal-key-check-6.hex", &codec::encode_proposal(&check).unwrap());
    let commands = relative_expiries().map(|command| Command::Keys(SpaceCommand { space: 0, command }));
    assert!(commands.iter().all(|command| command.level() == RELATIVE_LEVEL));
    let expiries = golden_proposal_of(commands.into());
    golden("proposal-key-expiries-6.hex", &codec::encode_proposal(&expiries).unwrap());
}
