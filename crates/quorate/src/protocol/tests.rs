//! Tests of the messages: decoding returns what was encoded, and no bytes make a decoder panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use quorate_apply::waits::Woken;
use quorate_consensus::{Blocked, ClusterId, GroupStatus, MemberStatus, Standing};
use quorate_model::{
    Archiver, Epoch, Failure, FailureKind as Kind, GroupId, KeysReply, LogId, NodeId, Position, Read, Reply, Stamp,
    Statement, StoreFault, Topic, Value,
};
use quorate_sql::query::Rows;
use quorate_sql::store::Verification;

use super::archived::{ArchivedAsk, ArchivedTold};
use super::waits::{News, WaitAsk, WaitTold};
use super::*;
use crate::error::Error;
use crate::level::Level;
use crate::snapshot;
use crate::status::Status;
use crate::submitter::{Attempt, Limits, NotDone, ReadAnswer, ReadRequest};

const POSITION: Position = Position { epoch: Epoch(2), group: GroupId(1), index: 77 };

const LEVELS: [Level; 4] =
    [Level::Local, Level::AtLeast(POSITION), Level::Linearizable, Level::Bounded(Duration::from_micros(1_500_001))];

fn errors() -> Vec<Error> {
    let text = || "text".to_owned();
    vec![
        Error::Failed(Failure { sqlite_code: 1555, ..Failure::new(Kind::Constraint, "twice").at(3) }),
        Error::Overloaded(text().into()),
        Error::Unavailable(text().into()),
        Error::TimedOut(text().into()),
        Error::TooLarge(text().into()),
        Error::SnapshotEnded,
        Error::Forbidden(text().into()),
        Error::TransactionAborted(text().into()),
    ]
}

#[test]
fn errors_survive_the_wire() {
    for error in errors() {
        assert_eq!(Error::from(Refusal::from(&error)), error);
    }
}

#[test]
fn errors_without_a_wire_kind_keep_their_text() {
    let received = |error: Error| Error::from(Refusal::from(&error)).to_string();
    let unreadable = Error::Store(StoreFault::Io("a disk".to_owned()));
    assert_eq!(received(unreadable.clone()), unreadable.to_string());
    let unavailable = |why: &str| Error::Unavailable(why.into()).to_string();
    assert_eq!(received(Error::Removed("the node was removed".into())), unavailable("the node was removed"));
    let newer =
        "refused: a newer version sent an answer that this version can't read; install the version that the nodes run";
    let answers = [
        Result::<ReadAnswer, Error>::from(Answer { kind: None }).unwrap_err(),
        SnapshotItem { kind: None }.opened().unwrap_err(),
        SnapshotItem { kind: None }.piece().unwrap_err(),
    ];
    assert!(answers.iter().all(|answer| answer.to_string() == newer), "{answers:?}");
}

#[test]
fn answers_to_proposals_survive_the_wire() {
    let text = || "text".to_owned();
    let mut results = vec![
        Ok((POSITION, Ok(Reply::default()))),
        Ok((POSITION, Err(Failure::new(Kind::Sql, "no such table")))),
        Err(Attempt::NotDone(NotDone::Overloaded(text().into()))),
        Err(Attempt::NotDone(NotDone::NoLeader(text().into()))),
        Err(Attempt::InDoubt(text().into())),
    ];
    results.extend(errors().into_iter().map(|error| Err(Attempt::Refused(error))));
    for result in results {
        let sent = Executed::new(result.clone(), Some("a:1".to_owned()));
        let received: Executed = decode(encode(&sent)).unwrap();
        assert_eq!(received.leader, "a:1");
        assert_eq!(received.result(), result);
    }
}

#[test]
fn reads_survive_the_wire() {
    for level in LEVELS {
        let params = vec![Value::Null, 1.into(), 2.5.into(), "x".into(), vec![0, 255].into()];
        let statement = Statement { sql: "SELECT ?".into(), params, names: vec![":a".to_owned()] };
        let limits = Limits { rows: 3, bytes: 4, timeout: Duration::from_micros(5) };
        let read = ReadRequest { read: Read::Sql(statement.clone()), level, limits };
        let received: Query = decode(encode(&Query::new(read.clone(), 5))).unwrap();
        assert_eq!((received.millis, received.read().unwrap()), (5, read));
        for stamp in [None, Some(Stamp { now: 6, seed: u64::MAX })] {
            let query = snapshot::Query { statement: statement.clone(), limits, stamp };
            let received: Query = decode(encode(&Query::of_state(query.clone(), 5))).unwrap();
            assert_eq!((received.millis, received.state_query().unwrap()), (5, query));
        }
    }
}

