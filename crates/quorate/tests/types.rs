//! Values of other crates' types make a round trip through a node: exactly, as texts that sort and that SQLite
//! understands.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::fmt::Debug;

use bytes::Bytes;
use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use jiff::civil;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use quorate::sql::{FromRowOwned, FromValue};
use quorate::{Error, FromRow, Rows, Sql, Value};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::json;
use support::on_both;
use time::{OffsetDateTime, PrimitiveDateTime};
use uuid::Uuid;

/// Checks that the stored text or blob is read as the same value.
#[track_caller]
fn kept<T: Into<Value> + for<'a> FromValue<'a> + Clone + Debug + PartialEq>(value: &T) -> Value {
    let kept: Value = value.clone().into();
    assert_eq!(T::from_value(&kept).as_ref(), Ok(value), "{kept}");
    kept
}

/// Nanoseconds of an instant that all libraries support: years 0 to 9999, with some margin for offsets.
fn instants() -> impl Strategy<Value = i128> {
    let second = prop_oneof![-62_167_132_800_i64..253_402_214_400, 1_700_000_000_i64..1_700_000_100];
    let nanos = prop_oneof![Just(0_u32), Just(500_000_000), 0_u32..1_000_000_000];
    (second, nanos).prop_map(|(second, nanos)| i128::from(second) * 1_000_000_000 + i128::from(nanos))
}

struct Instant {
    chrono: DateTime<Utc>,
    jiff: jiff::Timestamp,
    time: OffsetDateTime,
}

fn instant(nanos: i128) -> Instant {
    let second = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap();
    let rest = u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap();
    Instant {
        chrono: DateTime::from_timestamp(second, rest).unwrap(),
        jiff: jiff::Timestamp::from_nanosecond(nanos).unwrap(),
        time: OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap(),
    }
}

#[test]
fn all_libraries_store_times_as_the_same_texts() {
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    let mut runner = TestRunner::new(Cases::with_cases(2000));
    let property = |(nanos, other, offset): (i128, i128, i32)| {
        let Instant { chrono, jiff, time } = instant(nanos);
        let Value::Text(text) = kept(&chrono) else { panic!("a text") };
        assert_eq!([kept(&jiff), kept(&time)], [Value::Text(text.clone()), Value::Text(text.clone())]);
        let Value::Text(later) = kept(&instant(other).chrono) else { panic!("a text") };
        assert_eq!(text.cmp(&later), nanos.cmp(&other));
        // SQLite rounds to milliseconds, and these functions to seconds.
        let read: f64 = sqlite.query_row("SELECT unixepoch(?, 'subsec')", [&text], |row| row.get(0)).unwrap();
        assert!((read - chrono.timestamp_micros() as f64 / 1e6).abs() < 0.002, "{text}: {read}");
        // With an offset, it is the same instant for Quorate and for SQLite.
        let east = chrono.with_timezone(&FixedOffset::east_opt(offset * 60).unwrap());
        let Value::Text(abroad) = kept(&east) else { panic!("a text") };
        assert_eq!(DateTime::<Utc>::from_value(&abroad.as_str().into()), Ok(chrono));
        let there = time.to_offset(time::UtcOffset::from_whole_seconds(offset * 60).unwrap());
        assert_eq!(kept(&there), Value::Text(abroad.clone()));
        let again: f64 = sqlite.query_row("SELECT unixepoch(?, 'subsec')", [&abroad], |row| row.get(0)).unwrap();
        assert_eq!(again.to_bits(), read.to_bits(), "{abroad}");
        // A time without an offset is no instant for these types; its parts can be read separately.
        let (local, civil) = (chrono.naive_utc(), jiff::tz::Offset::UTC.to_datetime(jiff));
        let primitive = PrimitiveDateTime::new(time.date(), time.time());
        assert_eq!(
            [kept(&local), kept(&civil), kept(&primitive)],
            [const { Value::Null }; 3].map(|_| Value::Text(text.clone()))
        );
        let (date, clock) = text.split_once(' ').unwrap();
        assert_eq!([kept(&local.date()), kept(&civil.date()), kept(&time.date())], [date; 3].map(Value::from));
        assert_eq!([kept(&local.time()), kept(&civil.time()), kept(&time.time())], [clock; 3].map(Value::from));
        Ok(())
    };
    runner.run(&(instants(), instants(), -14 * 60..14 * 60), property).unwrap();
}

#[test]
fn times_beyond_the_range_of_sqlite_are_kept() {
    for date in [NaiveDate::MIN, NaiveDate::MAX] {
        kept(&date.and_time(NaiveTime::MIN));
    }
    let leap = NaiveTime::from_hms_nano_opt(23, 59, 59, 1_500_000_000).unwrap();
    assert_eq!(kept(&leap), "23:59:60.5".into());
    kept(&jiff::Timestamp::MIN);
    kept(&civil::DateTime::MAX);
}

