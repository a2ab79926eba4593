//! The output of each mode, and properties of all modes.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use unicode_width::UnicodeWidthStr as _;

use super::*;

fn columns() -> Vec<String> {
    ["id", "name", "x", "data"].map(str::to_owned).to_vec()
}

fn rows() -> Vec<Vec<Value>> {
    vec![
        vec![Value::Integer(1), Value::from("Ada"), Value::Real(2.5), Value::from(vec![0, 255])],
        vec![Value::Integer(-20), Value::from("a \"b\",\nc"), Value::Real(f64::INFINITY), Value::Null],
        vec![Value::Integer(3), Value::from(""), Value::Real(1e300), Value::from(Vec::new())],
        vec![Value::Integer(4), Value::from("NULL"), Value::Null, Value::from(vec![7; 40])],
    ]
}

fn print(style: &Style, width: Option<usize>, columns: &[String], rows: &[Vec<Value>]) -> String {
    let (mut printer, head) = Printer::new(style, width, columns);
    let body = printer.rows(rows.iter().map(Vec::as_slice));
    format!("{head}{body}{}", printer.end())
}

fn in_mode(mode: Mode) -> String {
    print(&Style { mode, ..Style::default() }, None, &columns(), &rows())
}

#[test]
fn a_table_aligns_and_shows_null_and_blobs() {
    let expected = "\
id   name       x      data
───  ─────────  ─────  ───────────────────────────────────────────────
  1  Ada          2.5  X'00FF'
-20  a \"b\",\\nc    Inf  NULL
  3             1e300  X''
  4  'NULL'     NULL   X'07070707070707070707070707070707…' (40 bytes)
(4 rows)
";
    assert_eq!(in_mode(Mode::Table), expected);
}

#[test]
fn lines_have_one_value_each() {
    let expected = "  id = 1\nname = Ada\n   x = 2.5\ndata = X'00FF'\n\n  id = -20\nname = a \"b\",\n       c\n";
    assert!(in_mode(Mode::Line).starts_with(expected), "{}", in_mode(Mode::Line));
}

#[test]
fn csv_and_tsv_distinguish_null_from_empty_text() {
    let blob = "07".repeat(40);
    let expected = format!(
        "id,name,x,data\n1,Ada,2.5,X'00FF'\n-20,\"a \"\"b\"\",\nc\",Inf,\n3,\"\",1e300,X''\n4,NULL,,X'{blob}'\n"
    );
    assert_eq!(in_mode(Mode::Csv), expected);
    let rows = ["id\tname\tx\tdata", "1\tAda\t2.5\tX'00FF'", "-20\ta \"b\",\\nc\tInf\t\\N", "3\t\t1e300\tX''"];
    let expected = format!("{}\n4\tNULL\t\\N\tX'{blob}'\n", rows.join("\n"));
    assert_eq!(in_mode(Mode::Tsv), expected);
    let style = Style { mode: Mode::Csv, headers: false, null: Some("NULL".into()), ..Style::default() };
    let texts = [vec![Value::Null, "NULL".into(), "".into()]];
    assert_eq!(print(&style, None, &columns(), &texts), "NULL,\"NULL\",\"\"\n");
}

#[test]
fn json_is_an_array_of_objects_or_an_object_a_line() {
    let expected = r#"[{"id":1,"name":"Ada","x":2.5,"data":{"hex":"00ff"}},
{"id":-20,"name":"a \"b\",\nc","x":1e999,"data":null},
{"id":3,"name":"","x":1e300,"data":{"hex":""}}]
"#;
    let three = rows().into_iter().take(3).collect::<Vec<_>>();
    let style = |mode| Style { mode, ..Style::default() };
    assert_eq!(print(&style(Mode::Json), None, &columns(), &three), expected);
    let lines = expected.trim_start_matches('[').replace("},\n{\"id", "}\n{\"id").replace("}]\n", "}\n");
    assert_eq!(print(&style(Mode::Ndjson), None, &columns(), &three), lines);
    assert_eq!(print(&style(Mode::Json), None, &columns(), &[]), "[]\n");
}

#[test]
fn the_other_modes_print_as_they_are_called() {
    let rows = [vec![Value::Integer(1), "a|b\nit's".into(), Value::Null, Value::Real(0.1)]];
    let in_mode = |mode| print(&Style { mode, ..Style::default() }, None, &columns(), &rows);
    let expected = "| id | name | x | data |\n| --- | --- | --- | --- |\n| 1 | a\\|b<br>it's | NULL | 0.1 |\n";
    assert_eq!(in_mode(Mode::Markdown), expected);
    assert_eq!(in_mode(Mode::List), "id|name|x|data\n1|a|b\nit's|NULL|0.1\n");
    assert_eq!(in_mode(Mode::Quote), "'id','name','x','data'\n1,'a|b\nit''s',NULL,0.1\n");
    let insert = "INSERT INTO \"my table\"(id,name,x,data) VALUES(1,'a|b\nit''s',NULL,0.1);\n";
    assert_eq!(in_mode(Mode::Insert("my table".into())), insert);
}

