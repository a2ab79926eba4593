//! Tests of encodings: decoding returns what was encoded, no bytes make a decoder panic, and the bytes of level 1 never
//! change.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic, and reads its files"
)]

use std::path::PathBuf;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use quorate_model::codec;
use quorate_model::limits::{COMMANDS_MAX, FORMAT_LEVEL, PARAMETERS_MAX};
use quorate_model::{
    Bulk, Column, Command, CommandResult, ControlCommand, ControlReply, DecodeError, DryRunRecord, Failure,
    FailureKind, ItemsCommand, ItemsReply, Mode, Origin, Outcome, PackedRows, Param, Payload, Proposal, Read,
    ReadCheck, Reply, RowPacker, SessionId, SqlCommand, SqlReply, Stamp, Statement, StatementResult, Step, Value,
};

#[path = "codec/archiver.rs"]
mod archiver;
#[path = "codec/events.rs"]
mod events;
#[path = "codec/keys.rs"]
mod keys;
#[path = "codec/keys_6.rs"]
mod keys_6;
#[path = "codec/keys_7.rs"]
mod keys_7;
#[path = "codec/locks.rs"]
mod locks;
#[path = "codec/more_keys.rs"]
mod more_keys;
#[path = "codec/request.rs"]
mod request;
#[path = "codec/users.rs"]
mod users;

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Integer),
        (-1e300..1e300).prop_map(Value::Real),
        ".{0,20}".prop_map(Value::Text),
        vec(any::<u8>(), 0..20).prop_map(Value::from),
    ]
}

/// Values at each length where the encoding changes.
fn any_packed_value() -> impl Strategy<Value = Value> {
    let power = (0..64_u32, -1..=1_i64).prop_map(|(bits, off)| Value::Integer((1_i64 << bits).wrapping_add(off)));
    let long = (230..250_usize).prop_map(|len| Value::Text("x".repeat(len)));
    prop_oneof![4 => any_value(), 2 => power, 1 => long]
}

fn any_rows() -> impl Strategy<Value = (usize, Vec<Vec<Value>>)> {
    (1..5_usize).prop_flat_map(|width| (Just(width), vec(vec(any_packed_value(), width), 0..6)))
}

fn packed(width: usize, rows: &[Vec<Value>]) -> PackedRows {
    let mut packer = RowPacker::new(width);
    for row in rows {
        row.iter().for_each(|value| packer.push(value.into()));
        packer.end_row().unwrap();
    }
    packer.finish()
}

fn any_param() -> impl Strategy<Value = Param> {
    let column = prop_oneof![any::<u32>().prop_map(Column::Number), ".{0,9}".prop_map(Column::Name)];
    prop_oneof![
        3 => any_value().prop_map(Param::Value),
        1 => (any::<u32>(), column).prop_map(|(step, column)| Step(step).column(column)),
    ]
}

fn any_statement<P: std::fmt::Debug>(param: impl Strategy<Value = P>) -> impl Strategy<Value = Statement<P>> {
    (".{0,30}", vec(param, 0..4), vec(":[a-z]{1,5}", 0..4)).prop_map(|(sql, params, names)| Statement {
        sql: sql.into(),
        params,
        names,
    })
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..9).prop_map(Bytes::from)
}

