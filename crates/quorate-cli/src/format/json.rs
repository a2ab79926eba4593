//! JSON: an array with an object for each row, in the order of the columns; of a write that returns no rows, one object
//! that says what it changed. A blob is `{"hex":".."}`, an infinite number `1e999`, as SQLite writes it.

use quorate::Value;

use super::{Answer, Written};

pub fn text(answer: &Answer) -> String {
    match &answer.written {
        Some(written) if answer.columns.is_empty() => written_object(written),
        _ => rows_array(answer),
    }
}

fn written_object(written: &Written) -> String {
    let Written { changes, last_insert_rowid, position } = written;
    let position = string(position);
    format!("{{\"changes\":{changes},\"last_insert_rowid\":{last_insert_rowid},\"position\":{position}}}\n")
}

fn rows_array(answer: &Answer) -> String {
    let object = |row: &Vec<Value>| {
        let members = answer.columns.iter().zip(row).map(|(name, value)| format!("{}:{}", string(name), item(value)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    let objects: Vec<String> = answer.rows.iter().map(object).collect();
    format!("[{}]\n", objects.join(",\n"))
}

fn item(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) if value.is_infinite() => if *value > 0.0 { "1e999" } else { "-1e999" }.to_owned(),
        Value::Real(value) if value.is_nan() => "null".to_owned(),
        Value::Real(value) => format!("{value:?}"),
        Value::Text(text) => string(text),
        Value::Blob(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{{\"hex\":\"{hex}\"}}")
        }
    }
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
