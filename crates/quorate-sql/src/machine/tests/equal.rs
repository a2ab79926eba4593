//! The main property of apply: wherever batches end, whatever ran ahead and whenever nodes restart, the result is that
//! of plain SQLite with one transaction per entry, under the same stamps and seeds.

use proptest::prelude::*;
use quorate_model::{Column, ControlCommand, ReadCheck, SqlCommand, Step};

use super::bulk::bulk;
use super::read_checks::gives;
use super::*;
use crate::plain::{Plain, seen};

const SETUP: &[&str] = &[
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE, at DEFAULT CURRENT_TIMESTAMP, r DEFAULT (random()),
        b DEFAULT (randomblob(8)), CHECK (a < 90 OR random() > 0))",
    "CREATE TABLE log (what, at, r)",
    "CREATE TRIGGER t_insert AFTER INSERT ON t BEGIN
        INSERT INTO log VALUES (NEW.a, datetime('now'), random()); END",
    "CREATE TRIGGER t_delete AFTER DELETE ON t WHEN OLD.a > 5 BEGIN
        INSERT INTO log VALUES (last_insert_rowid(), CURRENT_TIME, hex(randomblob(3))); END",
    "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
    "CREATE TABLE child (p REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    "CREATE TABLE once (a UNIQUE ON CONFLICT ROLLBACK)",
    "CREATE TRIGGER guard BEFORE INSERT ON once WHEN NEW.a = 3 BEGIN SELECT RAISE(ROLLBACK, 'three'); END",
    "CREATE TABLE s (id INTEGER PRIMARY KEY AUTOINCREMENT, a)",
    "CREATE TABLE implicit (a)",
    "CREATE INDEX implicit_a ON implicit (a)",
    "CREATE TABLE strict (a INT) STRICT",
    "CREATE TABLE totals (k, v)",
];

/// The last statement of the setup creates a virtual table, or a plain table in its place. Without virtual tables most
/// single statements need no savepoint.
pub(crate) fn a_setup() -> impl Strategy<Value = Vec<&'static str>> {
    let last = prop::sample::select(&["CREATE VIRTUAL TABLE f USING fts5(body)", "CREATE TABLE f (body)"][..]);
    last.prop_map(|last| SETUP.iter().copied().chain([last]).collect())
}

/// Statements with one parameter, a small number. They should fail in many ways.
const STATEMENTS: &[&str] = &[
    "INSERT INTO t (a) VALUES (?1) RETURNING id, at, r, hex(b)",
    "INSERT INTO t (a) SELECT ?1 + i.value FROM json_each('[0, 20, 40]') i",
    "INSERT OR ROLLBACK INTO t (a) VALUES (?1)",
    "INSERT OR FAIL INTO t (a) VALUES (?1 + 30), (?1)",
    "INSERT OR IGNORE INTO t (a) VALUES (?1), (?1 + 1)",
    "REPLACE INTO t (a, at) VALUES (?1, datetime('now', '-1 day'))",
    "UPDATE t SET r = random(), at = strftime('%f', 'now') WHERE a > ?1",
    "UPDATE OR ROLLBACK t SET a = a + 1 WHERE a >= ?1",
    "DELETE FROM t WHERE a = ?1 OR a > 60 RETURNING id",
    "INSERT INTO child VALUES (?1)",
    "DELETE FROM child WHERE p = ?1",
    "INSERT INTO parent VALUES (?1)",
    "DELETE FROM parent WHERE id = ?1",
    "INSERT INTO once VALUES (?1)",
    "INSERT INTO s (a) VALUES (?1), (random())",
    "DELETE FROM s WHERE a = ?1",
    "INSERT INTO f SELECT 'word' || ?1 || ' and ' || hex(randomblob(2))",
    "DELETE FROM f WHERE rowid = ?1",
    "UPDATE f SET body = 'word' || ?1 WHERE rowid % 3 = 1",
    "SELECT rowid, body FROM f WHERE f MATCH 'word' || ?1",
    "INSERT INTO f (f) SELECT 'optimize' WHERE ?1 > 0",
    "INSERT INTO implicit SELECT ?1 % 3 UNION ALL SELECT random() % 4",
    "DELETE FROM implicit WHERE a = ?1",
    "INSERT INTO strict VALUES (?1), (CASE WHEN ?1 % 2 THEN 'x' ELSE 5 END)",
    "INSERT INTO totals SELECT i.value, sum(CASE i.value WHEN ?1 THEN 9223372036854775807 ELSE 1 END)
        FROM json_each('[0, 3, 3, 5, 5]') i GROUP BY i.value",
    "SELECT changes(), total_changes(), last_insert_rowid(), random(), CURRENT_TIMESTAMP, julianday('now'), ?1",
    "SELECT a, count(*) FROM implicit GROUP BY a HAVING a > ?1",
    "INSERT INTO nowhere VALUES (?1)",
    "SELECT ?1 FROM t ORDER BY random() LIMIT 2",
];

