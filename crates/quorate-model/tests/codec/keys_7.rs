//! Keys: the bytes of what joined at level 7 never change.

use quorate_model::keys::{
    ExpiryCondition, KEY_CHECKS_LEVEL, KeysCommand, MEMBER_EXPIRY_LEVEL, SortedSetCommand, SpaceCommand,
};

use super::*;

fn any_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..6).prop_map(Bytes::from)
}

pub fn any_command() -> BoxedStrategy<SortedSetCommand> {
    use ExpiryCondition::*;
    let condition = proptest::sample::select(vec![Always, Missing, Exists, Later, Earlier]);
    let expiry = (proptest::option::of(any::<u64>()), condition, any::<bool>());
    (any_bytes(), vec(any_bytes(), 0..4), proptest::option::of(expiry))
        .prop_map(|(key, members, expiry)| match expiry {
            Some((at, condition, relative)) => SortedSetCommand::Expire { key, members, at, condition, relative },
            None => SortedSetCommand::Describe { key, members },
        })
        .boxed()
}

fn commands() -> [SpaceCommand; 3] {
    let (key, members) = (Bytes::from_static(b"key"), vec![Bytes::from_static(b"m"), Bytes::new()]);
    let expire = |at, condition, relative| SortedSetCommand::Expire {
        key: key.clone(),
        members: members.clone(),
        at,
        condition,
        relative,
    };
    let commands = [
        expire(Some(300), ExpiryCondition::Later, true),
        expire(None, ExpiryCondition::Always, false),
        SortedSetCommand::Describe { key: key.clone(), members: members.clone() },
    ];
    commands.map(|command| SpaceCommand { space: 1, command: KeysCommand::SortedSet(command) })
}

#[test]
fn their_bytes_never_change() {
    let commands = commands().map(Command::Keys);
    assert!(commands.iter().all(|command| command.level() == MEMBER_EXPIRY_LEVEL));
    golden("proposal-key-members-7.hex", &codec::encode_proposal(&golden_proposal_of(commands.into())).unwrap());
}

/// A node of level 6 understands checks of other reads only.
#[test]
fn a_read_of_the_expiries_needs_their_level_alone_and_as_a_check() {
    let [.., describe] = commands();
    let scores = SortedSetCommand::Scores { key: Bytes::new(), members: vec![] };
    let scores = SpaceCommand { space: 0, command: KeysCommand::SortedSet(scores) };
    for (command, level) in [(describe, MEMBER_EXPIRY_LEVEL), (scores, KEY_CHECKS_LEVEL)] {
        let read = Read::Keys(command);
        assert_eq!(read.level().max(KEY_CHECKS_LEVEL), level);
        let check = ReadCheck { read, stamp: Stamp::default(), answer: 1 };
        assert_eq!(check.level(), level);
    }
}