#[test]
fn answers_survive_the_wire() {
    let columns = || vec!["a".to_owned(), "b".to_owned()].into();
    let rows = Rows::new(columns(), vec![Value::Null, 1.into(), "x".into(), 2.5.into()]);
    let none = Rows::new(columns(), Vec::new());
    let keys = ReadAnswer::Keys(KeysReply::Value("x".into()));
    for result in [Ok(ReadAnswer::Sql(rows)), Ok(ReadAnswer::Sql(none)), Ok(keys), Err(Error::SnapshotEnded)] {
        let received: Answer = decode(encode(&Answer::from(result.clone()))).unwrap();
        assert_eq!(Result::from(received), result);
    }
}

#[test]
fn items_of_snapshots_survive_the_wire() {
    for level in LEVELS {
        let received: OpenSnapshot = decode(encode(&OpenSnapshot::new(level, 5))).unwrap();
        assert_eq!((received.millis, received.level().unwrap()), (5, level));
    }
    for result in [Ok(POSITION), Err(Error::Overloaded("text".into()))] {
        let received: SnapshotItem = decode(encode(&SnapshotItem::from(result.clone()))).unwrap();
        assert_eq!(received.opened(), result);
    }
    let rows = Rows::new(vec!["a".to_owned()].into(), vec![1.into(), Value::Null]);
    for result in [Ok(Some(rows)), Ok(None), Err(Error::SnapshotEnded)] {
        let received: SnapshotItem = decode(encode(&SnapshotItem::from(result.clone()))).unwrap();
        assert_eq!(received.piece(), result);
    }
}

#[test]
fn hashes_survive_the_wire() {
    let hashes = BTreeMap::from([("t".to_owned(), 7_u128), ("u".to_owned(), u128::MAX)]);
    let sent = Verified::from(Some(Verification::Done(hashes.clone().into())));
    let Verified { kind: Some(VerifiedKind::Hashes(received)) } = decode(encode(&sent)).unwrap() else { panic!() };
    assert_eq!(received.by_table(), Some(hashes));
    let short = Hashes { tables: vec![TableHash { name: "t".to_owned(), hash: Bytes::from_static(b"short") }] };
    assert_eq!(short.by_table(), None);
}

#[test]
fn answers_about_the_archive_survive_the_wire() {
    for position in [None, Some(POSITION)] {
        let received: ArchivedAsk = decode(encode(&ArchivedAsk::new(position, Duration::from_millis(55)))).unwrap();
        assert_eq!((received.millis, received.position.map(Position::from)), (5, position));
    }
    for result in errors().into_iter().map(Err).chain([Ok(0), Ok(77)]) {
        let received: ArchivedTold = decode(encode(&ArchivedTold::from(result.clone()))).unwrap();
        assert_eq!(Result::from(received), result);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        if let Ok(executed) = decode::<Executed>(bytes.clone()) {
            let _ = executed.result();
        }
        if let Ok(query) = decode::<Query>(bytes.clone()) {
            let _ = query.clone().read();
            let _ = query.state_query();
        }
        if let Ok(answer) = decode::<Answer>(bytes.clone()) {
            let _ = Result::<ReadAnswer, Error>::from(answer);
        }
        if let Ok(open) = decode::<OpenSnapshot>(bytes.clone()) {
            let _ = open.level();
        }
        if let Ok(item) = decode::<SnapshotItem>(bytes.clone()) {
            let _ = (item.clone().opened(), item.piece());
        }
        if let Ok(status) = decode::<StatusReply>(bytes.clone()) {
            let _ = Status::from(status);
        }
        if let Ok(Verified { kind: Some(VerifiedKind::Hashes(hashes)) }) = decode(bytes.clone()) {
            let _ = hashes.by_table();
        }
        if let Ok(backup) = decode::<Backup>(bytes.clone()) {
            let _ = backup.level();
        }
        if let Ok(told) = decode::<WaitTold>(bytes.clone()) {
            let _ = told.news();
        }
        let _ = decode::<ArchivedAsk>(bytes.clone());
        if let Ok(told) = decode::<ArchivedTold>(bytes.clone()) {
            let _ = Result::<u64, Error>::from(told);
        }
        let _ = decode::<WaitAsk>(bytes.clone()).map(WaitAsk::request);
        let _ = decode::<Execute>(bytes);
    }
}

