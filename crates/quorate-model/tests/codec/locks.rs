//! Locks: any command, read and reply comes back, and the bytes of level 6 never change.

use std::time::Duration;

use proptest::option::of;
use quorate_model::keys::{Page, Span};
use quorate_model::locks::{Claim, LOCKS_LEVEL, Lease, LockInfo, LocksCommand, LocksReply, Token, Wait, limits};

use super::*;

fn any_token() -> impl Strategy<Value = Token> {
    any::<u64>().prop_map(Token)
}

pub(super) fn any_locks_command() -> impl Strategy<Value = LocksCommand> {
    let acquire = (any_bytes(), any_bytes(), any::<u64>(), any::<u64>(), of(any::<u64>()), any_bytes());
    let names = (any_bytes(), of(any_bytes())).prop_map(|(from, to)| Span { from, to });
    prop_oneof![
        acquire.prop_map(|(name, holder, ttl, permits, wait, note)| LocksCommand::Acquire {
            name,
            holder,
            ttl,
            permits,
            wait,
            note
        }),
        (any_bytes(), any_bytes(), any_token(), any::<u64>())
            .prop_map(|(name, holder, token, ttl)| LocksCommand::Renew { name, holder, token, ttl }),
        (any_bytes(), any_bytes()).prop_map(|(name, holder)| LocksCommand::Release { name, holder }),
        (any_bytes(), any_bytes()).prop_map(|(name, holder)| LocksCommand::Withdraw { name, holder }),
        (any_bytes(), of(any_token())).prop_map(|(name, token)| LocksCommand::Force { name, token }),
        (any_bytes(), any_token()).prop_map(|(name, token)| LocksCommand::Expect { name, token }),
        any_bytes().prop_map(|name| LocksCommand::Inspect { name }),
        (names, any::<u64>()).prop_map(|(names, limit)| LocksCommand::List { names, limit }),
    ]
}

fn any_lock() -> impl Strategy<Value = LockInfo> {
    let claim = || {
        (any_bytes(), any_token(), any::<u64>(), any_bytes()).prop_map(|(holder, token, left, note)| Claim {
            holder,
            token,
            left,
            note,
        })
    };
    (any_bytes(), any::<u64>(), vec(claim(), 0..3), vec(claim(), 0..3))
        .prop_map(|(name, permits, holders, waiters)| LockInfo { name, permits, holders, waiters })
}

pub(super) fn any_reply() -> impl Strategy<Value = LocksReply> {
    let lease = || (any_token(), any::<u64>()).prop_map(|(token, left)| Lease { token, left });
    prop_oneof![
        lease().prop_map(LocksReply::Held),
        any::<(u64, u64)>().prop_map(|(ahead, left)| LocksReply::Waiting(Wait { ahead, left })),
        lease().prop_map(LocksReply::Busy),
        lease().prop_map(LocksReply::Full),
        any::<u64>().prop_map(LocksReply::OtherPermits),
        lease().prop_map(LocksReply::Released),
        Just(LocksReply::Withdrawn),
        vec(any_token(), 0..3).prop_map(LocksReply::Forced),
        Just(LocksReply::Missing),
        any_lock().prop_map(LocksReply::Lock),
        (vec(any_lock(), 0..3), of(any_bytes())).prop_map(|(rows, next)| LocksReply::Locks(Page { rows, next })),
    ]
}

proptest! {
    #[test]
    fn a_read_comes_back(command in any_locks_command()) {
        let read = Read::Locks(command);
        prop_assert_eq!(codec::decode_read(&codec::encode_read(&read)).unwrap(), read);
    }

    #[test]
    fn an_answer_comes_back(reply in any_reply()) {
        let bytes = codec::encode_locks_reply(&reply);
        prop_assert_eq!(bytes.len(), codec::locks_reply_len(&reply));
        prop_assert_eq!(codec::decode_locks_reply(&bytes).unwrap(), reply);
    }
}

fn acquire(name: usize, ttl: Duration, permits: u64) -> LocksCommand {
    let (holder, ttl, note) = ("ann".into(), u64::try_from(ttl.as_nanos()).unwrap(), Bytes::new());
    LocksCommand::Acquire { name: vec![b'n'; name].into(), holder, ttl, permits, wait: None, note }
}