fn any_command() -> impl Strategy<Value = Command> {
    let control = prop_oneof![
        Just(ControlCommand::OpenSession),
        any::<u64>().prop_map(|id| ControlCommand::CloseSession(SessionId(id))),
        Just(ControlCommand::Verify),
        Just(ControlCommand::Tick),
        any::<u32>().prop_map(ControlCommand::Raise),
        users::any_command().prop_map(ControlCommand::User),
        archiver::any_appointment().prop_map(ControlCommand::Appoint),
    ];
    let bulk =
        (".{0,30}", any_rows()).prop_map(|(sql, (width, rows))| Bulk { sql: sql.into(), rows: packed(width, &rows) });
    let sql = prop_oneof![
        any_statement(any_param()).prop_map(SqlCommand::Statement),
        bulk.prop_map(SqlCommand::Bulk),
        Just(SqlCommand::Vacuum),
        vec(".{0,9}", 0..4).prop_map(SqlCommand::Extend),
    ];
    let items = prop_oneof![
        (any_bytes(), any_bytes(), any::<u64>()).prop_map(|(key, value, ttl)| ItemsCommand::Add { key, value, ttl }),
        any_bytes().prop_map(ItemsCommand::Take),
        (any_bytes(), any_bytes()).prop_map(|(key, value)| ItemsCommand::Expect { key, value }),
        Just(ItemsCommand::Abort),
    ];
    prop_oneof![
        1 => control.prop_map(Command::Control),
        2 => sql.prop_map(Command::Sql),
        4 => keys::any_keys_command().prop_map(Command::Keys),
        2 => locks::any_locks_command().prop_map(Command::Locks),
        1 => events::any_command().prop_map(Command::Events),
        1 => items.prop_map(Command::Items),
    ]
}

fn any_stamp() -> impl Strategy<Value = Stamp> {
    any::<(u64, u64)>().prop_map(|(now, seed)| Stamp { now, seed })
}

fn any_read_check() -> impl Strategy<Value = ReadCheck> {
    let read =
        prop_oneof![any_statement(any_value()).prop_map(Read::Sql), keys::any_keys_command().prop_map(Read::Keys)];
    (read, any_stamp(), any::<u128>()).prop_map(|(read, stamp, answer)| ReadCheck { read, stamp, answer })
}

fn any_dry_run() -> impl Strategy<Value = DryRunRecord> {
    (any::<u64>(), vec(any_stamp(), 0..4)).prop_map(|(index, stamps)| DryRunRecord { index, stamps })
}

fn any_proposal() -> impl Strategy<Value = Proposal> {
    let origin = proptest::option::of(any::<(u64, u64, u64)>().prop_map(|(session, sequence, floor)| Origin {
        session: SessionId(session),
        sequence,
        floor,
    }));
    let mode = prop_oneof![Just(Mode::Atomic), Just(Mode::Pipeline)];
    let ran_before = (vec(any_read_check(), 0..3), proptest::option::of(any_dry_run()));
    let key = proptest::option::of(request::any_key());
    (origin, any::<u64>(), mode, vec(any_command(), 0..5), ran_before, key).prop_map(
        |(origin, budget, mode, commands, (read_checks, dry_run), key)| {
            let proposal = Proposal::new(origin, commands);
            let proposal = Proposal { budget, mode, dry_run, ..proposal.with_read_checks(read_checks) };
            key.into_iter().fold(proposal, Proposal::with_key)
        },
    )
}

fn any_failure() -> impl Strategy<Value = Failure> {
    let number = || proptest::option::of(any::<u32>());
    (0..FailureKind::ALL.len(), any::<i32>(), number(), number(), ".{0,20}").prop_map(
        |(kind, sqlite_code, command, row, message)| Failure {
            kind: FailureKind::ALL.into_iter().nth(kind).unwrap(),
            sqlite_code,
            command,
            row,
            message,
        },
    )
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let statement = (any::<u64>(), any::<i64>(), vec("[a-z]{0,5}", 0..3), vec(vec(any_value(), 0..3), 0..3)).prop_map(
        |(changes, last_insert_rowid, columns, rows)| StatementResult { changes, last_insert_rowid, columns, rows },
    );
    let session = any::<u64>().prop_map(|id| ControlReply::Session(SessionId(id)));
    let result = prop_oneof![
        prop_oneof![Just(ControlReply::Done), session, archiver::any_reply()].prop_map(CommandResult::Control),
        prop_oneof![Just(SqlReply::Done), statement.prop_map(SqlReply::Statement)].prop_map(CommandResult::Sql),
        keys::any_reply().prop_map(CommandResult::Keys),
        locks::any_reply().prop_map(CommandResult::Locks),
        events::any_reply().prop_map(CommandResult::Events),
        any_failure().prop_map(CommandResult::Failed),
    ];
    prop_oneof![
        (vec(result, 0..4), proptest::option::of(any::<u64>()))
            .prop_map(|(results, first)| Ok(Reply { first, ..Reply::of(results) })),
        any_failure().prop_map(Err)
    ]
}

