//! Tests of the conversion of rows to Rust types.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use proptest::prelude::*;

use super::*;

fn rows(columns: &[&str], values: Vec<Value>) -> Rows {
    Rows::new(columns.iter().map(|name| (*name).to_owned()).collect(), values)
}

fn one(value: impl Into<Value>) -> Rows {
    rows(&["c"], vec![value.into()])
}

fn message<T: FromRowOwned + fmt::Debug>(rows: &Rows) -> String {
    rows.one::<T>().unwrap_err().to_string()
}

#[test]
fn rows_are_read_as_tuples_and_by_name() {
    let rows = rows(&["id", "name"], vec![1.into(), "Ada".into(), 2.into(), Value::Null]);
    assert_eq!(rows.all::<(u32, Option<&str>)>().unwrap(), [(1, Some("Ada")), (2, None)]);
    assert_eq!(rows.get(0).unwrap().get_by_name::<String>("name").unwrap(), "Ada");
    assert_eq!(rows.iter().len(), 2);
    assert_eq!(rows.get(2), None);
    assert_eq!(rows.to_string(), "id\tname\n1\tAda\n2\tNULL");
}

#[test]
fn an_empty_result_has_no_rows() {
    let none = rows(&["c"], vec![]);
    assert_eq!(none.first::<i64>().unwrap(), None);
    assert_eq!(message::<i64>(&none), "one row was expected, the result has 0; query_optional allows for none");
    let some = "one row was expected, the result has 2; query_as takes them all";
    assert_eq!(message::<i64>(&rows(&["c"], vec![1.into(), 2.into()])), some);
    assert_eq!(Rows::default().iter().count(), 0);
}

#[test]
fn errors_name_the_column_and_the_mismatch() {
    assert_eq!(message::<i64>(&one("x")), r#"column "c": an INTEGER was expected, it holds TEXT"#);
    assert_eq!(
        message::<String>(&one(Value::Null)),
        r#"column "c": TEXT was expected, it holds NULL; read it as an Option"#
    );
    assert_eq!(message::<bool>(&one(2)), r#"column "c": 0 or 1 was expected, it holds INTEGER 2"#);
    assert_eq!(message::<u64>(&one(-1)), r#"column "c": an INTEGER without sign was expected, it holds INTEGER -1"#);
    assert_eq!(message::<(i64, i64)>(&one(1)), "2 columns were expected, the result has 1; select as many");
    let row = one(1);
    let row = row.get(0).unwrap();
    assert_eq!(row.get_by_name::<i64>("d").unwrap_err().to_string(), "no column d: the result has c");
    assert_eq!(row.get::<i64>(1).unwrap_err().to_string(), "no column number 1: the result has c");
}

#[test]
fn floats_are_read_only_from_exact_integers() {
    const EDGE: i64 = 1 << 53;
    assert_eq!(one(EDGE).one::<f64>(), Ok(9_007_199_254_740_992.0));
    assert!(one(EDGE + 1).one::<f64>().is_err());
    assert!(one(1.0).one::<i64>().is_err());
}

#[test]
fn rows_returned_by_a_write_can_be_read() {
    let result = StatementResult {
        columns: vec!["a".into(), "b".into()],
        rows: vec![vec![1.into(), 2.into()], vec![3.into(), 4.into()]],
        ..StatementResult::default()
    };
    assert_eq!(Rows::from(result).all::<(i64, i64)>().unwrap(), [(1, 2), (3, 4)]);
}

proptest! {
    #[test]
    fn narrow_integers_fit_or_fail(value: i64) {
        let rows = one(value);
        prop_assert_eq!(rows.one::<i32>().ok(), i32::try_from(value).ok());
        prop_assert_eq!(rows.one::<u32>().ok(), u32::try_from(value).ok());
        prop_assert_eq!(rows.one::<u64>().ok(), u64::try_from(value).ok());
        prop_assert_eq!(rows.one::<u8>().ok(), u8::try_from(value).ok());
    }

    #[test]
    fn every_complete_row_is_kept(width in 1_usize..5, count in 0_usize..20, extra in 0_usize..5) {
        let names: Vec<String> = (0..width).map(|number| number.to_string()).collect();
        let numbers = 0..(width * count + extra.min(width - 1));
        let values: Vec<Value> = numbers.map(|number| Value::from(number as i64)).collect();
        let rows = Rows::new(names.into(), values.clone());
        prop_assert_eq!(rows.len(), count);
        let back: Vec<Value> = rows.iter().flat_map(|row| row.values().to_vec()).collect();
        prop_assert_eq!(&back[..], &values[..width * count]);
    }
}
