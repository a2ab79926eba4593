//! Prints a configuration: the values in effect, or a commented file to start from.
//!
//! Invariant: reading either text gives the configuration that was printed, except for a secret given inline.

use toml::Value;

use super::schema::{Key, Schema, Shown};

/// The width of a comment.
const WIDTH: usize = 100;

/// Returns the values in effect as TOML. After each value comes its origin, as `origin` returns it.
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

/// Returns a file with a comment for every key. Values that are the default or not set are commented out.
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

/// The lines of a file. Each line gives the full path of its key, except for tables as values, which come last.
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

/// Returns an empty line and the comments; nothing if there are no comments.
fn commented(comments: &[String]) -> String {
    let lines = comments.iter().map(|comment| format!("# {comment}\n"));
    let head = if comments.is_empty() { "" } else { "\n" };
    lines.fold(head.to_owned(), |text, line| text + &line)
}

/// Wraps a text into lines of at most [`WIDTH`] columns.
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
