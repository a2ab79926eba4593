//! Keys in everything that a store makes of its database, and reads of them.

use quorate_env::{Env, Instant};
use quorate_model::keys::SpaceCommand;
use quorate_model::{
    Command, ControlCommand, Entry, Failure, FailureKind, LogId, NodeId, Payload, Proposal, SqlCommand, Stamp,
    Statement, codec,
};

use super::*;
use crate::logical_hash;
use crate::readers::{ReadError, ReadLimits};
use crate::store::tests::copies::{Backup, block_on, captured, send_image};
use crate::store::tests::{Home, PATIENCE, apply, entry_at, home, open, options};
use crate::store::{SqlStore, Verification};

/// When the field of the hash expires, and a second later the string.
const EXPIRY: u64 = 1_700_000_000 * SECOND;

fn entry(index: u64, command: impl Into<Command>) -> Entry {
    entry_at(index, index, command)
}

fn in_space(command: KeysCommand) -> SpaceCommand {
    SpaceCommand { space: 0, command }
}

/// A store with one key of each kind and many more, some of them only in the `-wal`.
fn with_keys() -> (Home, SqlStore) {
    let home = home();
    let store = open(&home.dir, options());
    let many = (0..2_000).map(|number| {
        KeysCommand::String(StringCommand::Append { key: format!("key {number}").into(), value: vec![7; 500].into() })
    });
    let commands = one_of_each(EXPIRY).into_iter().chain(many);
    let entries = (1..).zip(commands).map(|(index, command)| entry(index, in_space(command))).collect();
    assert!(apply(&store, entries).unwrap().into_iter().flatten().all(|outcome| outcome.is_ok()));
    (home, store)
}

fn hash(store: &SqlStore) -> u128 {
    hash_of(&connection::open_reader(&store.generation(), 1 << 20).unwrap())
}

fn hash_of(conn: &Connection) -> u128 {
    assert_eq!(conn.query_row("SELECT count(*) FROM _quorate_keys", [], |row| row.get(0)), Ok(2_005));
    logical_hash::user(conn).unwrap()
}

fn read(store: &SqlStore, command: KeysCommand) -> Result<KeysReply, ReadError> {
    let commands = [in_space(command)];
    let read = block_on(store.readers().keys(&Env::real(), &commands, usize::MAX, &ReadLimits::default()));
    read.and_then(|answers| answers[0].clone().map_err(ReadError::Failed))
}

#[test]
fn an_image_has_the_keys_and_goes_on_with_them() {
    let (_home, store) = with_keys();
    let other_home = home();
    let other = open(&other_home.dir, options());
    send_image(&store, &other);
    assert_eq!(hash(&other), hash(&store));
    let next = entry(2_006, in_space(set("list", "replaces it", Expiry::Never)));
    for store in [&store, &other] {
        apply(store, vec![next.clone()]).unwrap();
    }
    assert_eq!(hash(&other), hash(&store));
}

#[test]
fn a_backup_has_the_keys_for_any_program_and_for_a_restore() {
    let (_home, store) = with_keys();
    let backup = Backup::of(&store);
    let plain = backup.plain();
    let keys = "SELECT group_concat(CAST(key AS TEXT) ORDER BY key) FROM quorate_keys WHERE type <> 'string'";
    assert_eq!(plain.query_row(keys, [], |row| row.get(0)), Ok("list,set,sorted".to_owned()), "the hash has expired");
    drop(plain);
    assert_eq!(hash(&backup.restored(options())), hash(&store));
}

#[test]
fn a_capture_has_the_keys() {
    let (_home, store) = with_keys();
    let (_dir, copy) = captured(&store);
    assert_eq!(hash_of(&copy), hash(&store));
}

#[test]
fn a_vacuum_keeps_the_keys() {
    let (_home, store) = with_keys();
    let before = hash(&store);
    let outcomes = apply(&store, vec![entry(2_006, SqlCommand::Vacuum)]).unwrap();
    assert!(outcomes[0].as_ref().unwrap().is_ok());
    assert_eq!(hash(&store), before);
}

