//! A table for Markdown, of any width, because another program renders it.

use quorate::Value;

use super::{Layout, visible};

pub struct Markdown {
    null: String,
}

impl Markdown {
    pub fn new(null: String) -> Self {
        Self { null }
    }
}

impl Layout for Markdown {
    fn begin(&mut self, columns: &[String], out: &mut String) {
        put(columns.iter().map(|name| cell(name)), out);
        put(columns.iter().map(|_| "---".to_owned()), out);
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        put(row.iter().map(|value| cell(&visible::value(value, &self.null))), out);
    }
}

fn put(cells: impl Iterator<Item = String>, out: &mut String) {
    out.push_str(&format!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
}

fn cell(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('|', "\\|");
    text.replace("\r\n", "\n").split('\n').map(visible::one_line).collect::<Vec<_>>().join("<br>")
}
