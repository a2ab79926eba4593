//! Measures how long encoding and decoding take: of a small write, of a batch of them, and of their outcomes. Prints
//! nanoseconds for one message, the least of many rounds.
//!
//! `cargo run --release -p quorate-model --example codec_rate [ROUNDS]`

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used, reason = "a measuring tool")]

use std::hint::black_box;
use std::time::Instant;

use quorate_model::codec::{
    append_canonical_outcome, append_outcome, decode_outcome, decode_proposal, encode_outcome, encode_proposal,
};
use quorate_model::{
    Command, Origin, Outcome, Proposal, Reply, SessionId, SqlCommand, SqlReply, Statement, StatementResult, Value,
};

const ROUNDS_DEFAULT: usize = 200;

/// Messages in a round.
const MESSAGES: u32 = 1000;

fn insert(number: i64) -> Command {
    let values = vec![Value::Integer(number), format!("name of {number}").into(), Value::Real(0.5)];
    let sql = "INSERT INTO t (a, b, c) VALUES (?1, ?2, ?3)".into();
    Command::Sql(SqlCommand::Statement(Statement { sql, params: values, names: vec![] }.into()))
}

fn proposal(commands: i64) -> Proposal {
    let origin = Origin { session: SessionId(1), sequence: 12_345, floor: 12_300 };
    Proposal::new(Some(origin), (0..commands).map(|number| insert(100_000 + number)).collect())
}

fn outcome(results: i64) -> Outcome {
    let result = |number| StatementResult { changes: 1, last_insert_rowid: number, ..StatementResult::default() };
    let results = (0..results).map(|number| SqlReply::Statement(result(100_000 + number)).into());
    Ok(Reply::of(results.collect::<quorate_model::Results>()))
}

/// The outcome of a statement that returns rows.
fn returned(rows: i64) -> Outcome {
    let row = |number| vec![Value::Integer(number), format!("name of {number}").into(), Value::Real(0.5)];
    let columns = ["a", "b", "c"].map(str::to_owned).into();
    let result = StatementResult { columns, rows: (0..rows).map(row).collect(), ..StatementResult::default() };
    Ok(Reply::of([SqlReply::Statement(result).into()]))
}

fn measure<T>(what: &str, rounds: usize, mut run: impl FnMut() -> T) {
    let round = || {
        let begun = Instant::now();
        (0..MESSAGES).for_each(|_| drop(black_box(run())));
        begun.elapsed()
    };
    let least = std::iter::repeat_with(round).take(rounds).min().unwrap_or_default();
    println!("{what:34} {:9.1} ns", least.as_secs_f64() * 1e9 / f64::from(MESSAGES));
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(ROUNDS_DEFAULT, |text| text.parse().unwrap());
    for (what, proposal) in [("an INSERT", proposal(1)), ("100 INSERTs", proposal(100))] {
        let bytes = encode_proposal(&proposal).unwrap();
        measure(&format!("{what}: encode"), rounds, || encode_proposal(black_box(&proposal)));
        measure(&format!("{what}: decode"), rounds, || decode_proposal(black_box(&bytes)));
    }
    let outcomes = [("its outcome", outcome(1)), ("100 outcomes", outcome(100)), ("100 rows", returned(100))];
    for (what, outcome) in outcomes {
        let bytes = encode_outcome(&outcome);
        let mut buffer = Vec::new();
        measure(&format!("{what}: encode"), rounds, || encode_outcome(black_box(&outcome)));
        measure(&format!("{what}: append"), rounds, || {
            buffer.clear();
            append_outcome(&mut buffer, black_box(&outcome));
        });
        measure(&format!("{what}: append canonical"), rounds, || {
            buffer.clear();
            append_canonical_outcome(&mut buffer, black_box(&outcome));
        });
        measure(&format!("{what}: decode"), rounds, || decode_outcome(black_box(&bytes)));
    }
}