/// Statements without parameters.
const CHANGES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS extra AS SELECT random() AS r, datetime('now') AS at",
    "DROP TABLE extra",
    "ALTER TABLE extra ADD COLUMN more DEFAULT 7",
    "ALTER TABLE implicit ADD COLUMN more CHECK (a < 3)",
    "ALTER TABLE implicit DROP COLUMN more",
    "CREATE INDEX log_at ON log (at)",
    "DROP INDEX log_at",
    "ANALYZE implicit",
    "CREATE TRIGGER counted BEFORE INSERT ON t BEGIN INSERT INTO log VALUES (\"Changes\"(), 0, 0); END",
    "DROP TRIGGER counted",
    "UPDATE sqlite_sequence SET seq = 9223372036854775807",
    "DELETE FROM sqlite_sequence",
    "this is not sql",
];

fn a_statement() -> impl Strategy<Value = Statement<Param>> {
    let usual = (prop::sample::select(STATEMENTS), 0..8_i64).prop_map(|(sql, n)| statement(sql, vec![n.into()]));
    let rare = prop::sample::select(CHANGES).prop_map(|sql| statement(sql, vec![]));
    prop_oneof![9 => usual, 1 => rare]
}

/// Statements with one parameter that return nothing.
const BULKS: &[&str] = &[
    "INSERT INTO t (a) VALUES (?1)",
    "INSERT OR IGNORE INTO t (a) VALUES (?1)",
    "INSERT OR ROLLBACK INTO t (a) VALUES (?1)",
    "INSERT OR FAIL INTO t (a) VALUES (?1 + 30), (?1)",
    "REPLACE INTO t (a, at) VALUES (?1, datetime('now', '-1 day'))",
    "UPDATE t SET r = random(), at = strftime('%f', 'now') WHERE a > ?1",
    "DELETE FROM t WHERE a = ?1",
    "INSERT INTO child VALUES (?1)",
    "INSERT INTO parent VALUES (?1)",
    "INSERT INTO once VALUES (?1)",
    "INSERT INTO s (a) VALUES (?1), (random())",
    "INSERT INTO f SELECT 'word' || ?1 || ' and ' || hex(randomblob(2))",
    "INSERT INTO log VALUES (changes() + ?1, total_changes(), last_insert_rowid())",
    "INSERT INTO nowhere VALUES (?1)",
];

fn a_command() -> impl Strategy<Value = Command> {
    let many = (prop::sample::select(BULKS), prop::collection::vec(0..8_i64, 0..5))
        .prop_map(|(sql, rows)| bulk(sql, &rows.into_iter().map(|n| vec![n.into()]).collect::<Vec<_>>()));
    prop_oneof![4 => a_statement().prop_map(|statement| SqlCommand::Statement(statement).into()), 1 => many]
}

/// Commands of which one may take a parameter from an earlier one. The earlier one may not have returned exactly one
/// row.
fn commands_that_refer() -> impl Strategy<Value = Vec<Command>> {
    let reference = prop::option::of((1..4_usize, any::<prop::sample::Index>(), 0..3_usize));
    (prop::collection::vec(a_command(), 1..4), reference).prop_map(|(mut commands, reference)| {
        if let Some((from, earlier, column)) = reference
            && let Some(Command::Sql(SqlCommand::Statement(statement))) = commands.get_mut(from)
        {
            let column = [Column::from(0), Column::from("id"), Column::from("at")][column].clone();
            let step = Step(earlier.index(from).try_into().unwrap());
            statement.params.iter_mut().for_each(|param| *param = step.column(column.clone()));
        }
        commands
    })
}

/// A check that a table holds some number, or does not.
fn a_read_check() -> impl Strategy<Value = ReadCheck> {
    (0..8_i64, any::<bool>()).prop_map(|(number, is_there)| {
        let sql = "SELECT EXISTS (SELECT 1 FROM t WHERE a = ?1)".into();
        gives(Statement { sql, params: vec![number.into()], names: vec![] }, &[is_there.into()])
    })
}