proptest! {
    #[test]
    fn a_proposal_comes_back(proposal in any_proposal()) {
        let bytes = codec::encode_proposal(&proposal).unwrap();
        prop_assert_eq!(codec::decode_proposal(&bytes).unwrap(), proposal);
    }

    #[test]
    fn packed_rows_hold_what_was_packed((width, rows) in any_rows(), left_out in vec(any::<bool>(), 6)) {
        let whole = packed(width, &rows);
        let values = |rows: &PackedRows| rows.values().map(Value::from).collect::<Vec<_>>();
        prop_assert_eq!(values(&whole), rows.concat());
        prop_assert_eq!((whole.len(), whole.width()), (rows.len(), width));

        let numbers: Vec<u32> = (0..).zip(&left_out).filter(|(_, out)| **out).map(|(number, _)| number).collect();
        let kept: Vec<_> = rows.iter().zip(&left_out).filter(|(_, out)| !**out).map(|(row, _)| row.clone()).collect();
        prop_assert_eq!(whole.without(&numbers), packed(width, &kept));
    }

    /// Whatever the bytes of the rows are, they are either refused, or packing the decoded rows gives the same bytes.
    #[test]
    fn rows_have_one_encoding(width in 0..4_u8, bytes in vec(prop_oneof![0..16_u8, any::<u8>()], 0..12)) {
        let field = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
        let bulk = [&[0x10, width], field(3, &bytes).as_slice()].concat();
        let proposal = [&[0x08, 1], field(4, &field(2, &field(2, &bulk))).as_slice()].concat();
        if let Ok(read) = codec::decode_proposal(&proposal.into()) {
            let [Command::Sql(SqlCommand::Bulk(Bulk { rows, .. }))] = read.commands.as_slice() else {
                panic!("{read:?}")
            };
            let values: Vec<_> = rows.values().map(Value::from).collect();
            let again = packed(rows.width(), &values.chunks(rows.width()).map(<[_]>::to_vec).collect::<Vec<_>>());
            prop_assert_eq!(again.bytes().as_ref(), bytes);
        }
    }

    #[test]
    fn an_outcome_comes_back(outcome in any_outcome()) {
        prop_assert_eq!(codec::decode_outcome(&codec::encode_outcome(&outcome)).unwrap(), outcome);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        // Only panics matter here, not the results.
        let _ = codec::decode_proposal(&bytes);
        let _ = codec::decode_outcome(&bytes);
        let _ = codec::decode_row(&bytes);
        let _ = codec::decode_read(&bytes);
        let _ = codec::entry::decode(bytes);
    }

    #[test]
    fn damage_is_refused_or_read_completely(
        proposal in any_proposal(),
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
    ) {
        let mut bytes = codec::encode_proposal(&proposal).unwrap().to_vec();
        prop_assume!(!bytes.is_empty());
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let bytes = Bytes::from(bytes);
        if let Ok(read) = codec::decode_proposal(&bytes) {
            // If the damaged bytes are accepted, encoding gives the same length again: nothing was skipped.
            prop_assert_eq!(codec::encode_proposal(&read).unwrap().len(), bytes.len());
        }
    }
}

/// Decodes a proposal from these pieces, concatenated.
fn decode_all(pieces: &[&[u8]]) -> Result<Proposal, DecodeError> {
    codec::decode_proposal(&pieces.concat().into())
}

#[test]
fn fields_of_a_later_version_are_refused_not_skipped() {
    let bytes = codec::encode_proposal(&Proposal::new(None, vec![ControlCommand::OpenSession.into()])).unwrap();
    assert_eq!(decode_all(&[&bytes, &[0xf8, 0x07, 0x01]]), Err(DecodeError::Unknown));
}