fn standing() -> Standing {
    let leader_silent_for = Some(Duration::from_millis(9));
    Standing { last_leader: Some(NodeId(6)), leader_silent_for, joined: true, votes: true }
}

/// A status with one member.
fn status() -> Status {
    let member = MemberStatus {
        id: NodeId(5),
        name: "a".to_owned(),
        addr: "h:1".to_owned(),
        voter: true,
        silent_for: Duration::from_millis(9),
        applied_index: 76,
        format_level: 1,
    };
    Status {
        cluster: ClusterId(0x0102),
        node: NodeId(5),
        name: "a".to_owned(),
        leader: Some(NodeId(6)),
        archiver: None,
        archive: None,
        term: 3,
        last_index: 79,
        committed_index: 78,
        applied: POSITION,
        durable_index: 70,
        format_level: 1,
        log_bytes: 4096,
        database_bytes: 8192,
        members: vec![member],
        fault: Some("no space".to_owned()),
        blocked: Some(Blocked { index: 7, why: "why".to_owned() }),
        stopped: Some("why".to_owned()),
        standing: standing(),
        groups: Vec::new(),
    }
}

/// The status of a group beside `main`, with a value in each field.
fn group() -> GroupStatus {
    GroupStatus {
        leader: Some(NodeId(5)),
        term: 4,
        last: Some(LogId { term: 4, node: NodeId(5), index: 12 }),
        committed: Some(LogId { term: 3, node: NodeId(6), index: 11 }),
        applied: Position { epoch: Epoch(2), group: GroupId(2), index: 10 },
        format_level: 3,
        voters: vec![NodeId(5), NodeId(6)],
        blocked: Some(Blocked { index: 11, why: "why".to_owned() }),
        stopped: Some("why".to_owned()),
    }
}

/// The status of a group of which the node knows next to nothing.
fn new_group() -> GroupStatus {
    GroupStatus {
        leader: None,
        term: 0,
        last: None,
        committed: None,
        applied: Position { epoch: Epoch(2), group: GroupId(3), index: 0 },
        format_level: 1,
        voters: Vec::new(),
        blocked: None,
        stopped: None,
    }
}

fn status_with_groups() -> Status {
    Status { groups: vec![group(), new_group()], ..status() }
}

fn status_with_archiver() -> Status {
    Status { archiver: Some(Archiver { node: NodeId(6), token: 75 }), ..status() }
}