pub(crate) fn a_program() -> impl Strategy<Value = Vec<Proposal>> {
    let single = prop::collection::vec(a_command(), 1);
    let commands = prop_oneof![single, commands_that_refer()];
    let read_checks = prop_oneof![6 => Just(Vec::new()), 1 => prop::collection::vec(a_read_check(), 1..3)];
    let mode = prop_oneof![3 => Just(Mode::Atomic), 1 => Just(Mode::Pipeline)];
    let proposal = (commands, read_checks, mode).prop_map(|(commands, read_checks, mode)| Proposal {
        read_checks,
        mode,
        ..Proposal::new(None, commands)
    });
    prop::collection::vec(proposal, 1..60)
}

/// A batch: how many entries it has, which entries run ahead before it, whether the node restarts while these are in an
/// open transaction, and whether it restarts after the batch.
#[derive(Clone, Debug)]
struct Batch {
    size: usize,
    prefetched: Vec<Prefetched>,
    restart_ahead: bool,
    restart: bool,
}

/// Entries that run ahead: how many, how many to skip after the applied ones, and whether other entries are committed
/// in their place.
#[derive(Clone, Debug)]
struct Prefetched {
    skip: usize,
    count: usize,
    wrong: bool,
}

impl Prefetched {
    fn run_ahead(&self, node: &mut Node, entries: &[Entry]) {
        let right = entries.iter().skip(self.skip).take(self.count);
        let prefetched: Vec<Entry> = if self.wrong {
            let payloads = entries.iter().rev().map(|entry| entry.payload.clone());
            let other = |(entry, payload): (&Entry, Payload)| {
                let log_id = LogId { term: entry.log_id.term + 1, ..entry.log_id };
                Entry { log_id, payload }
            };
            right.zip(payloads).map(other).collect()
        } else {
            right.cloned().collect()
        };
        node.applier().prefetch(&prefetched);
    }
}

fn a_batch() -> impl Strategy<Value = Batch> {
    let prefetched = (prop::sample::select(&[0, 0, 0, 1, 3, 8][..]), 0..12_usize, prop::bool::weighted(0.2))
        .prop_map(|(skip, count, wrong)| Prefetched { skip, count, wrong });
    let prefetched = prop::collection::vec(prefetched, 0..3);
    let batch = (1..20_usize, prefetched, prop::bool::weighted(0.1), prop::bool::weighted(0.15));
    batch.prop_map(|(size, prefetched, restart_ahead, restart)| Batch { size, prefetched, restart_ahead, restart })
}

/// The batches of a run.
fn a_split() -> impl Strategy<Value = Vec<Batch>> {
    prop::collection::vec(a_batch(), 1..12)
}

/// Applies entries in these batches, repeating the list as needed.
fn apply_split(node: &mut Node, mut entries: &[Entry], split: &[Batch]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for Batch { size, prefetched, restart_ahead, restart } in split.iter().cycle() {
        prefetched.iter().for_each(|prefetched| prefetched.run_ahead(node, entries));
        if *restart_ahead {
            node.restart();
        }
        let (batch, rest) = entries.split_at(entries.len().min(*size));
        outcomes.extend(node.apply(batch));
        if *restart {
            node.restart();
        }
        entries = rest;
        if rest.is_empty() {
            break;
        }
    }
    outcomes
}

fn entries(program: &[Proposal], origin: impl Fn(usize) -> Option<Origin>) -> Vec<Entry> {
    let first = SETUP.len() as u64 + 2;
    let proposal = |(number, proposal): (usize, &Proposal)| Proposal { origin: origin(number), ..proposal.clone() };
    (first..).zip(program.iter().enumerate().map(proposal)).map(|(index, proposal)| entry(index, &proposal)).collect()
}

/// The logical hash of each user's table.
fn database_hashes(conn: &rusqlite::Connection) -> Vec<(String, u128)> {
    let mut hashes = logical_hash::by_table(conn).unwrap();
    hashes.retain(|(name, _)| !name.starts_with("_quorate_"));
    hashes
}

