//! A configuration as text: what is in force, or a commented file to start from.
//!
//! Invariant: both read as the configuration that they were made of, but for a secret that stands in it itself.

use toml::Value;

use super::schema::{Key, Schema, Shown};

/// Columns of a comment.
const WIDTH: usize = 100;

/// What is in force, as TOML; behind each value what gave it, as `origin` says.
pub fn print<C: Schema + 'static>(config: &C, origin: impl Fn(&Key<C>) -> Option<String>) -> String {
    let mut text = Text::default();
    for key in &C::keys() {
        let from = origin(key).map_or_else(|| "  # default".to_owned(), |origin| format!("  # {origin}"));
        match (key.get)(config) {
            Shown::Nothing => {}
            Shown::Secret => text.line(&format!("# {}: set, not shown{from}", key.path)),
            Shown::Value(value) => text.value(&[], key.path, &value, &from),
        }
    }
    text.finish()
}

/// A file with a comment for every key. What is as it is by default, or not set, is commented out.
pub fn template<C: Schema + 'static>(config: &C) -> String {
    let default = C::default();
    let mut text = Text::default();
    for key in &C::keys() {
        let shown = (key.get)(config);
        let is_default = !key.is_required && shown == (key.get)(&default);
        let mut comments = wrapped(key.about);
        match shown {
            Shown::Value(value) if !is_default => text.value(&comments, key.path, &value, ""),
            shown => {
                let value = if let Shown::Value(value) = shown { value.to_string() } else { key.example.to_owned() };
                comments.push(format!("{} = {value}", key.path));
                text.comments(&comments);
            }
        }
    }
    text.finish()
}

/// Lines. Each stands for itself, with the tables around its key in the key's name; but for whole tables, which come
/// last.
#[derive(Default)]
struct Text {
    lines: String,
    tables: String,
}

impl Text {
    fn line(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    fn comments(&mut self, comments: &[String]) {
        self.lines.push_str(&commented(comments));
    }

    fn value(&mut self, comments: &[String], path: &str, value: &Value, behind: &str) {
        match value {
            Value::Table(table) => {
                let head = if comments.is_empty() { "\n".to_owned() } else { commented(comments) };
                self.tables.push_str(&format!("{head}[{path}]{behind}\n{table}"));
            }
            value => {
                self.comments(comments);
                self.line(&format!("{path} = {value}{behind}"));
            }
        }
    }

    fn finish(self) -> String {
        let mut text = format!("{}{}", self.lines, self.tables).trim_matches('\n').to_owned();
        text.push('\n');
        text
    }
}

/// An empty line and the comments; nothing where there are none.
fn commented(comments: &[String]) -> String {
    let lines = comments.iter().map(|comment| format!("# {comment}\n"));
    let head = if comments.is_empty() { "" } else { "\n" };
    lines.fold(head.to_owned(), |text, line| text + &line)
}

/// A text in lines of at most [`WIDTH`] columns.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.len() + word.len() < WIDTH) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
