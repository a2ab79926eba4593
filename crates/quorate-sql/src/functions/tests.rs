//! Tests that the replacements return what SQLite's functions return, and are fast where those are slow.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rusqlite::types::Value;

use super::*;

mod excerpt;

fn own() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    install(&conn, &unmetered()).unwrap();
    conn
}

/// Returns the values that a statement returns for these parameters. Texts are shown as bytes, because they need not be
/// UTF-8.
fn run(conn: &Connection, sql: &str, values: &[Value]) -> Result<Vec<Value>, String> {
    let mut statement = conn.prepare(sql).map_err(|error| error.to_string())?;
    let width = statement.column_count();
    let mut rows = statement.query(rusqlite::params_from_iter(values)).unwrap();
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(|error| error.to_string())? {
        for column in 0..width {
            all.push(match row.get_ref(column).unwrap() {
                rusqlite::types::ValueRef::Text(text) => Value::Text(format!("{text:?}")),
                value => value.try_into().unwrap(),
            });
        }
    }
    Ok(all)
}

/// Generates bytes from few pieces, so that matches are frequent; some are not UTF-8.
fn bytes(signs: &'static [&'static [u8]], length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(signs), 0..length).prop_map(|parts| parts.concat())
}

/// Generates a value, and whether to cast it to text.
fn value(signs: &'static [&'static [u8]], length: usize) -> impl Strategy<Value = (Value, bool)> {
    let number = prop_oneof![
        Just(Value::Null),
        (-200..200_i64).prop_map(Value::Integer),
        prop::sample::select(vec![0.0, -1.5, 1e100, 1e-7, 123.456, f64::INFINITY]).prop_map(Value::Real),
    ];
    prop_oneof![
        8 => bytes(signs, length).prop_map(|bytes| (Value::Blob(bytes), true)),
        2 => bytes(signs, length).prop_map(|bytes| (Value::Blob(bytes), false)),
        1 => number.prop_map(|number| (number, false)),
    ]
}

fn call(function: &str, arguments: &[(Value, bool)]) -> (String, Vec<Value>) {
    let texts = arguments
        .iter()
        .zip(1..)
        .map(|((_, is_text), number)| if *is_text { format!("CAST(?{number} AS TEXT)") } else { format!("?{number}") });
    let sql = format!("SELECT {function}({})", texts.collect::<Vec<_>>().join(", "));
    (sql, arguments.iter().map(|(value, _)| value.clone()).collect())
}

const TEXT: &[&[u8]] = &[
    b"a",
    b"A",
    b"b",
    b"ab",
    b"1",
    b"F",
    b" ",
    b"\0",
    b"\xc3\xa4",
    b"\xc3",
    b"\x84",
    b"\xf0\x9f\x98\x80",
    b"\xe2\x82",
    b"]",
    b"-",
    b"\xff",
    b"\xed\xa0\x80",
];
const LIKE: &[&[u8]] =
    &[b"a", b"A", b"b", b"ab", b"%", b"%", b"_", b"\\", b"\xc3\xa4", b"\xc3", b"\x84", b"\xff", b"\0", b"1"];
const GLOB: &[&[u8]] = &[
    b"a",
    b"A",
    b"b",
    b"*",
    b"*",
    b"?",
    b"[",
    b"]",
    b"^",
    b"-",
    b"[ab]",
    b"[^a]",
    b"[a-b]",
    b"\xc3\xa4",
    b"\x84",
    b"\0",
];
const ESCAPE: &[&[u8]] = &[b"\\", b"a", b"%", b"_", b"\xc3\xa4", b"\xc3"];
const FEW: &[&[u8]] = &[b"a", b"b", b"\xc3\xa4", b"\xc3", b"\xa4", b"\0", b"A"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 8000, ..ProptestConfig::default() })]

    #[test]
    fn results_equal_those_of_sqlite(
        like in value(LIKE, 8), glob in value(GLOB, 8), escape in value(ESCAPE, 3),
        text in value(TEXT, 10), few in value(FEW, 12), part in value(FEW, 4), by in value(TEXT, 3),
    ) {
        thread_local!(static BOTH: (Connection, Connection) = (own(), Connection::open_in_memory().unwrap()));
        let calls = [
            call("like", &[like.clone(), text.clone()]),
            call("like", &[like.clone(), few.clone(), escape.clone()]),
            call("like", &[like, text.clone(), escape]),
            call("glob", &[glob.clone(), text.clone()]),
            call("glob", &[glob, few.clone()]),
            call("instr", &[few.clone(), part.clone()]),
            call("instr", &[text.clone(), by.clone()]),
            call("replace", &[few.clone(), part.clone(), by.clone()]),
            call("trim", &[few.clone(), part.clone()]),
            call("ltrim", &[few.clone(), part.clone()]),
            call("rtrim", &[few.clone(), part.clone()]),
            call("trim", &[text.clone(), by.clone()]),
            call("unhex", &[text, by]),
            call("unhex", &[few, part]),
        ];
        BOTH.with(|(own, plain)| {
            for (sql, values) in &calls {
                prop_assert_eq!(run(own, sql, values), run(plain, sql, values), "{} {:?}", sql, values);
            }
            Ok(())
        })?;
    }
}

