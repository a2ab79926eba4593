//! Tests of the replaced functions, the counters and the budget.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use quorate_env::Instant;

use super::budget::Spent;
use super::*;

fn connection() -> (Connection, Determinism) {
    let conn = Connection::open_in_memory().unwrap();
    let determinism = Determinism::install(&conn).unwrap();
    (conn, determinism)
}

fn text(conn: &Connection, sql: &str) -> String {
    conn.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0)).map(|value| format!("{value:?}")).unwrap()
}

#[test]
fn draws_match_published_values_of_splitmix64() {
    let (conn, determinism) = connection();
    determinism.begin(&conn, None, 1_234_567, u64::MAX);
    // The published values for this seed: 6457827717110365317, 3203168211198807973, 9817491932198370423.
    assert_eq!(text(&conn, "SELECT random()"), "Integer(6457827717110365317)");
    assert_eq!(text(&conn, "SELECT random()"), "Integer(3203168211198807973)");
    let third = i128::from(9_817_491_932_198_370_423_u64) - (1_i128 << 63);
    assert_eq!(text(&conn, "SELECT random()"), format!("Integer({})", -third));
    determinism.begin(&conn, None, 1_234_567, u64::MAX);
    let bytes = [6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973].map(u64::to_le_bytes).concat();
    assert_eq!(text(&conn, "SELECT randomblob(11)"), format!("Blob({:?})", &bytes[..11]));
}

#[test]
fn random_blobs_have_the_same_length_as_in_sqlite() {
    let (conn, _) = connection();
    let plain = Connection::open_in_memory().unwrap();
    for argument in ["NULL", "0", "-5", "7", "'9'", "' +12abc'", "'x'", "3.9", "x'3131'", "1000"] {
        let sql = format!("SELECT length(randomblob({argument}))");
        assert_eq!(text(&conn, &sql), text(&plain, &sql), "{argument}");
    }
}

#[test]
fn defaults_and_triggers_may_draw() {
    let (conn, determinism) = connection();
    conn.execute_batch(
        "PRAGMA trusted_schema = OFF; CREATE TABLE t (a DEFAULT (random()), b DEFAULT (hex(randomblob(4))));
         CREATE TABLE l (r);
         CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO l VALUES (RANDOM() + total_changes() * 0); END",
    )
    .unwrap();
    let run = || {
        determinism.begin(&conn, None, 5, u64::MAX);
        conn.execute_batch("DELETE FROM t; DELETE FROM l; INSERT INTO t DEFAULT VALUES; INSERT INTO t DEFAULT VALUES")
            .unwrap();
        text(&conn, "SELECT json_group_array(a) || json_group_array(b) || (SELECT json_group_array(r) FROM l) FROM t")
    };
    assert_eq!(run(), run());
}

#[test]
fn every_budget_has_time_for_all_its_steps() {
    use quorate_model::limits::{BUDGET_DEFAULT, BUDGET_MAX};
    // A step may take 16 ns in a release build.
    for steps in [0, BUDGET_DEFAULT, BUDGET_MAX] {
        assert!(budget::allowed(steps) >= Duration::from_nanos(steps * 16), "{steps}");
    }
}

#[test]
fn counters_are_reset_at_each_entry() {
    let (conn, determinism) = connection();
    conn.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1), (2)").unwrap();
    determinism.begin(&conn, None, 0, u64::MAX);
    let sql = "SELECT total_changes() || ' ' || last_insert_rowid()";
    assert_eq!(text(&conn, sql), "Text(\"0 0\")");
    conn.execute_batch("INSERT INTO t VALUES (3)").unwrap();
    assert_eq!(text(&conn, sql), "Text(\"1 3\")");
}

#[test]
fn the_statements_of_an_entry_share_its_time() {
    let (_conn, Determinism { budget, .. }) = connection();
    // Longer than other threads keep this one from running between two of its calls.
    let max = Duration::from_millis(500);
    budget.allow(Some(max));
    let statement = |pause: bool| {
        budget.start(false);
        let stops = budget.charge(1);
        let begun = Instant::now();
        while pause && begun.elapsed() < max {
            std::hint::spin_loop();
        }
        (stops, budget.finish(0))
    };
    budget.begin(None, u64::MAX >> 1);
    assert_eq!(statement(true), (false, Ok(())), "the time is checked once, at the beginning");
    assert_eq!(statement(false), (true, Err(Spent::Time)));
    budget.begin(None, u64::MAX >> 1);
    assert_eq!(statement(false), (false, Ok(())), "another entry has its own time");
}