pub(crate) fn cases(default: u32) -> ProptestConfig {
    ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn batches_give_the_results_of_plain_sqlite(setup in a_setup(), program in a_program(), split in a_split()) {
        let mut node = Node::with(&setup);
        let dir = tempfile::tempdir().unwrap();
        let plain = Plain::at(dir.path().join("db"));
        for sql in &setup {
            prop_assert!(plain.connect().unwrap().execute_batch(sql).is_ok());
        }
        let entries = entries(&program, |_| None);
        let outcomes = apply_split(&mut node, &entries, &split);
        for (entry, outcome) in entries.iter().zip(&outcomes) {
            let Payload::Proposal(stamp, bytes) = &entry.payload else { panic!("{entry:?}") };
            let proposal = quorate_model::codec::decode_proposal(bytes).unwrap();
            let expected = plain.run(*stamp, &proposal).unwrap();
            prop_assert_eq!(seen(outcome), expected, "{:?}: {:?}", proposal, outcome);
        }
        prop_assert_eq!(database_hashes(node.conn()), database_hashes(&plain.connect().unwrap()));
    }

    #[test]
    fn nothing_depends_on_where_batches_end(
        setup in a_setup(),
        program in a_program(),
        splits in prop::collection::vec(a_split(), 2),
        origins in prop::collection::vec((0..4_u64, 1..30_u64, 0..12_u64), 60),
    ) {
        // Requests of three sessions, one of them unknown. Sequences repeat, and floors rise.
        let first = setup.len() as u64 + 1;
        let opened = first + program.len() as u64;
        let origin = |number: usize| {
            let (session, sequence, floor) = origins[number];
            (session > 0).then_some(Origin { session: SessionId(opened + session), sequence, floor })
        };
        let open = Proposal::new(None, vec![ControlCommand::OpenSession.into(), ControlCommand::OpenSession.into()]);
        let vacuum = Proposal::new(origin(0), vec![SqlCommand::Vacuum.into()]);
        let mut all = entries(&program, |_| None);
        let mut next = opened;
        let mut push = |proposal: &Proposal, all: &mut Vec<Entry>| {
            all.push(entry(next, proposal));
            next += 1;
        };
        [&open, &open, &open, &vacuum].into_iter().for_each(|proposal| push(proposal, &mut all));
        for (number, proposal) in program.iter().enumerate() {
            push(&Proposal { origin: origin(number), ..proposal.clone() }, &mut all);
        }
        let run = |split: &[Batch]| {
            let mut node = Node::with(&setup);
            (apply_split(&mut node, &all, split), node.hashes(), database_hashes(node.conn()))
        };
        let singly = run(&[Batch { size: 1, prefetched: vec![], restart_ahead: false, restart: false }]);
        for split in &splits {
            let (outcomes, hashes, tables) = run(split);
            for (entry, (outcome, expected)) in all.iter().zip(outcomes.iter().zip(&singly.0)) {
                prop_assert_eq!(outcome, expected, "{:?}", entry);
            }
            prop_assert_eq!(tables, singly.2.clone());
            prop_assert_eq!(hashes, singly.1);
        }
    }
}

/// Arguments of many kinds.
const ARGUMENTS: [&str; 8] = ["NULL", "1", "-7.5", "'abc'", "x'00ff'", "'[1,{\"a\":2}]'", "'now'", "'%s'"];

/// The names of all functions.
fn functions(node: &Node) -> Vec<String> {
    let sql = "SELECT DISTINCT name FROM pragma_function_list WHERE name NOT LIKE '!_%' ESCAPE '!'";
    let mut statement = node.conn().prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn every_function_returns_the_same_on_every_node() {
    let mut nodes = [Node::with(&["CREATE TABLE t (x)"]), Node::with(&["CREATE TABLE t (x)"])];
    let names = functions(&nodes[0]);
    assert!(names.len() > 150);
    let argument = |place: usize| ARGUMENTS[place % ARGUMENTS.len()];
    for name in names {
        let lists = (0..4 * ARGUMENTS.len()).map(|case| {
            let (count, first) = (case / ARGUMENTS.len(), case % ARGUMENTS.len());
            // Each argument in first place, followed by some of the others.
            (0..count).map(|place| argument(first + 3 * place)).collect::<Vec<_>>().join(",")
        });
        let entries: Vec<Entry> = lists
            .flat_map(|list| {
                let call = format!("\"{name}\"({list})");
                [format!("INSERT INTO t SELECT {call}"), format!("SELECT x, {call} FROM t LIMIT 1")]
            })
            .zip(nodes[0].next..)
            .map(|(sql, index)| entry(index, &single(&sql)))
            .collect();
        let [one, other] = &mut nodes;
        let (outcomes, others) = (one.apply(&entries), other.apply(&entries));
        for ((entry, outcome), other) in entries.iter().zip(&outcomes).zip(&others) {
            assert_eq!(outcome, other, "{name}: {entry:?}");
        }
        assert_eq!(one.hashes(), other.hashes(), "{name}");
    }
}