#[test]
fn a_write_says_what_it_did() {
    let done = Written { statements: 1, changes: 2, last_insert_rowid: 7, position: "1.1.12".into() };
    assert_eq!(written(&done, &Mode::Table), "OK, 2 rows changed, position 1.1.12\n");
    assert_eq!(written(&done, &Mode::Csv), "");
    let object: serde_json::Value = serde_json::from_str(&written(&done, &Mode::Json)).unwrap();
    assert_eq!(object, serde_json::json!({"changes": 2, "last_insert_rowid": 7, "position": "1.1.12"}));
    let many = Written { statements: 3, changes: 1, ..done };
    assert_eq!(written(&many, &Mode::Table), "OK, 3 statements, 1 row changed, position 1.1.12\n");
}

#[test]
fn a_wide_table_wraps_is_cut_and_becomes_lines() {
    let text = "a long text of many words which goes on and on and does not end before the fifth line of its cell";
    let columns = ["id", "left", "right"].map(str::to_owned);
    let rows = [vec![Value::Integer(1), text.into(), "日本語日本語日本語".into()]];
    let shown = print(&Style::default(), Some(36), &columns, &rows);
    let expected = "\
id  left             right
──  ───────────────  ───────────────
 1  a long text of   日本語日本語日
    many words       本語
    which goes on
    and on and doe…
(1 row)
";
    assert_eq!(shown, expected);
    let shown = print(&Style::default(), Some(20), &columns, &rows);
    assert!(shown.starts_with("   id = 1\n left = a long text"), "{shown}");
    let style = Style { widths: vec![-4, 6], ..Style::default() };
    let shown = print(&style, None, &columns, &rows);
    assert!(shown.contains("   1  a long  日本語日本語日本語\n      text\n      of man\n      y wor…"), "{shown}");
}

#[test]
fn modes_have_the_names_that_they_print() {
    for (name, _) in MODES {
        let typed = name.replace("TABLE", "t");
        assert_eq!(Mode::parse(&typed).unwrap().to_string(), typed);
    }
    assert_eq!(Mode::parse("insert=t"), Ok(Mode::Insert("t".into())));
    assert!(Mode::parse("insert").unwrap_err().contains("insert TABLE"));
    assert!(Mode::parse("tabel").unwrap_err().contains("table"));
    assert!(Mode::parse("csv x").is_err());
}

#[test]
fn names_stand_side_by_side() {
    let names: Vec<String> = ["a", "bb", "ccc", "d", "e"].map(str::to_owned).to_vec();
    assert_eq!(side_by_side(&names, Some(13)), "a    ccc  e\nbb   d\n");
    assert_eq!(side_by_side(&names, Some(12)), "a    d\nbb   e\nccc\n");
    assert_eq!(side_by_side(&names, None), "a\nbb\nccc\nd\ne\n");
    assert_eq!(side_by_side(&[], Some(13)), "");
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Integer),
        any::<f64>().prop_filter("a number", |value| !value.is_nan()).prop_map(Value::Real),
        any::<String>().prop_map(Value::Text),
        "'{0,2}NULL'{0,2}".prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::from),
    ]
}

proptest! {
    /// A table on a terminal is never wider than it, and nothing in it moves the cursor.
    #[test]
    fn a_table_fits_the_terminal(
        rows in prop::collection::vec(prop::collection::vec(any_value(), 4), 0..6), width in 46..120_usize,
    ) {
        let shown = print(&Style::default(), Some(width), &columns(), &rows);
        for line in shown.lines() {
            prop_assert!(line.width() <= width, "{}: {}", width, shown);
        }
        prop_assert!(!shown.chars().any(|c| c != '\n' && visible::is_active(c)));
    }

    /// No two values look alike, whatever stands for NULL; but for numbers and blobs written as text.
    #[test]
    fn null_and_texts_look_different(text: String, other in "'{0,3}(NULL)?'{0,3}", null in "(NULL|)") {
        let look = |value: &Value| visible::value(value, &null);
        prop_assert_ne!(look(&Value::Null), look(&other.clone().into()));
        if text != other {
            prop_assert_ne!(look(&text.into()), look(&other.into()));
        }
    }

    /// What is CSV for one row is one record, from which the fields come back.
    #[test]
    fn csv_fields_come_back(texts in prop::collection::vec(any::<String>(), 1..5)) {
        let style = Style { mode: Mode::Csv, headers: false, ..Style::default() };
        let row: Vec<Value> = texts.iter().cloned().map(Value::Text).collect();
        let names: Vec<String> = texts.iter().map(|_| "c".to_owned()).collect();
        prop_assert_eq!(read_csv(&print(&style, None, &names, &[row])), texts);
    }
}

/// The fields of one record.
fn read_csv(record: &str) -> Vec<String> {
    let (mut fields, mut field, mut in_quotes) = (Vec::new(), String::new(), false);
    let mut chars = record.strip_suffix('\n').unwrap().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if in_quotes && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => in_quotes = !in_quotes,
            ',' if !in_quotes => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

#[test]
fn sizes_are_for_people() {
    let shown = [0, 1023, 1024, 1536, 5 << 20, (3 << 30) + (1 << 29)].map(size);
    assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.5 GiB"]);
}
