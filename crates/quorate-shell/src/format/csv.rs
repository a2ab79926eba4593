//! Comma-separated values as in RFC 4180, but with single line feeds. NULL is an empty field by default, an empty text
//! is `""`, a blob is `X'..'`.

use quorate::Value;

use super::{Layout, literal, visible};

pub struct Csv {
    headers: bool,
    null: String,
}

impl Csv {
    pub fn new(headers: bool, null: String) -> Self {
        Self { headers, null }
    }

    fn field(&self, value: &Value) -> String {
        match value {
            Value::Null => self.null.clone(),
            Value::Integer(value) => value.to_string(),
            Value::Real(value) => visible::real(*value),
            Value::Text(text) if *text == self.null => in_quotes(text),
            Value::Text(text) => quoted(text),
            Value::Blob(bytes) => literal::blob(bytes),
        }
    }
}

impl Layout for Csv {
    fn begin(&mut self, columns: &[String], out: &mut String) {
        if self.headers && !columns.is_empty() {
            put(columns.iter().map(|name| quoted(name)), out);
        }
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        put(row.iter().map(|value| self.field(value)), out);
    }
}

fn put(fields: impl Iterator<Item = String>, out: &mut String) {
    out.push_str(&fields.collect::<Vec<_>>().join(","));
    out.push('\n');
}

fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains([',', '"', '\n', '\r']);
    if plain { text.to_owned() } else { in_quotes(text) }
}

fn in_quotes(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
