//! The modes that print values side by side: with bars, with tabs, as SQL literals.

use quorate::Value;

use super::{Layout, literal, visible};

/// Values with bars between them, as sqlite3 prints them by default.
pub struct List {
    headers: bool,
    null: String,
}

/// Values with tabs between them, as PostgreSQL's COPY writes them.
pub struct Tsv {
    headers: bool,
    null: String,
}

/// SQL literals with commas between them.
pub struct Quote {
    headers: bool,
}

/// INSERT statements.
pub struct Insert {
    table: String,
    headers: bool,
    /// The statement up to its values.
    head: String,
}

impl List {
    pub fn new(headers: bool, null: String) -> Self {
        Self { headers, null }
    }
}

impl Layout for List {
    fn begin(&mut self, columns: &[String], out: &mut String) {
        if self.headers {
            put(columns.iter().cloned(), "|", out);
        }
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        put(row.iter().map(|value| raw(value, &self.null)), "|", out);
    }
}

impl Tsv {
    pub fn new(headers: bool, null: String) -> Self {
        Self { headers, null }
    }

    fn field(&self, value: &Value) -> String {
        match value {
            Value::Text(text) => escaped(text),
            other => raw(other, &self.null),
        }
    }
}

impl Layout for Tsv {
    fn begin(&mut self, columns: &[String], out: &mut String) {
        if self.headers {
            put(columns.iter().map(|name| escaped(name)), "\t", out);
        }
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        put(row.iter().map(|value| self.field(value)), "\t", out);
    }
}

impl Quote {
    pub fn new(headers: bool) -> Self {
        Self { headers }
    }
}

impl Layout for Quote {
    fn begin(&mut self, columns: &[String], out: &mut String) {
        if self.headers {
            put(columns.iter().map(|name| literal::quoted(name)), ",", out);
        }
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        put(row.iter().map(literal::value), ",", out);
    }
}

impl Insert {
    pub fn new(table: &str, headers: bool) -> Self {
        Self { table: literal::name(table), headers, head: String::new() }
    }
}

impl Layout for Insert {
    fn begin(&mut self, columns: &[String], _out: &mut String) {
        let columns: Vec<String> = columns.iter().map(|name| literal::name(name)).collect();
        let columns = if self.headers { format!("({})", columns.join(",")) } else { String::new() };
        self.head = format!("INSERT INTO {}{columns} VALUES", self.table);
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        let values: Vec<String> = row.iter().map(literal::value).collect();
        out.push_str(&format!("{}({});\n", self.head, values.join(",")));
    }
}

fn put(fields: impl Iterator<Item = String>, between: &str, out: &mut String) {
    out.push_str(&fields.collect::<Vec<_>>().join(between));
    out.push('\n');
}

fn raw(value: &Value, null: &str) -> String {
    match value {
        Value::Null => null.to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) => visible::real(*value),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => literal::blob(bytes),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}