const JSON: &[&[u8]] =
    &[b"a", b"\"", b"\\", b",", b"]", b"{", b"\n", b"\x01", b"\x7f", b"'", b"\xc3\xa4", b"\0", b"@", b"1"];
const JSONB: &[&[u8]] = &[b"\x0c", b"\x17a", b"\x2b\x13\x31", b"\x00", b"\x4c\x17a\x13\x31", b"\xff"];

const CALLS: &[&str] =
    &["json_group_array(v)", "jsonb_group_array(v)", "json_group_object(k, v)", "jsonb_group_object(k, v)"];
const NUMBERS: &[&str] = &["NULL", "0.1", "-1e300", "1e999", "5e-324", "100.0", "''", "-9223372036854775808"];
const MEMBERS: &[&str] = &["'a',1", "'b',NULL", "'c',json_object('a',2,'b',NULL)", "'d',json('[1,2]')"];

/// Generates an SQL expression for a value of a row.
fn an_element() -> impl Strategy<Value = String> {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    prop_oneof![
        4 => bytes(JSON, 5).prop_map(move |bytes| format!("CAST(x'{}' AS TEXT)", hex(bytes))),
        2 => bytes(JSON, 4).prop_map(move |bytes| format!("json_array(CAST(x'{}' AS TEXT), 1, NULL)", hex(bytes))),
        1 => bytes(JSON, 4).prop_map(move |bytes| format!("jsonb_object('k', CAST(x'{}' AS TEXT))", hex(bytes))),
        1 => bytes(JSONB, 2).prop_map(move |bytes| format!("x'{}'", hex(bytes))),
        1 => (-99..99_i64).prop_map(|number| number.to_string()),
        2 => prop::sample::select(NUMBERS).prop_map(str::to_owned),
    ]
}

/// Generates an SQL expression for a JSON document, or for something that is not one.
fn a_document() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::subsequence(MEMBERS, 0..4)
            .prop_map(|members| format!("json_object({})", members.join(","))),
        2 => prop::sample::subsequence(vec!["'a',3", "'b',NULL", "'c',json_object('a',NULL)"], 0..3)
            .prop_map(|members| format!("jsonb_object({})", members.join(","))),
        2 => an_element(),
        1 => Just("'{a:1,}'".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn patches_equal_those_of_sqlite(target in a_document(), patch in a_document()) {
        let (own, plain) = (own(), Connection::open_in_memory().unwrap());
        for sql in [
            format!("SELECT json_patch({target}, {patch}), jsonb_patch({target}, {patch})"),
            format!("SELECT json_array(json_patch({target}, {patch}))"),
        ] {
            prop_assert_eq!(run(&own, &sql, &[]), run(&plain, &sql, &[]), "{}", sql);
        }
    }
}

#[test]
fn patches_of_many_members_are_refused() {
    let conn = own();
    let keys = |count: usize| {
        let rows =
            format!("(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT {count}) SELECT x FROM c)");
        format!("(SELECT json_group_object(x, x) FROM {rows})")
    };
    assert!(run(&conn, &format!("SELECT json_patch({}, {})", keys(3000), keys(3000)), &[]).is_ok());
    let refused = run(&conn, &format!("SELECT json_patch({}, {})", keys(5000), keys(5000)), &[]).unwrap_err();
    assert!(refused.contains("too many members"), "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn json_aggregates_equal_those_of_sqlite(
        rows in prop::collection::vec((an_element(), an_element()), 0..6), width in 0..4_usize,
    ) {
        let (own, plain) = (own(), Connection::open_in_memory().unwrap());
        let row = |((key, value), number)| format!("SELECT {number} AS n, {key} AS k, {value} AS v");
        let values = rows.iter().map(|(key, value)| (key, value)).zip(1..).map(row);
        let none = std::iter::once("SELECT 0 AS n, 0 AS k, 0 AS v WHERE 0".to_owned());
        let rows = none.chain(values).collect::<Vec<_>>().join(" UNION ALL ");
        for call in CALLS {
            for sql in [
                format!("SELECT {call} FROM ({rows})"),
                format!("SELECT typeof({call}), json_array({call}), json_valid({call}, 5) FROM ({rows})"),
                format!("SELECT {call} FROM ({rows}) GROUP BY n % 2 ORDER BY n % 2"),
                format!("SELECT {call} OVER (ORDER BY n ROWS BETWEEN {width} PRECEDING AND CURRENT ROW) FROM ({rows})"),
                format!("SELECT {call} FILTER (WHERE n > 1) FROM ({rows})"),
            ] {
                prop_assert_eq!(run(&own, &sql, &[]), run(&plain, &sql, &[]), "{}", sql);
            }
        }
    }
}

