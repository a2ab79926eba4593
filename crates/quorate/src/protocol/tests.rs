//! The messages: what goes in comes out, and no bytes make a decoder panic.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use bytes::Bytes;
use proptest::prelude::*;
use quorate_model::{Epoch, Failure, FailureKind as Kind, GroupId, Position, Reply, Statement, Value};
use quorate_sql::query::Rows;

use super::*;
use crate::client::{Attempt, Limits, NotDone, Read};
use crate::error::Error;
use crate::level::Level;

const POSITION: Position = Position { epoch: Epoch(2), group: GroupId(1), index: 77 };

fn errors() -> Vec<Error> {
    let text = || "text".to_owned();
    vec![
        Error::Failed(Failure { sqlite_code: 1555, ..Failure::new(Kind::Constraint, "twice").at(3) }),
        Error::Overloaded(text()),
        Error::Unavailable(text()),
        Error::TimedOut(text()),
        Error::TooLarge(text()),
        Error::SnapshotTooOld,
        Error::Forbidden(text()),
    ]
}

#[test]
fn errors_arrive_as_they_were() {
    for error in errors() {
        assert_eq!(Error::from(Refusal::from(&error)), error);
    }
}

#[test]
fn answers_to_proposals_arrive_as_they_were() {
    let text = || "text".to_owned();
    let mut results = vec![
        Ok((POSITION, Ok(Reply::default()))),
        Ok((POSITION, Err(Failure::new(Kind::Sql, "no such table")))),
        Err(Attempt::NotDone(NotDone::Overloaded(text()))),
        Err(Attempt::NotDone(NotDone::NoLeader(text()))),
        Err(Attempt::InDoubt(text())),
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
fn reads_arrive_as_they_were() {
    for level in [Level::Local, Level::AtLeast(POSITION), Level::Linearizable] {
        let params = vec![Value::Null, 1.into(), 2.5.into(), "x".into(), vec![0, 255].into()];
        let statement = Statement { sql: "SELECT ?".to_owned(), params, names: vec![":a".to_owned()] };
        let read = Read { statement, level, limits: Limits { rows: 3, bytes: 4 } };
        let received: Query = decode(encode(&Query::new(read.clone(), 5))).unwrap();
        assert_eq!((received.millis, received.read().unwrap()), (5, read));
    }
}

#[test]
fn rows_arrive_as_they_were() {
    let columns = || vec!["a".to_owned(), "b".to_owned()].into();
    let rows = Rows::new(columns(), vec![Value::Null, 1.into(), "x".into(), 2.5.into()]);
    for result in [Ok(rows), Ok(Rows::new(columns(), Vec::new())), Err(Error::SnapshotTooOld)] {
        let received: Answer = decode(encode(&Answer::from(result.clone()))).unwrap();
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
            let _ = query.read();
        }
        if let Ok(answer) = decode::<Answer>(bytes.clone()) {
            let _ = Result::<Rows, Error>::from(answer);
        }
        if let Ok(status) = decode::<StatusReply>(bytes.clone()) {
            let _ = crate::Status::from(status);
        }
        let _ = decode::<Execute>(bytes);
    }
}
