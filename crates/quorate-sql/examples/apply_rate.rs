//! Measures how long applying takes: single-row inserts, in batches, without and with a session; then bulk statements
//! with many rows of 19 columns.
//!
//! `cargo run --release -p quorate-sql --example apply_rate [ENTRIES [BATCH...]]`

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used, reason = "a measuring tool")]

use std::time::Instant;

use quorate_env::Env;
use quorate_model::codec::encode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{
    Bulk, Command, ControlCommand, Entry, LogId, NodeId, Origin, Payload, Proposal, RowPacker, SessionId, SqlCommand,
    Stamp, Statement, StoreIdentity, Value, ValueRef,
};
use quorate_sql::Extensions;
use quorate_sql::connection::open_writer;
use quorate_sql::generation::Generations;
use quorate_sql::machine::{Applier, SqlMachine};
use quorate_sql::options::WRITER_CACHE_BYTES_DEFAULT;

fn entry(index: u64, proposal: &Proposal) -> Entry {
    let log_id = LogId { term: 1, node: NodeId(1), index };
    let stamp = Stamp { now: 1_700_000_000_000_000_000 + index * 1_000_000, seed: index };
    Entry { log_id, payload: Payload::Proposal(stamp, encode_proposal(proposal).unwrap()) }
}

fn statement(sql: &str, params: Vec<Value>) -> Command {
    Command::Sql(SqlCommand::Statement(Statement { sql: sql.to_owned().into(), params, names: vec![] }.into()))
}

fn insert(number: u64, session: Option<SessionId>) -> Proposal {
    let origin = session.map(|session| Origin { session, sequence: number, floor: number.saturating_sub(32) });
    let values = vec![Value::Integer(number.cast_signed()), format!("name of {number}").into(), Value::Real(0.5)];
    Proposal::new(origin, vec![statement("INSERT INTO t (a, b, c) VALUES (?1, ?2, ?3)", values)])
}

/// The number of columns in the rows of a bulk statement; every fourth is a short text.
const COLUMNS: i64 = 19;

fn bulk(rows: i64) -> Proposal {
    let mut packer = RowPacker::new(COLUMNS as usize);
    for row in 0..rows {
        for column in 0..COLUMNS {
            packer.push(if column % 4 == 3 {
                ValueRef::Text("N14228")
            } else {
                ValueRef::Integer(row * column % 3000)
            });
        }
        packer.end_row().unwrap();
    }
    let places = vec!["?"; COLUMNS as usize].join(",");
    Proposal::new(
        None,
        vec![
            SqlCommand::Bulk(Bulk { sql: format!("INSERT INTO wide VALUES ({places})").into(), rows: packer.finish() })
                .into(),
        ],
    )
}

fn apply(applier: &mut Applier, entries: &[Entry]) {
    let mut outcomes = Vec::with_capacity(entries.len());
    while outcomes.len() < entries.len() {
        applier.apply_batch(entries.get(outcomes.len()..).unwrap(), &mut outcomes).unwrap();
    }
    assert!(outcomes.iter().all(Result::is_ok));
}

fn main() {
    let names: Vec<String> = (0..COLUMNS).map(|column| format!("c{column}")).collect();
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let entries: u64 = numbers.next().unwrap_or(200_000);
    let mut batches: Vec<usize> = numbers.map(|number| number as usize).collect();
    if batches.is_empty() {
        batches.extend([1, 64, 1024]);
    }
    let dir = tempfile::tempdir().unwrap();
    let generations = Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default()).unwrap();
    let conn = open_writer(&generations.current(), WRITER_CACHE_BYTES_DEFAULT).unwrap();
    let machine = SqlMachine::open(conn, &StoreIdentity::default(), &Extensions::default()).unwrap();
    let mut applier = Applier::new(machine, FORMAT_LEVEL).unwrap();
    let table = statement("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c)", vec![]);
    let session = SessionId(1);
    let wide = statement(&format!("CREATE TABLE wide ({})", names.join(",")), vec![]);
    let setup = Proposal::new(None, vec![Command::Control(ControlCommand::OpenSession), table, wide]);
    apply(&mut applier, &[entry(1, &setup)]);
    let mut next = 2;
    for batch in batches {
        for session in [None, Some(session)] {
            let work: Vec<Entry> = (next..next + entries).map(|index| entry(index, &insert(index, session))).collect();
            next += entries;
            let begun = Instant::now();
            for batch in work.chunks(batch) {
                apply(&mut applier, batch);
            }
            let micros = begun.elapsed().as_secs_f64() * 1e6 / work.len() as f64;
            let with = if session.is_some() { "with a session" } else { "without" };
            println!("batches of {batch:4}, {with:14}: {micros:5.2} us an entry");
        }
    }
    for rows in [100, 10_000] {
        let count = entries.div_ceil(rows);
        let work: Vec<Entry> = (next..next + count).map(|index| entry(index, &bulk(rows as i64))).collect();
        next += count;
        let begun = Instant::now();
        for batch in work.chunks(8) {
            apply(&mut applier, batch);
        }
        let micros = begun.elapsed().as_secs_f64() * 1e6 / (count * rows) as f64;
        println!("bulk statements of {rows:5} rows of {COLUMNS} columns: {micros:5.2} us a row");
    }
}