#[test]
fn non_canonical_encodings_are_refused() {
    let verify = vec![ControlCommand::Verify.into()];
    let bytes = codec::encode_proposal(&Proposal { budget: 0, ..Proposal::new(None, verify) }).unwrap();
    let (budget_of_0, level_again, long_level) = ([0x18, 0x00], [0x08, 0x01], [0x08, 0x81, 0x00]);
    let atomic = [0x38, 0x00];
    for more in [&budget_of_0[..], &level_again, &long_level, &atomic] {
        assert_eq!(decode_all(&[&bytes, more]), Err(DecodeError::Unknown), "{more:?}");
    }
    assert!(codec::decode_proposal(&bytes).is_ok());
}

/// Decoding must not copy blobs: otherwise a large one would cost its size again on every node.
#[test]
fn decoded_blobs_share_the_buffer() {
    let blob = vec![7; 100];
    let insert = Statement { sql: "INSERT".into(), params: vec![Value::from(blob.clone()).into()], names: vec![] };
    let bytes = codec::encode_proposal(&Proposal::new(None, vec![SqlCommand::Statement(insert).into()])).unwrap();
    let mut read = codec::decode_proposal(&bytes).unwrap();
    let Some(Command::Sql(SqlCommand::Statement(read))) = read.commands.pop() else { panic!("{read:?}") };
    let [Param::Value(Value::Blob(read))] = read.params.as_slice() else { panic!("{read:?}") };
    assert_eq!(read, &blob);
    assert!(bytes.as_ptr_range().contains(&read.as_ptr()));
}

#[test]
fn too_long_lists_are_refused_while_decoding() {
    let read = |proposal: &Proposal| codec::decode_proposal(&codec::encode_proposal(proposal).unwrap());
    let statement =
        |params| Statement { sql: "x".into(), params: vec![Param::Value(Value::Null); params], names: vec![] };
    let proposal = |commands| Proposal { commands, ..golden_proposal() };
    let of = |count| proposal(vec![ControlCommand::OpenSession.into(); count]);
    read(&of(COMMANDS_MAX)).unwrap();
    assert!(matches!(read(&of(COMMANDS_MAX + 1)), Err(DecodeError::Malformed(_))));
    let with = |params| proposal(vec![SqlCommand::Statement(statement(params)).into()]);
    read(&with(PARAMETERS_MAX)).unwrap();
    assert!(matches!(read(&with(PARAMETERS_MAX + 1)), Err(DecodeError::Malformed(_))));
    let query = |params| {
        let query = Statement { sql: "x".into(), params: vec![Value::Null; params], names: vec![] };
        codec::decode_read(&codec::encode_read(&Read::Sql(query)))
    };
    query(PARAMETERS_MAX).unwrap();
    assert!(matches!(query(PARAMETERS_MAX + 1), Err(DecodeError::Malformed(_))));
}

#[test]
fn fields_in_another_order_are_refused() {
    let proposal =
        Proposal { budget: 1, ..Proposal::new(Some(Origin { session: SessionId(1), sequence: 2, floor: 0 }), vec![]) };
    let bytes = codec::encode_proposal(&proposal).unwrap();
    let (level, rest) = bytes.split_at(2);
    let (origin, budget) = rest.split_at(rest.len() - 2);
    assert_eq!(decode_all(&[level, origin, budget]).as_ref(), Ok(&proposal));
    assert_eq!(decode_all(&[level, budget, origin]), Err(DecodeError::Unknown));
}

#[test]
fn a_later_level_is_named() {
    let level = FORMAT_LEVEL + 1;
    let proposal = Proposal { level, ..Proposal::new(None, vec![]) };
    let bytes = codec::encode_proposal(&proposal).unwrap();
    assert_eq!(codec::decode_proposal(&bytes), Err(DecodeError::Level { level, known: FORMAT_LEVEL }));
}

