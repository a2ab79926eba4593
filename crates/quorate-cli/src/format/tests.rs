//! Each format against what it is to look like.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn answer() -> Answer {
    let rows = vec![
        vec![Value::Integer(1), Value::from("Ada"), Value::Real(2.5), Value::Blob(vec![0, 255])],
        vec![Value::Integer(-20), Value::from("a \"b\",\nc"), Value::Real(f64::INFINITY), Value::Null],
        vec![Value::Integer(3), Value::from(""), Value::Real(1e300), Value::Blob(vec![])],
    ];
    Answer { columns: ["id", "name", "x", "data"].map(str::to_owned).to_vec(), rows, written: None }
}

fn written() -> Answer {
    let written = Written { changes: 2, last_insert_rowid: 7, position: "1.1.12".into() };
    Answer { columns: vec![], rows: vec![], written: Some(written) }
}

#[test]
fn a_table_aligns_and_shows_null_and_blobs() {
    let expected = "\
id   name       x      data
───  ─────────  ─────  ───────
  1  Ada          2.5  x'00ff'
-20  a \"b\",\\nc    inf  NULL
  3             1e300  x''
(3 rows)
";
    assert_eq!(text(&answer(), Format::Table, None), expected);
    assert_eq!(text(&written(), Format::Table, None), "OK, 2 rows changed, position 1.1.12\n");
}

#[test]
fn csv_has_a_header_and_tells_null_from_an_empty_text() {
    let expected = "id,name,x,data\n1,Ada,2.5,x'00ff'\n-20,\"a \"\"b\"\",\nc\",inf,\n3,\"\",1e300,x''\n";
    assert_eq!(text(&answer(), Format::Csv, None), expected);
    assert_eq!(text(&written(), Format::Csv, None), "");
}

#[test]
fn json_is_an_array_of_objects() {
    let expected = r#"[{"id":1,"name":"Ada","x":2.5,"data":{"hex":"00ff"}},
{"id":-20,"name":"a \"b\",\nc","x":1e999,"data":null},
{"id":3,"name":"","x":1e300,"data":{"hex":""}}]
"#;
    assert_eq!(text(&answer(), Format::Json, None), expected);
    let written: serde_json::Value = serde_json::from_str(&text(&written(), Format::Json, None)).unwrap();
    assert_eq!(written, serde_json::json!({"changes": 2, "last_insert_rowid": 7, "position": "1.1.12"}));
}

#[test]
fn a_table_fits_the_terminal_if_it_can() {
    let wide = Value::from("a long text of forty-one characters or so");
    let rows = vec![vec![Value::Integer(1), wide, Value::from("日本語日本語日本語")]];
    let answer = Answer { columns: ["id", "left", "right"].map(str::to_owned).to_vec(), rows, written: None };
    for width in 14..80 {
        let text = text(&answer, Format::Table, Some(width));
        let widest = text.lines().map(unicode_width::UnicodeWidthStr::width).max().unwrap();
        assert!(widest <= width, "{width}:\n{text}");
    }
    assert!(text(&answer, Format::Table, Some(20)).contains('…'));
}

#[test]
fn sizes_are_for_people() {
    let shown = [0, 1023, 1024, 1536, 5 << 20, (3 << 30) + (1 << 29)].map(size);
    assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.5 GiB"]);
}
