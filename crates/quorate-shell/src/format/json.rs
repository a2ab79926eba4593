//! JSON: an object for each row, in the order of the columns; in one array, or one a line. A blob is `{"hex":".."}`, an
//! infinite number `1e999`, as SQLite writes it.

use quorate::Value;

use super::{Layout, literal};

/// One array.
#[derive(Default)]
pub struct Json {
    columns: Vec<String>,
    has_rows: bool,
}

/// One object a line.
#[derive(Default)]
pub struct Ndjson {
    columns: Vec<String>,
}

impl Layout for Json {
    fn begin(&mut self, columns: &[String], out: &mut String) {
        self.columns = keys(columns);
        out.push('[');
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        if std::mem::replace(&mut self.has_rows, true) {
            out.push_str(",\n");
        }
        object(&self.columns, row, out);
    }

    fn end(&mut self, out: &mut String) {
        out.push_str("]\n");
    }
}

impl Layout for Ndjson {
    fn begin(&mut self, columns: &[String], _out: &mut String) {
        self.columns = keys(columns);
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        object(&self.columns, row, out);
        out.push('\n');
    }
}

fn keys(columns: &[String]) -> Vec<String> {
    columns.iter().map(|name| string(name)).collect()
}

fn object(keys: &[String], row: &[Value], out: &mut String) {
    let members = keys.iter().zip(row).map(|(key, value)| format!("{key}:{}", item(value)));
    out.push_str(&format!("{{{}}}", members.collect::<Vec<_>>().join(",")));
}

fn item(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) if value.is_infinite() => if *value > 0.0 { "1e999" } else { "-1e999" }.to_owned(),
        Value::Real(value) if value.is_nan() => "null".to_owned(),
        Value::Real(value) => format!("{value:?}"),
        Value::Text(text) => string(text),
        Value::Blob(bytes) => format!("{{\"hex\":\"{}\"}}", literal::hex(bytes).to_lowercase()),
    }
}

/// A text as a JSON string.
pub fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