/// Returns the error for reading a text, or another value, as a type.
#[track_caller]
fn refused<T: for<'a> FromValue<'a> + Debug>(value: impl Into<Value>, text: &str) {
    assert_eq!(T::from_value(&value.into()).unwrap_err().to_string(), text);
}

#[test]
fn invalid_values_are_refused_with_a_reason() {
    refused::<NaiveDate>("2026-02-30", "a date as TEXT (YYYY-MM-DD) was expected, it holds TEXT 2026-02-30");
    refused::<civil::Time>("24:00", "a time of day as TEXT (HH:MM:SS) was expected, it holds TEXT 24:00");
    let local = "a date and a time without an offset as TEXT (YYYY-MM-DD HH:MM:SS) was expected, it holds ";
    refused::<NaiveDateTime>("2026-02-03 04:05Z", &format!("{local}TEXT 2026-02-03 04:05Z"));
    refused::<PrimitiveDateTime>(5, &format!("{local}INTEGER"));
    let moment =
        "a date and a time as TEXT (YYYY-MM-DD HH:MM:SS, with an offset if it is not UTC) was expected, it holds ";
    refused::<OffsetDateTime>("2026-02-03", &format!("{moment}TEXT 2026-02-03"));
    refused::<jiff::Timestamp>(Value::Null, &format!("{moment}NULL; read it as an Option"));
    refused::<Uuid>(vec![1_u8, 2], "a UUID as a BLOB of 16 bytes or as TEXT was expected, it holds BLOB x'0102'");
    refused::<Decimal>(0.1, "a decimal number as TEXT, or an INTEGER was expected, it holds REAL");
    refused::<Decimal>("1e", "a decimal number as TEXT, or an INTEGER was expected, it holds TEXT 1e");
    refused::<serde_json::Value>("{", "JSON as TEXT was expected, it holds TEXT {");
    refused::<Bytes>("text", "a BLOB was expected, it holds TEXT");
}

async fn there_and_back<T>(sql: &Sql, value: T) -> Result<(), Error>
where
    T: Into<Value> + FromRowOwned + Clone + Debug + PartialEq,
{
    sql.execute("INSERT INTO kept VALUES (?)", (value.clone(),)).await?;
    let last = "SELECT value FROM kept ORDER BY rowid DESC LIMIT 1";
    assert_eq!(sql.query_one::<T>(last, ()).await, Ok(value));
    Ok(())
}

#[test]
fn values_make_a_round_trip() {
    on_both(async |sql| {
        sql.execute("CREATE TABLE kept (value)", ()).await?;
        let Instant { chrono, jiff, time } = instant(1_767_225_600_123_456_789);
        there_and_back(&sql, chrono).await?;
        there_and_back(&sql, jiff).await?;
        there_and_back(&sql, time).await?;
        there_and_back(&sql, Some(chrono.date_naive())).await?;
        there_and_back(&sql, Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)).await?;
        there_and_back(&sql, "79228162514264337593543950.335".parse::<Decimal>().unwrap()).await?;
        there_and_back(&sql, json!({"a": [1, null, "é"], "b": {"c": 0.5}})).await?;
        there_and_back(&sql, Bytes::from_static(b"\0\xff")).await?;
        Ok(())
    });
}

#[derive(Debug, PartialEq, Deserialize)]
struct Point {
    x: i64,
    y: i64,
}

#[derive(Debug, FromRow, PartialEq)]
struct Shape {
    name: String,
    #[quorate(json)]
    points: Vec<Point>,
    #[quorate(json, rename = "centre")]
    middle: Option<Point>,
    #[quorate(json, default)]
    holes: Vec<Point>,
}

const SHAPES: &str = r#"SELECT 'line' AS name, '[{"x": 1, "y": 2}]' AS points, NULL AS centre, NULL AS holes"#;

#[test]
fn json_is_read_into_fields() {
    on_both(async |sql| {
        let line =
            Shape { name: "line".to_owned(), points: vec![Point { x: 1, y: 2 }], middle: None, holes: Vec::new() };
        assert_eq!(sql.query_one::<Shape>(SHAPES, ()).await, Ok(line));
        let bad = SHAPES.replace(r#""y": 2"#, r#""z": 2"#);
        let text = sql.query_one::<Shape>(bad, ()).await.unwrap_err().to_string();
        assert_eq!(text, r#"column "points": missing field `y` at line 1 column 17"#);
        Ok(())
    });
}

#[test]
fn rows_are_read_by_serde() {
    on_both(async |sql| {
        let rows: Rows = sql.query("VALUES (1, 2), (3, 4)", ()).await?;
        assert_eq!(rows.deserialize::<(i64, i64)>(), Ok(vec![(1, 2), (3, 4)]));
        let rows = sql.query("SELECT 1 AS y, 2 AS x", ()).await?;
        assert_eq!(rows.deserialize::<Point>(), Ok(vec![Point { x: 2, y: 1 }]));
        let json: Vec<serde_json::Value> = rows.deserialize().unwrap();
        assert_eq!(json, [json!({"y": 1, "x": 2})]);
        Ok(())
    });
}
