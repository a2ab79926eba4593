//! One value a line after the aligned names of the columns; further lines of a value are indented below its first.

use quorate::Value;
use unicode_width::UnicodeWidthStr as _;

use super::{Layout, visible};

pub struct Line {
    null: String,
    columns: Vec<String>,
    is_first: bool,
}

impl Line {
    pub fn new(null: String) -> Self {
        Self { null, columns: Vec::new(), is_first: true }
    }

    /// A row whose values were made visible already.
    pub fn texts<'a>(&mut self, texts: impl Iterator<Item = &'a str>, out: &mut String) {
        if !std::mem::take(&mut self.is_first) {
            out.push('\n');
        }
        for (column, text) in self.columns.iter().zip(texts) {
            let below = format!("\n{}", " ".repeat(column.width().saturating_add(3)));
            out.push_str(&format!("{column} = {}\n", text.replace('\n', &below)));
        }
    }
}

impl Layout for Line {
    fn begin(&mut self, columns: &[String], _out: &mut String) {
        let names: Vec<String> = columns.iter().map(|name| visible::one_line(name)).collect();
        let width = names.iter().map(|name| name.width()).max().unwrap_or(0);
        let pad = |name: &String| " ".repeat(width.saturating_sub(name.width())) + name;
        self.columns = names.iter().map(pad).collect();
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        let texts: Vec<String> = row.iter().map(|value| visible::lines(&visible::value(value, &self.null))).collect();
        self.texts(texts.iter().map(String::as_str), out);
    }
}
