//! The guarantees of apply, tested on real files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use quorate_env::Env;
use quorate_model::codec::encode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{
    Command, CommandResult, ControlCommand, ControlReply, Entry, Epoch, Failure, FailureKind, GroupId, LogId, Mode,
    NodeId, Origin, Outcome, Param, Payload, Proposal, Reply, SessionId, SqlCommand, SqlReply, Stamp, Statement,
    StatementResult, StoreFault, StoreIdentity, Value,
};

use super::{Applier, SqlMachine};
use crate::extensions::Extensions;
use crate::ffi::control;
use crate::generation::Generations;
use crate::{connection, logical_hash};

mod budget;
mod bulk;
mod dedup;
mod dry_run;
pub(crate) mod equal;
mod events;
mod faults;
mod hostile;
mod keys;
mod locks;
mod names;
mod pipeline;
mod poison;
mod read_checks;
mod rejected;
mod requests;
mod returned;
mod schema;
mod suite;

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const START: u64 = 1_700_000_000 * SECOND;

pub(crate) const IDENTITY: StoreIdentity = StoreIdentity { cluster: 7, epoch: Epoch(1), group: GroupId::MAIN };

/// How many times entries of a patient node may take too long.
const TRIES: u32 = 5;

/// A database to which entries are applied.
pub(crate) struct Node {
    applier: Option<Applier>,
    generations: Generations,
    _dir: tempfile::TempDir,
    next: u64,
    /// How many more times an entry that took too long runs again.
    tries: u32,
}

