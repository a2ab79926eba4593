//! Comma-separated values, as RFC 4180 has them but for single line feeds: a header line, then a line for each row.
//! NULL is an empty field, an empty text is `""`, a blob is `x'..'`.

use quorate::Value;

use super::Answer;

pub fn text(answer: &Answer) -> String {
    if answer.columns.is_empty() {
        return String::new();
    }
    let header = answer.columns.iter().map(|name| quoted(name));
    let rows = answer.rows.iter().map(|row| line(row.iter().map(field)));
    std::iter::once(line(header)).chain(rows).collect()
}

fn line(fields: impl Iterator<Item = String>) -> String {
    fields.collect::<Vec<_>>().join(",") + "\n"
}

fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Text(text) => quoted(text),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains([',', '"', '\n', '\r']);
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}