#[test]
fn a_command_that_exceeds_a_limit_is_refused() {
    let check = |command: LocksCommand| Proposal::new(None, vec![command.into()]).check_limits().map_err(|f| f.kind);
    let fits = acquire(limits::NAME_BYTES_MAX, limits::TTL_MIN, limits::PERMITS_MAX);
    assert_eq!(check(fits), Ok(()));
    for (command, kind) in [
        (acquire(limits::NAME_BYTES_MAX + 1, limits::TTL_MIN, 1), FailureKind::TooBig),
        (acquire(0, limits::TTL_MIN, 1), FailureKind::InvalidValue),
        (acquire(1, limits::TTL_MIN - Duration::from_nanos(1), 1), FailureKind::InvalidValue),
        (acquire(1, limits::TTL_MAX + Duration::from_nanos(1), 1), FailureKind::InvalidValue),
        (acquire(1, limits::TTL_MAX, 0), FailureKind::InvalidValue),
        (acquire(1, limits::TTL_MAX, limits::PERMITS_MAX + 1), FailureKind::InvalidValue),
        (LocksCommand::List { names: Span::ALL, limit: limits::LIST_MAX + 1 }, FailureKind::InvalidValue),
        (LocksCommand::Release { name: "n".into(), holder: Bytes::new() }, FailureKind::InvalidValue),
    ] {
        assert_eq!(check(command.clone()), Err(kind), "{command:?}");
    }
}

#[test]
fn a_command_that_may_write_is_no_read() {
    assert!(Read::Locks(LocksCommand::Inspect { name: "n".into() }).check_limits().is_ok());
    let refused = Read::Locks(acquire(1, limits::TTL_MIN, 1)).check_limits().unwrap_err();
    assert_eq!(refused.kind, FailureKind::Refused);
}

fn golden_commands() -> Proposal {
    let (name, holder) = (Bytes::from_static(b"jobs"), Bytes::from_static(b"ann"));
    let commands = [
        LocksCommand::Acquire {
            name: name.clone(),
            holder: holder.clone(),
            ttl: 1_000_000_000,
            permits: 3,
            wait: Some(500_000_000),
            note: "node 7".into(),
        },
        LocksCommand::Renew { name: name.clone(), holder: holder.clone(), token: Token(300), ttl: 1_000_000_000 },
        LocksCommand::Release { name: name.clone(), holder: holder.clone() },
        LocksCommand::Withdraw { name: name.clone(), holder },
        LocksCommand::Force { name: name.clone(), token: None },
        LocksCommand::Force { name: name.clone(), token: Some(Token(300)) },
        LocksCommand::Expect { name: name.clone(), token: Token(300) },
        LocksCommand::Inspect { name: name.clone() },
        LocksCommand::List { names: Span { from: name, to: None }, limit: 10 },
    ];
    golden_proposal_of(commands.map(Command::Locks).to_vec())
}

fn golden_replies() -> Outcome {
    let lease = Lease { token: Token(300), left: 1_000 };
    let claim = Claim { holder: "ann".into(), token: Token(300), left: 1_000, note: "node 7".into() };
    let waiter = Claim { holder: "bob".into(), token: Token(301), ..Claim::default() };
    let lock = LockInfo { name: "jobs".into(), permits: 1, holders: vec![claim], waiters: vec![waiter] };
    let replies = [
        LocksReply::Held(lease),
        LocksReply::Waiting(Wait { ahead: 2, left: 500 }),
        LocksReply::Busy(lease),
        LocksReply::Full(lease),
        LocksReply::OtherPermits(3),
        LocksReply::Released(lease),
        LocksReply::Withdrawn,
        LocksReply::Forced(vec![Token(300), Token(0)]),
        LocksReply::Missing,
        LocksReply::Lock(lock.clone()),
        LocksReply::Locks(Page { rows: vec![lock], next: Some("other".into()) }),
    ];
    Ok(Reply::of(replies.into_iter().map(CommandResult::Locks).collect::<Vec<_>>()))
}

#[test]
fn golden_files_of_locks() {
    let proposal = golden_commands();
    assert_eq!(proposal.level_needed(), LOCKS_LEVEL);
    golden("proposal-locks-6.hex", &codec::encode_proposal(&proposal).unwrap());
    golden("reply-locks-6.hex", &codec::encode_outcome(&golden_replies()));
}
