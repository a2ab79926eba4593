//! SQLite reads each literal as the value that it was written from.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::*;

/// The storage class and the bytes of an expression.
fn read(conn: &Connection, expression: &str) -> (String, Vec<u8>) {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(match row.get_ref(0)? {
            ValueRef::Null => ("null".to_owned(), vec![]),
            ValueRef::Integer(value) => ("integer".to_owned(), value.to_be_bytes().to_vec()),
            ValueRef::Real(value) => ("real".to_owned(), value.to_bits().to_be_bytes().to_vec()),
            ValueRef::Text(bytes) => ("text".to_owned(), bytes.to_vec()),
            ValueRef::Blob(bytes) => ("blob".to_owned(), bytes.to_vec()),
        })
    };
    conn.query_row(&format!("SELECT {expression}"), [], read).unwrap()
}

fn any_real() -> impl Strategy<Value = f64> {
    let bits = any::<u64>().prop_map(f64::from_bits);
    let decimal = (any::<i32>(), -30..30_i32).prop_map(|(digits, exponent)| f64::from(digits) * 10_f64.powi(exponent));
    let third = (any::<i64>(), 1..1000_i32).prop_map(|(a, b)| a as f64 / f64::from(b));
    prop_oneof![bits, decimal, third].prop_filter("a number", |value| !value.is_nan())
}

#[test]
fn numbers_at_the_edges_are_exact() {
    let conn = Connection::open_in_memory().unwrap();
    for number in [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.1 + 0.2,
        1e15,
        1e16,
        123_456_789_012_345_680.0,
        5e-324,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        f64::EPSILON,
        f64::INFINITY,
        f64::NEG_INFINITY,
        9_007_199_254_740_993.0,
        1.0 / 3.0,
        2.5e-5,
    ] {
        let expected = ("real".to_owned(), number.to_bits().to_be_bytes().to_vec());
        assert_eq!(read(&conn, &real(number)), expected, "{number:?} as {}", real(number));
    }
    for number in [i64::MIN, -1, 0, i64::MAX] {
        let expected = ("integer".to_owned(), number.to_be_bytes().to_vec());
        assert_eq!(read(&conn, &value(&Value::Integer(number))), expected);
    }
    assert_eq!(real(0.1 + 0.2), "0.3000000000000000444");
    assert_eq!(real(1e15), "1000000000000000.0");
    assert_eq!(real(-2.5), "-2.5");
    assert_eq!(real(1e22), "1e22");
    assert_eq!(real(-1e23), "-5960464477539062.0*16777216.0");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn reals_come_back_to_the_bit(number in any_real()) {
        let conn = Connection::open_in_memory().unwrap();
        let expected = ("real".to_owned(), number.to_bits().to_be_bytes().to_vec());
        prop_assert_eq!(read(&conn, &real(number)), expected, "{:?} as {}", number, real(number));
    }

    #[test]
    fn texts_and_blobs_come_back_to_the_byte(bytes: Vec<u8>, written: String) {
        let conn = Connection::open_in_memory().unwrap();
        for bytes in [&bytes[..], written.as_bytes()] {
            prop_assert_eq!(read(&conn, &text(bytes)), ("text".to_owned(), bytes.to_vec()));
            prop_assert_eq!(read(&conn, &blob(bytes)), ("blob".to_owned(), bytes.to_vec()));
            prop_assert!(!text(bytes).chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')));
        }
    }

    #[test]
    fn names_come_back(name in "[^\u{0}]{1,12}|[a-z_]{1,8}") {
        let conn = Connection::open_in_memory().unwrap();
        let sql = format!("SELECT 1 AS {}", super::name(&name));
        let statement = conn.prepare(&sql).unwrap();
        prop_assert_eq!(statement.column_name(0).unwrap(), name.as_str());
    }
}

#[test]
fn keywords_are_quoted_where_names_are_meant() {
    let conn = Connection::open_in_memory().unwrap();
    for keyword in crate::keywords::KEYWORDS {
        let table = name(&keyword.to_lowercase());
        conn.execute_batch(&format!("CREATE TABLE {table} ({table}); DROP TABLE {table}")).unwrap();
    }
    assert_eq!(
        (name("users"), name("order"), name("a b"), name("\"")),
        ("users".into(), "\"order\"".into(), "\"a b\"".into(), "\"\"\"\"".into())
    );
}
