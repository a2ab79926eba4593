//! Tests that `snippet` and `highlight` return what SQLite's forms return, and are fast where those are slow.

use super::*;

const WORDS: [&str; 12] = ["fox", "a", "the", "dog", "fox.", "b:", "über", "d.\n", "fox-dog", "\t", "x\u{301}", "Fox"];

const QUERIES: [&str; 12] = [
    "fox",
    "a OR the",
    "\"fox dog\"",
    "\"a the\" OR \"the dog\" OR dog",
    "fox AND dog",
    "NEAR(fox dog, 3)",
    "fo*",
    "one : fox",
    "über OR x",
    "\"a a\" OR a",
    "fox fox OR fox",
    "\"the fox dog a\" OR b",
];

const TABLES: [&str; 6] = [
    "fts5(one, two)",
    "fts5(one, two, tokenize = 'trigram')",
    "fts5(one, two, tokenize = 'porter')",
    "fts5(one, two, detail = column)",
    "fts5(one, two, columnsize = 0)",
    "fts5(one, two UNINDEXED)",
];

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40).prop_map(|words| words.join(" "))
}

fn found_in(conn: &Connection, table: &str, rows: &[(String, String)], query: &str, tokens: i64) -> Vec<String> {
    conn.execute_batch(&format!("CREATE VIRTUAL TABLE t USING {table}")).unwrap();
    for row in rows {
        conn.execute("INSERT INTO t VALUES (?1, ?2)", (&row.0, &row.1)).unwrap();
    }
    let calls = (-1..=2).flat_map(|column| {
        let snippet = format!("snippet(t, {column}, '[', ']', '...', {tokens})");
        [snippet, format!("highlight(t, {column}, '<', '>')")]
    });
    let results = calls.map(|call| {
        let sql = format!("SELECT {call} FROM t(?1) ORDER BY rowid");
        format!("{call}: {:?}", run(conn, &sql, &[Value::Text(query.to_owned())]))
    });
    results.collect()
}

proptest! {
    #[test]
    fn excerpts_equal_those_of_sqlite(
        rows in prop::collection::vec((text(), text()), 1..4),
        query in prop::sample::select(&QUERIES[..]),
        table in prop::sample::select(&TABLES[..]),
        tokens in 1..50_i64,
    ) {
        let theirs = found_in(&Connection::open_in_memory().unwrap(), table, &rows, query, tokens);
        prop_assert_eq!(found_in(&own(), table, &rows, query, tokens), theirs);
    }
}

#[test]
fn excerpts_of_many_instances_are_fast() {
    let conn = own();
    conn.execute_batch("CREATE VIRTUAL TABLE t USING fts5(one)").unwrap();
    conn.execute("INSERT INTO t VALUES (?1)", ["fox ".repeat(200_000)]).unwrap();
    let begun = Instant::now();
    let sql = "SELECT length(snippet(t, 0, '[', ']', '...', 64)), length(highlight(t, 0, '<', '>')) FROM t('fox')";
    let lengths = run(&conn, sql, &[]).unwrap();
    assert_eq!(lengths, [Value::Integer(64 * 6 - 1 + 3), Value::Integer(200_000 * 6)]);
    // SQLite's forms take time that grows with the square of the instances. A busy machine is slower too, but not so.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn numbers_beyond_their_range_mean_what_they_do_in_sqlite() {
    let (own, theirs) = (own(), Connection::open_in_memory().unwrap());
    for conn in [&own, &theirs] {
        conn.execute_batch("CREATE VIRTUAL TABLE t USING fts5(one, two)").unwrap();
        conn.execute("INSERT INTO t VALUES (?1, 'a fox')", ["fox b c d e f g h i j ".repeat(20)]).unwrap();
    }
    let tokens = [64, 65, 100, 1 << 32, (1 << 32) + 3, i64::MAX].map(|tokens| (0, tokens));
    let columns = [2, 1 << 31, 1 << 32, (1 << 32) + 1, i64::MAX, -2, -(1 << 32), i64::MIN].map(|column| (column, 5));
    for (column, tokens) in tokens.into_iter().chain(columns) {
        for call in
            [format!("snippet(t, {column}, '[', ']', '...', {tokens})"), format!("highlight(t, {column}, '', '!')")]
        {
            let sql = format!("SELECT {call} FROM t('fox')");
            assert_eq!(super::run(&own, &sql, &[]), super::run(&theirs, &sql, &[]), "{call}");
        }
    }
}

#[test]
fn wrong_arguments_of_excerpts_are_errors() {
    let conn = own();
    conn.execute_batch("CREATE VIRTUAL TABLE t USING fts5(one); INSERT INTO t VALUES ('a b c')").unwrap();
    let fails = |call: &str| run(&conn, &format!("SELECT {call} FROM t('b')"), &[]).unwrap_err();
    assert!(fails("snippet(t, 0, '[', ']', '...')").contains("wrong number of arguments to function snippet()"));
    assert!(fails("highlight(t, 0)").contains("wrong number of arguments to function highlight()"));
    assert!(fails("snippet(t, 0, '[', ']', '...', 0)").contains("from 1 on; more than 64 count as 64"));
    let long = "highlight(t, 0, printf('%.*c', 900000000, 'x'), '')";
    conn.set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LENGTH, 1_000_000).unwrap();
    assert!(run(&conn, &format!("SELECT {long} FROM t('b')"), &[]).is_err());
}