#[test]
fn json_aggregates_stop_at_the_limit() {
    let conn = own();
    conn.set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LENGTH, 1_000_000).unwrap();
    let rows = "FROM (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c)";
    for call in ["json_group_array(x)", "jsonb_group_array('a')", "json_group_object(x, x)", "jsonb_group_object(x, 1)"]
    {
        assert_eq!(run(&conn, &format!("SELECT {call} {rows}"), &[]), Err("string or blob too big".to_owned()));
    }
}

#[test]
fn patterns_use_an_index() {
    let (own, plain) = (own(), Connection::open_in_memory().unwrap());
    let queries = [
        "SELECT * FROM t WHERE a GLOB 'abc*'",
        "SELECT * FROM t WHERE b LIKE 'abc%'",
        "SELECT * FROM t WHERE b LIKE 'ab\\_c%' ESCAPE '\\'",
        "SELECT * FROM t WHERE a LIKE 'abc%'",
        "SELECT * FROM t WHERE b GLOB 'abc*'",
        "SELECT * FROM t WHERE a GLOB 'a[b]c*'",
        "SELECT * FROM t WHERE a GLOB '*abc'",
    ];
    let plans = [&own, &plain].map(|conn| {
        conn.execute_batch(
            "CREATE TABLE t (a TEXT, b TEXT COLLATE NOCASE); CREATE INDEX i ON t (a); CREATE INDEX j ON t (b);
             INSERT INTO t VALUES ('abcd', 'ABCD'), ('ABC', 'ab_cd'), ('xabc', 'abc'), ('abc', 'äbc')",
        )
        .unwrap();
        queries.map(|sql| {
            let plan = run(conn, &format!("EXPLAIN QUERY PLAN {sql}"), &[]).unwrap();
            (plan.into_iter().filter(|value| matches!(value, Value::Text(_))).collect::<Vec<_>>(), run(conn, sql, &[]))
        })
    });
    assert_eq!(plans[0], plans[1]);
    let search = format!("{:?}", b"SEARCH t USING INDEX i (a>? AND a<?)");
    assert_eq!(plans[0][0].0, [Value::Text(search)]);
}

#[test]
fn hostile_arguments_end_soon() {
    let conn = own();
    let a = |count: usize| format!("printf('%.*c', {count}, 'a')");
    let blob = |count: usize| format!("CAST(zeroblob({count}) AS TEXT)");
    for (sql, is_refused) in [
        (format!("{} LIKE replace(printf('%.*c', 24999, 'x'), 'x', '%a')", a(60_000)), false),
        (format!("{} GLOB replace(printf('%.*c', 24999, 'x'), 'x', '*a')", a(60_000)), false),
        (format!("{} LIKE '%' || {} || 'b'", a(3_000_000), a(25_000)), true),
        (format!("{} GLOB '*' || {} || 'b'", a(3_000_000), a(25_000)), true),
        (format!("{} GLOB '*[' || {} || ']b'", a(3_000_000), a(25_000)), true),
        (format!("{} LIKE '%' || replace({}, 'a', '_') || 'b'", a(3_000_000), a(25_000)), false),
        ("instr(zeroblob(3000000), zeroblob(1500000) || x'01')".to_owned(), false),
        (format!("instr({}, {} || 'b')", a(3_000_000), a(1_500_000)), false),
        (format!("length(replace({}, {} || 'b', ''))", a(3_000_000), a(1_500_000)), false),
        (format!("length(trim({}, 'b' || {}))", a(10_000_000), a(10_000_000)), false),
        (format!("length(rtrim({0}, hex(randomblob(1000000)) || {0}))", a(10_000_000)), false),
        (
            format!(
                "length(unhex({}, {}))",
                "replace(hex(zeroblob(2000000)), '00', '-00')", "hex(zeroblob(3000000)) || '-'"
            ),
            false,
        ),
        (format!("length({})", blob(10)), false),
    ] {
        let begun = Instant::now();
        let done = run(&conn, &format!("SELECT {sql}"), &[]);
        // A generous limit, for an unoptimized build on a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(20), "{sql}: {:?}", begun.elapsed());
        eprintln!("{:?} {sql} {done:?}", begun.elapsed());
        match done {
            Err(text) if is_refused => assert!(text.contains("needs too many comparisons for a value of"), "{text}"),
            done => assert!(done.is_ok() && !is_refused, "{sql}: {done:?}"),
        }
    }
}