/// A proposal with each kind of command of level 1.
fn golden_proposal() -> Proposal {
    let values =
        vec![Value::Null, Value::Integer(-1), Value::Real(0.5), Value::Text("é".to_owned()), Value::from(vec![0, 255])];
    let named = Statement { sql: "UPDATE t SET a = :a".into(), params: vec![1.into()], names: vec![":a".to_owned()] };
    let params = values.into_iter().map(Param::Value).collect();
    let plain = Statement { sql: "INSERT INTO t VALUES (?,?,?,?,?)".into(), params, names: vec![] };
    let origin = Origin { session: SessionId(5), sequence: 9, floor: 7 };
    let commands = vec![
        Command::Sql(SqlCommand::Statement(plain)),
        Command::Sql(SqlCommand::Statement(named)),
        Command::Control(ControlCommand::OpenSession),
        Command::Control(ControlCommand::CloseSession(SessionId(3))),
        Command::Sql(SqlCommand::Vacuum),
    ];
    Proposal { budget: 1_000, ..Proposal::new(Some(origin), commands) }
}

/// Creates a proposal with the budget that was the default when the format was fixed.
fn golden_proposal_of(commands: Vec<Command>) -> Proposal {
    Proposal { budget: 500_000_000, ..Proposal::new(None, commands) }
}

/// A parameter for each kind of column.
fn golden_returned() -> Proposal {
    let params = vec![Step(0).column(0), Step(300).column("é")];
    let statement = Statement { sql: "INSERT INTO t VALUES (?,?)".into(), params, names: vec![] };
    golden_proposal_of(vec![SqlCommand::Statement(statement).into()])
}

fn golden_read_check() -> Proposal {
    let query = Statement { sql: "SELECT ?".into(), params: vec![7.into()], names: vec![] };
    let stamp = Stamp { now: 1_700_000_000_000_000_000, seed: 0xfeed };
    let check = ReadCheck { read: Read::Sql(query), stamp, answer: 1 << 100 };
    Proposal { read_checks: vec![check], ..golden_proposal_of(vec![]) }
}

/// A statement without parameters.
fn delete() -> Command {
    SqlCommand::Statement(Statement { sql: "DELETE FROM t".into(), ..Statement::default() }).into()
}

fn golden_dry_run() -> Proposal {
    let stamps = vec![Stamp { now: 1_700_000_000_000_000_000, seed: 0xfeed }, Stamp::default()];
    Proposal { dry_run: Some(DryRunRecord { index: 300, stamps }), ..golden_proposal_of(vec![delete(), delete()]) }
}

fn golden_pipeline() -> Proposal {
    Proposal { mode: Mode::Pipeline, ..golden_proposal_of(vec![delete()]) }
}

/// One command of each kind of the store for tests, and a tick.
fn golden_items() -> Proposal {
    let (key, value) = (Bytes::from_static(b"key"), Bytes::from_static(b"value"));
    let add = ItemsCommand::Add { key: key.clone(), value: value.clone(), ttl: 300 };
    let items = [add, ItemsCommand::Take(key.clone()), ItemsCommand::Expect { key, value }, ItemsCommand::Abort];
    let tick = Command::Control(ControlCommand::Tick);
    golden_proposal_of(items.map(Command::Items).into_iter().chain([tick]).collect())
}

fn golden_extend() -> Proposal {
    let names = ["slug/1", "collation german"].map(str::to_owned).into();
    golden_proposal_of(vec![SqlCommand::Extend(names).into()])
}

/// One value for each kind of tag, and integers of each length.
fn golden_bulk() -> Proposal {
    let integers = (0..=8_u32).map(|bytes| Value::Integer(if bytes == 0 { 0 } else { i64::MIN >> (64 - bytes * 8) }));
    let others = [
        Value::Null,
        Value::Real(-0.5),
        Value::Text("é".to_owned()),
        Value::Text("long".repeat(60)),
        Value::from(vec![0, 255]),
        Value::Integer(i64::MAX),
        Value::Integer(127),
        Value::Integer(128),
        Value::Text(String::new()),
    ];
    let values: Vec<Value> = integers.chain(others).collect();
    let rows = packed(9, &values.chunks(9).map(<[_]>::to_vec).collect::<Vec<_>>());
    golden_proposal_of(vec![SqlCommand::Bulk(Bulk { sql: "INSERT INTO t VALUES (?,?)".into(), rows }).into()])
}