/// One of each message, as version 1 encodes it.
fn samples() -> Vec<(&'static str, Bytes)> {
    let statement = Statement { sql: "SELECT :a".into(), params: vec![7.into()], names: vec![":a".to_owned()] };
    let read = |level| ReadRequest {
        read: Read::Sql(statement.clone()),
        level,
        limits: Limits { rows: 10, bytes: 1000, timeout: Duration::MAX },
    };
    let query = |level| encode(&Query::new(read(level), 30_000));
    let executed = |result, leader: Option<&str>| encode(&Executed::new(result, leader.map(str::to_owned)));
    let text = || "why".to_owned();
    let failed = Error::Failed(Failure { sqlite_code: 1, ..Failure::new(Kind::Sql, "no such table: t") });
    let rows = Rows::new(vec!["a".to_owned()].into(), vec![1.into(), Value::Null]);
    let hashes = BTreeMap::from([("t".to_owned(), 0x0102_u128), ("u".to_owned(), u128::MAX)]);
    let status = status();
    vec![
        ("execute", encode(&Execute { proposal: Bytes::from_static(b"proposal") })),
        ("executed-written", executed(Ok((POSITION, Ok(Reply::default()))), None)),
        ("executed-overloaded", executed(Err(Attempt::NotDone(NotDone::Overloaded(text().into()))), None)),
        ("executed-no-leader", executed(Err(Attempt::NotDone(NotDone::NoLeader(text().into()))), Some("h:1"))),
        ("executed-in-doubt", executed(Err(Attempt::InDoubt(text().into())), None)),
        ("executed-refused", executed(Err(Attempt::Refused(failed.clone())), None)),
        ("query-local", query(Level::Local)),
        ("query-at-least", query(Level::AtLeast(POSITION))),
        ("query-linearizable", query(Level::Linearizable)),
        ("answer-rows", encode(&Answer::from(Ok(ReadAnswer::Sql(rows.clone()))))),
        ("answer-refused", encode(&Answer::from(Err(failed.clone())))),
        ("answer-timed-out", encode(&Answer::from(Err(Error::TimedOut(text().into()))))),
        ("answer-keys", encode(&Answer::from(Ok(ReadAnswer::Keys(KeysReply::Count(300)))))),
        ("backup", encode(&Backup::new(Level::AtLeast(POSITION), 30_000))),
        ("outcomes", encode(&Outcomes { index: 77, millis: 1_000 })),
        ("outcomes-told", encode(&OutcomesTold { hash: Some(0x0123_4567_89ab_cdef) })),
        ("announced", encode(&Announced { names: vec!["slug/1".to_owned(), "collation german".to_owned()] })),
        ("verify", encode(&Verify { position: POSITION.into(), millis: 5_000 })),
        ("verified-hashes", encode(&Verified::from(Some(Verification::Done(hashes.into()))))),
        ("verified-not-yet", encode(&Verified::from(Some(Verification::Running)))),
        ("verified-unknown", encode(&Verified::from(None))),
        ("verified-failed", encode(&Verified::from(Some(Verification::Failed(text()))))),
        ("open-snapshot", encode(&OpenSnapshot::new(Level::AtLeast(POSITION), 30_000))),
        ("snapshot-opened", encode(&SnapshotItem::from(Ok(POSITION)))),
        ("snapshot-rows", encode(&SnapshotItem::from(Ok(Some(rows))))),
        ("snapshot-end", encode(&SnapshotItem::from(Ok(None)))),
        ("snapshot-refused", encode(&SnapshotItem::from(Err::<Position, _>(failed)))),
        ("wait-register", encode(&WaitAsk::register(7, GroupId(2), Topic(0x0102_0304_0506_0708)))),
        ("wait-leave", encode(&WaitAsk::leave(7, true))),
        ("wait-registered", encode(&WaitTold::new(7, News::Registered(Ok(()))))),
        ("wait-refused", encode(&WaitTold::new(7, News::Registered(Err(Error::Overloaded(text().into())))))),
        ("wait-woken", encode(&WaitTold::new(7, News::Woken(Woken::By(300))))),
        ("wait-replaced", encode(&WaitTold::new(7, News::Woken(Woken::Replaced)))),
        ("archived-ask", encode(&ArchivedAsk::new(Some(POSITION), Duration::from_secs(30)))),
        ("archived-ask-whether", encode(&ArchivedAsk::new(None, Duration::from_secs(30)))),
        ("archived-told", encode(&ArchivedTold::from(Ok(77)))),
        ("archived-refused", encode(&ArchivedTold::from(Err(Error::TimedOut(text().into()))))),
        ("status", encode(&StatusReply::from(status))),
        ("status-groups", encode(&StatusReply::from(status_with_groups()))),
        ("status-archiver", encode(&StatusReply::from(status_with_archiver()))),
    ]
}

#[test]
fn the_bytes_are_those_of_the_golden_file() {
    let hex = |bytes: &Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: String = samples().iter().map(|(name, bytes)| format!("{name} {}\n", hex(bytes))).collect();
    assert_eq!(lines, include_str!("../../tests/golden/client-methods-v1.txt"), "\n{lines}");
}

#[test]
fn a_status_survives_the_wire() {
    for status in [status(), status_with_groups(), status_with_archiver()] {
        let reply: StatusReply = decode(encode(&StatusReply::from(status.clone()))).unwrap();
        assert_eq!(Status::from(reply), status);
    }
}

/// The golden bytes of `status` are those of nodes from before there were groups beside `main`.
#[test]
fn a_status_without_a_list_of_groups_has_none() {
    let golden = include_str!("../../tests/golden/client-methods-v1.txt");
    let hex = golden.lines().find_map(|line| line.strip_prefix("status ")).unwrap();
    let bytes: Vec<u8> = hex.as_bytes().chunks(2).map(byte).collect();
    assert_eq!(Status::from(decode::<StatusReply>(bytes.into()).unwrap()), status());
}

fn byte(digits: &[u8]) -> u8 {
    u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
}
