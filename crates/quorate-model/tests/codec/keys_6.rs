//! Keys: the bytes of what joined at level 6 never change.

use quorate_model::keys::{KEY_CHECKS_LEVEL, KeyCommand, KeysCommand, SpaceCommand, Version};

use super::*;

fn golden_check() -> Proposal {
    let expect = KeyCommand::Expect { key: Bytes::from_static(b"key"), version: Some(Version(300)) };
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
}