#[test]
fn a_verification_compares_the_keys() {
    let (_home, store) = with_keys();
    apply(&store, vec![entry(2_006, ControlCommand::Verify)]).unwrap();
    let verified = block_on(store.verification(2_006, Instant::now() + PATIENCE));
    let Some(Verification::Done(hashes)) = verified else { panic!("{verified:?}") };
    let reader = connection::open_reader(&store.generation(), 1 << 20).unwrap();
    assert_eq!(*hashes, logical_hash::by_table(&reader).unwrap().into_iter().collect());
    let tables = ["", "_due", "_elements", "_generations", "_ids", "_items", "_members"];
    let tables = tables.map(|name| format!("_quorate_keys{name}"));
    assert!(tables.iter().eq(hashes.keys().filter(|name| name.starts_with("_quorate_keys"))), "{hashes:?}");
}

#[test]
fn readers_answer_commands_that_only_read() {
    let (_home, store) = with_keys();
    assert_eq!(read(&store, get("string")), Ok(KeysReply::Value("value".into())));
    let wrong = read(&store, get("list")).unwrap_err();
    assert!(matches!(wrong, ReadError::Failed(Failure { kind: FailureKind::WrongType, .. })), "{wrong}");
    assert_eq!(read(&store, set("list", "x", Expiry::Never)), Err(ReadError::Writes));
}

/// All expiries are in the past by the clock of this machine, and in the future by the stamps.
#[test]
fn reads_judge_by_the_stamps_and_the_time_since_and_not_by_a_wall_clock() {
    let (_home, store) = with_keys();
    let view = "CREATE VIEW mine AS SELECT key, type FROM quorate_keys";
    let view = SqlCommand::Statement(Statement { sql: view.into(), ..Statement::default() });
    apply(&store, vec![entry(2_006, view)]).unwrap();
    let count = |sql: &'static str| {
        let query = Statement { sql: sql.into(), ..Statement::default() };
        store.readers().query_blocking(&query, &ReadLimits::default()).unwrap().iter().next().unwrap().get::<i64>(0)
    };
    let seen = || {
        let fields = KeysCommand::Key(KeyCommand::Count { key: "hash".into(), kind: Kind::Hash });
        let of_sql = ["SELECT count(*) FROM quorate_hashes", "SELECT count(*) FROM mine WHERE type <> 'list'"];
        (read(&store, get("string")).unwrap(), read(&store, fields).unwrap(), of_sql.map(|sql| count(sql).unwrap()))
    };
    let at = |index, now| {
        let bytes = codec::encode_proposal(&Proposal::new(None, Vec::new())).unwrap();
        let log_id = LogId { term: 1, node: NodeId(1), index };
        apply(&store, vec![Entry { log_id, payload: Payload::Proposal(Stamp { now, seed: 0 }, bytes) }]).unwrap();
    };
    assert_eq!(seen(), (KeysReply::Value("value".into()), KeysReply::Count(2), [2, 2_004]));
    assert!(count("SELECT unixepoch()").unwrap() > 1_700_000_000, "other queries see the clock of the node");
    // The string must not expire while the machine stalls.
    let late = EXPIRY + 3_600 * SECOND;
    apply(&store, vec![entry(2_007, in_space(set("string", "value", Expiry::At(late))))]).unwrap();
    // Time passes without an entry, up to the next millisecond for SQL.
    at(2_008, EXPIRY - 1_000_000);
    let end = Instant::now() + PATIENCE;
    while count("SELECT count(*) FROM quorate_hashes").unwrap() > 0 {
        assert!(Instant::now() < end);
    }
    assert_eq!(seen(), (KeysReply::Value("value".into()), KeysReply::Count(0), [0, 2_003]));
    at(2_009, late);
    assert_eq!(seen(), (KeysReply::Missing, KeysReply::Count(0), [0, 2_002]));
}