fn golden_outcomes() -> [Outcome; 2] {
    let statement = StatementResult {
        changes: 2,
        last_insert_rowid: -3,
        columns: vec!["a".to_owned(), "b".to_owned()],
        rows: vec![vec![Value::Integer(1), Value::Null], vec![Value::Text("x".to_owned()), Value::Real(1.5)]],
    };
    let failure = Failure {
        kind: FailureKind::Constraint,
        sqlite_code: 2067,
        command: Some(1),
        row: None,
        message: "UNIQUE constraint failed: t.a".to_owned(),
    };
    let results = vec![
        SqlReply::Statement(statement).into(),
        ControlReply::Done.into(),
        ControlReply::Session(SessionId(4)).into(),
        SqlReply::Done.into(),
        CommandResult::Failed(failure.clone()),
    ];
    [Ok(Reply::of(results)), Err(failure)]
}

/// Compares with the golden file, which only a human removes; if there is no file, it is written.
fn golden(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if !path.exists() {
        std::fs::write(&path, hex + "\n").unwrap();
        return;
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), hex, "{name}: the format has changed");
}

#[test]
fn the_bytes_of_level_2_never_change() {
    golden("proposal-items-2.hex", &codec::encode_proposal(&golden_items()).unwrap());
    let replies =
        [ItemsReply::Done, ItemsReply::Exists, ItemsReply::Missing, ItemsReply::Taken(Bytes::from_static(b"v"))];
    let results: Vec<CommandResult> = replies.map(CommandResult::Items).into();
    golden("reply-items-2.hex", &codec::encode_outcome(&Ok(Reply::of(results))));
}

#[test]
fn the_bytes_of_level_1_never_change() {
    golden("proposal-1.hex", &codec::encode_proposal(&golden_proposal()).unwrap());
    let [reply, failure] = golden_outcomes();
    golden("proposal-bulk-1.hex", &codec::encode_proposal(&golden_bulk()).unwrap());
    golden("proposal-returned-1.hex", &codec::encode_proposal(&golden_returned()).unwrap());
    golden("proposal-read-check-1.hex", &codec::encode_proposal(&golden_read_check()).unwrap());
    golden("proposal-dry-run-1.hex", &codec::encode_proposal(&golden_dry_run()).unwrap());
    golden("proposal-pipeline-1.hex", &codec::encode_proposal(&golden_pipeline()).unwrap());
    golden("proposal-extend-1.hex", &codec::encode_proposal(&golden_extend()).unwrap());
    let raise = golden_proposal_of(vec![ControlCommand::Raise(300).into()]);
    golden("proposal-raise-1.hex", &codec::encode_proposal(&raise).unwrap());
    golden("reply-1.hex", &codec::encode_outcome(&reply));
    golden("failure-1.hex", &codec::encode_outcome(&failure));
    let of_a_row = failure.map_err(|failure| Failure { row: Some(7), ..failure });
    golden("failure-row-1.hex", &codec::encode_outcome(&of_a_row));
    let stamp = Stamp { now: 1_700_000_000_000_000_000, seed: 0xfeed };
    let payload = Payload::Proposal(stamp, Bytes::from_static(b"proposal"));
    golden("entry-proposal-1.hex", &codec::entry::encode(&payload));
    golden("entry-blank-1.hex", &codec::entry::encode(&Payload::Blank));
    golden("entry-membership-1.hex", &codec::entry::encode(&Payload::Membership(Bytes::from_static(b"members"))));
    golden("entry-reject-1.hex", &codec::entry::encode(&Payload::Reject(0x0102_0304)));
}