impl Node {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default()).unwrap();
        let mut node = Self { applier: None, generations, _dir: dir, next: 1, tries: 0 };
        node.restart();
        node
    }

    /// A node on which these statements were applied, one entry each.
    pub(crate) fn with(setup: &[&str]) -> Self {
        let mut node = Self::new();
        for sql in setup {
            node.ok(sql);
        }
        node
    }

    /// Lets entries that take too long run again, as a node does. On a busy machine those with a small budget, or with
    /// extreme work, take too long at first.
    pub(crate) fn patient(self) -> Self {
        Self { tries: TRIES, ..self }
    }

    pub(crate) fn restart(&mut self) {
        self.restart_with_cache(1 << 20);
    }

    pub(crate) fn restart_with_cache(&mut self, bytes: u32) {
        self.applier = None;
        let conn = connection::open_writer(&self.generations.current(), bytes).unwrap();
        self.applier = Some(
            Applier::new(SqlMachine::open(conn, &IDENTITY, &Extensions::default()).unwrap(), FORMAT_LEVEL).unwrap(),
        );
    }

    pub(crate) fn applier(&mut self) -> &mut Applier {
        self.applier.as_mut().unwrap()
    }

    pub(crate) fn conn(&self) -> &rusqlite::Connection {
        self.applier.as_ref().unwrap().machine().connection()
    }

    pub(crate) fn apply(&mut self, entries: &[Entry]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        while outcomes.len() < entries.len() {
            match self.applier().apply_batch(&entries[outcomes.len()..], &mut outcomes) {
                Err(StoreFault::Slow(_)) if self.tries > 0 => self.tries -= 1,
                done => done.unwrap(),
            }
        }
        self.next = entries.last().map_or(self.next, |entry| entry.log_id.index + 1);
        outcomes
    }

    /// Applies entries of which one can't be applied, and returns the fault.
    pub(crate) fn fault(&mut self, entries: &[Entry]) -> StoreFault {
        self.apply_up_to_fault(entries, &mut Vec::new())
    }

    /// The same, and returns the outcomes of the entries before it.
    pub(crate) fn apply_up_to_fault(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> StoreFault {
        loop {
            let left = &entries[outcomes.len()..];
            assert!(!left.is_empty(), "all were applied");
            if let Err(fault) = self.applier().apply_batch(left, outcomes) {
                return fault;
            }
        }
    }

    /// The database file, once everything is in it.
    pub(crate) fn file(&self) -> Vec<u8> {
        let done = control::checkpoint(self.conn(), rusqlite::ffi::SQLITE_CHECKPOINT_TRUNCATE);
        assert_eq!(done.code, rusqlite::ffi::SQLITE_OK);
        let main = self.generations.current().main().clone();
        let mut bytes = vec![0; main.len().unwrap().try_into().unwrap()];
        main.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Applies a proposal alone.
    pub(crate) fn propose(&mut self, proposal: &Proposal) -> Outcome {
        self.apply(&[entry(self.next, proposal)]).remove(0)
    }

    pub(crate) fn run(&mut self, statements: Vec<Statement<Param>>) -> Outcome {
        self.propose(&Proposal::new(
            None,
            statements.into_iter().map(|statement| SqlCommand::Statement(statement).into()).collect(),
        ))
    }

    pub(crate) fn sql(&mut self, sql: &str) -> Result<StatementResult, Failure> {
        self.run(vec![statement(sql, vec![])]).map(|reply| only(&reply))
    }

    pub(crate) fn ok(&mut self, sql: &str) -> StatementResult {
        self.sql(sql).unwrap_or_else(|failure| panic!("{sql}: {failure:?}"))
    }

    pub(crate) fn fails(&mut self, sql: &str) -> Failure {
        self.sql(sql).expect_err(sql)
    }

    /// The first value of the first row of a query.
    pub(crate) fn value(&mut self, sql: &str) -> Value {
        self.ok(sql).rows[0][0].clone()
    }

    pub(crate) fn hashes(&self) -> (u128, u128, u64) {
        let conn = self.conn();
        let hash = self.applier.as_ref().unwrap().outcome_hash();
        (logical_hash::user(conn).unwrap(), logical_hash::reserved(conn).unwrap(), hash)
    }
}

pub(crate) fn only(reply: &Reply) -> StatementResult {
    match reply.results.as_slice() {
        [CommandResult::Sql(SqlReply::Statement(result))] => result.clone(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn statement(sql: &str, params: Vec<Param>) -> Statement<Param> {
    Statement { sql: sql.to_owned().into(), params, names: vec![] }
}

/// A statement without parameters.
pub(crate) fn command(sql: &str) -> Command {
    SqlCommand::Statement(statement(sql, vec![])).into()
}

/// A proposal with only this statement.
pub(crate) fn single(sql: &str) -> Proposal {
    Proposal::new(None, vec![command(sql)])
}

pub(crate) fn open_session() -> Proposal {
    Proposal::new(None, vec![ControlCommand::OpenSession.into()])
}

pub(crate) fn log_id(index: u64) -> LogId {
    LogId { term: 1, node: NodeId(u64::MAX), index }
}

/// The entry at `index`, with a stamp one hour after that of the entry before, and a seed of its own.
pub(crate) fn entry(index: u64, proposal: &Proposal) -> Entry {
    stamped(index, START + index * 3600 * SECOND, proposal)
}

pub(crate) fn stamped(index: u64, now: u64, proposal: &Proposal) -> Entry {
    let stamp = Stamp { now, seed: index.wrapping_mul(0x1234_5678_9abc_def1) };
    Entry { log_id: log_id(index), payload: Payload::Proposal(stamp, encode_proposal(proposal).unwrap()) }
}

#[test]
fn a_restart_keeps_the_applied_state() {
    let mut node = Node::with(&["CREATE TABLE t (a)", "INSERT INTO t VALUES (1), (2)"]);
    let members = bytes::Bytes::from_static(b"members");
    let blank = Entry { log_id: log_id(3), payload: Payload::Blank };
    let membership = Entry { log_id: log_id(4), payload: Payload::Membership(members.clone()) };
    let replies = node.apply(&[blank, membership]);
    assert_eq!(replies, vec![Ok(Reply::default()), Ok(Reply::default())]);
    let (row, hashes) = (node.applier().row().clone(), node.hashes());
    assert_eq!(row.applied.log_id, Some(log_id(4)));
    assert_eq!(row.applied.membership, Some((log_id(4), members)));
    assert_eq!(row.now, START + 2 * 3600 * SECOND);
    assert_eq!(node.applier().outcome_hash_at(4), Some(row.outcome_hash));
    node.restart();
    assert_eq!((node.applier().row().clone(), node.hashes()), (row, hashes));
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(2));
}

#[test]
fn a_database_of_another_cluster_is_not_opened() {
    let node = Node::new();
    let conn = connection::open_writer(&node.generations.current(), 1 << 20).unwrap();
    let other = StoreIdentity { cluster: 8, ..IDENTITY };
    assert!(SqlMachine::open(conn, &other, &Extensions::default()).err().unwrap().to_string().contains("belongs to"));
}

#[test]
fn time_never_runs_backwards() {
    let mut node = Node::new();
    let ask = single("SELECT unixepoch()");
    let times: Vec<_> = [50, 30, 70].map(|second| second * SECOND).into();
    let entries: Vec<_> = (1..).zip(times).map(|(index, now)| stamped(index, now, &ask)).collect();
    let seen: Vec<_> =
        node.apply(&entries).iter().map(|reply| only(reply.as_ref().unwrap()).rows[0][0].clone()).collect();
    assert_eq!(seen, [50, 50, 70].map(Value::Integer));
}

#[test]
fn applied_entries_are_refused_a_second_time() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let again = entry(1, &Proposal::new(None, vec![]));
    assert!(matches!(node.fault(&[again]), StoreFault::Io(_)));
}

#[test]
fn an_undecodable_entry_is_a_fault() {
    let mut node = Node::new();
    let unknown = Proposal { level: FORMAT_LEVEL + 1, ..Proposal::new(None, vec![]) };
    for bytes in [encode_proposal(&unknown).unwrap(), vec![0xff].into(), b"\xfa\x01\x00".to_vec().into()] {
        let entry = Entry { log_id: log_id(1), payload: Payload::Proposal(Stamp::default(), bytes) };
        assert!(matches!(node.fault(&[entry]), StoreFault::Unsupported(_)));
    }
    assert_eq!(node.applier().applied().index(), 0);
}

#[test]
fn parameters_bind_by_number_or_name_exactly_once() {
    let mut node = Node::new();
    let two = |names: &[&str]| Statement {
        sql: "SELECT :a, @b".into(),
        params: vec![1.into(), "x\0y".into()],
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut row = |statement| node.run(vec![statement]).map(|reply| only(&reply).rows[0].clone());
    let (one, text) = (Value::Integer(1), Value::Text("x\0y".to_owned()));
    assert_eq!(row(two(&[])).unwrap(), [one.clone(), text.clone()]);
    assert_eq!(row(two(&["@b", ":a"])).unwrap(), [text, one]);
    for wrong in [
        two(&["@b", "@b"]),
        two(&["@b", ":c"]),
        statement("SELECT ?3", vec![1.into()]),
        statement("SELECT 1", vec![1.into()]),
    ] {
        assert_eq!(row(wrong).unwrap_err().kind, FailureKind::Sql);
    }
}

#[test]
fn values_are_returned_by_storage_class() {
    let mut node = Node::with(&["CREATE TABLE t (d DATETIME, b BOOLEAN, n NUMERIC, j JSON)"]);
    let result = node.ok("INSERT INTO t VALUES ('2024-01-01', 2.5, x'00ff', NULL) RETURNING d, b, n, j");
    let expected = ["2024-01-01".into(), 2.5.into(), vec![0_u8, 255].into(), Value::Null];
    assert_eq!(result.rows, [expected]);
    assert_eq!(result.columns[..4], ["d", "b", "n", "j"]);
}

#[test]
fn non_utf8_text_can_be_written_but_not_returned() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let insert = "INSERT INTO t VALUES (CAST(x'61ff' AS TEXT))";
    // On the second pass the statement is already prepared, and runs without a savepoint.
    for _ in 0..2 {
        let failure = node.fails(&format!("{insert} RETURNING a"));
        assert!(failure.message.contains("a text that is not UTF-8"), "{failure}");
    }
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(0));
    node.ok(insert);
    assert_eq!(node.value("SELECT CAST(a AS BLOB) FROM t"), vec![0x61_u8, 0xff].into());
}

#[test]
fn results_count_only_the_statement_s_own_changes() {
    let mut node = Node::with(&[
        "CREATE TABLE t (a UNIQUE)",
        "CREATE TABLE log (a)",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO log VALUES (1), (2); END",
    ]);
    let of = |result: StatementResult| (result.changes, result.last_insert_rowid);
    assert_eq!(of(node.ok("INSERT INTO t VALUES (1), (2), (3)")), (3, 3));
    assert_eq!(of(node.ok("SELECT 1")), (0, 0));
    assert_eq!(of(node.ok("UPDATE t SET a = a + 10 WHERE a < 3")), (2, 0));
    assert_eq!(of(node.ok("INSERT OR IGNORE INTO t VALUES (11)")), (0, 0));
    assert_eq!(of(node.ok("CREATE TABLE u (a)")), (0, 0));
    let statements = ["INSERT INTO t VALUES (50)", "SELECT changes(), total_changes(), last_insert_rowid()"];
    let reply = node.run(statements.map(|sql| statement(sql, vec![])).into()).unwrap();
    let CommandResult::Sql(SqlReply::Statement(last)) = &reply.results[1] else { panic!("{reply:?}") };
    assert_eq!(last.rows[0], [1.into(), 3.into(), 4.into()]);
}

#[test]
fn vacuum_runs_alone_and_counts_as_an_entry() {
    let mut node = Node::with(&["CREATE TABLE t (a)", "INSERT INTO t VALUES (zeroblob(500000))", "DELETE FROM t"]);
    let pages = |node: &Node| node.conn().query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap();
    let before = pages(&node);
    let insert = single("INSERT INTO t VALUES (1)");
    let vacuum = Proposal::new(None, vec![SqlCommand::Vacuum.into()]);
    let entries: Vec<_> =
        (4..).zip([&insert, &vacuum, &insert]).map(|(index, proposal)| entry(index, proposal)).collect();
    let outcomes = node.apply(&entries);
    assert_eq!(outcomes[1], Ok(Reply::of([SqlReply::Done.into()])));
    assert!(pages(&node) < before && node.applier().applied().index() == 6);
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(2));
    let combined = Proposal::new(None, vec![Command::Sql(SqlCommand::Vacuum), Command::Sql(SqlCommand::Vacuum)]);
    assert_eq!(node.propose(&combined).unwrap_err().kind, FailureKind::Refused);
    assert!(node.fails("VACUUM").message.contains("VACUUM"));
}
