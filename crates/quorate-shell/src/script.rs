//! Scripts: their lines become statements and dot commands, each with its place.
//!
//! Invariant: a script is read while it runs, so its size is not limited; that of a line or a statement is.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Cursor, Read as _};
use std::path::Path;
use std::sync::Arc;

use quorate::limits::SQL_BYTES_MAX;

use crate::error::{Context as _, Error, Result};
use crate::statements::Splitter;

/// The most bytes of a line.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// A place in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The script's name; `None` for the text of the command line.
    file: Option<Arc<str>>,
    line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}:{}", self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// A statement or a command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A statement, without its semicolon.
    Statement(String),
    /// A line that starts with a dot, or a backslash.
    Command(String),
}

/// Splits lines into items.
#[derive(Debug, Default)]
pub struct Items {
    split: Splitter,
    line: u64,
    ready: VecDeque<(Item, u64)>,
}

impl Items {
    /// Takes a line.
    pub fn push(&mut self, line: &str) {
        self.line = self.line.saturating_add(1);
        // Some editors begin a file with a byte order mark.
        let command = line.trim_start_matches('\u{FEFF}').trim();
        if self.split.is_between() && command.starts_with(['.', '\\']) {
            self.ready.push_back((Item::Command(command.to_owned()), self.line));
            // Keeps the line numbers of the splitter right.
            self.split.push("\n");
        } else {
            self.split.push(line);
            if !line.ends_with('\n') {
                self.split.push("\n");
            }
        }
        while let Some(statement) = self.split.next() {
            self.ready.push_back((Item::Statement(statement.text), statement.line));
        }
    }

    /// The next item, and its line.
    pub fn next(&mut self) -> Option<(Item, u64)> {
        self.ready.pop_front()
    }

    /// The last statement, if it has no semicolon.
    pub fn end(&mut self) -> Option<(Item, u64)> {
        self.split.rest().map(|statement| (Item::Statement(statement.text), statement.line))
    }

    /// Whether the next line begins an item.
    pub fn is_between(&self) -> bool {
        self.split.is_between()
    }

    /// The statement that has begun, so far.
    pub fn unfinished(&self) -> &str {
        self.split.unfinished()
    }

    /// The start mark of the literal or comment that is open.
    pub fn open(&self) -> Option<&'static str> {
        self.split.open()
    }
}

/// A text of statements and dot commands to run.
pub struct Script {
    name: Option<Arc<str>>,
    /// Whether errors name the place: not in a text of one line.
    is_long: bool,
    reader: Box<dyn BufRead + Send>,
    items: Items,
    has_ended: bool,
}

impl Script {
    /// The content of a file; `-` is the standard input.
    ///
    /// # Errors
    ///
    /// The file can't be opened.
    pub fn open(file: &Path) -> Result<Self> {
        if file == Path::new("-") {
            return Ok(Self::stdin());
        }
        let name = file.display().to_string();
        let opened = std::fs::File::open(file).context(|| format!("cannot read {name}"))?;
        Ok(Self::new(Some(&name), true, BufReader::new(opened)))
    }

    /// The standard input.
    pub fn stdin() -> Self {
        Self::new(Some("stdin"), true, BufReader::new(std::io::stdin()))
    }

    /// A text that was given on the command line.
    pub fn text(text: &str) -> Self {
        Self::new(None, text.trim().contains('\n'), Cursor::new(text.to_owned()))
    }

    fn new(name: Option<&str>, is_long: bool, reader: impl BufRead + Send + 'static) -> Self {
        let name = name.map(Arc::from);
        Self { name, is_long, reader: Box::new(reader), items: Items::default(), has_ended: false }
    }

    /// The next item, with its place unless the script is a text of one line; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(Item, Option<Place>)>> {
        loop {
            if let Some((item, line)) = self.items.next() {
                return Ok(Some((item, self.place(line))));
            }
            if self.has_ended {
                let last = self.items.end();
                return Ok(last.map(|(item, line)| (item, self.place(line))));
            }
            self.read_line()?;
            if self.items.split.unfinished_bytes() > SQL_BYTES_MAX.saturating_mul(2) {
                return Err(self.failed(format!("the statement has more than {SQL_BYTES_MAX} bytes; make it smaller")));
            }
        }
    }

    fn read_line(&mut self) -> Result<()> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if let Err(error) = read {
            return Err(self.failed(format!("cannot continue reading: {error}")));
        }
        if u64::try_from(line.len()).is_ok_and(|len| len == LINE_BYTES_MAX) && !line.ends_with(b"\n") {
            return Err(self.failed(format!("the line has more than {LINE_BYTES_MAX} bytes; break it up")));
        }
        if line.is_empty() {
            self.has_ended = true;
            return Ok(());
        }
        let line =
            String::from_utf8(line).map_err(|_| self.failed("this is not UTF-8; convert the file".to_owned()))?;
        self.items.push(&line);
        Ok(())
    }

    fn place(&self, line: u64) -> Option<Place> {
        self.is_long.then(|| Place { file: self.name.clone(), line })
    }

    fn failed(&self, why: String) -> Error {
        Error::new(why).within(Place { file: self.name.clone(), line: self.items.line.saturating_add(1) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    fn items(text: &str) -> Vec<String> {
        let mut script = Script::new(Some("f"), true, Cursor::new(text.to_owned()));
        let next = || script.next().unwrap();
        std::iter::from_fn(next).map(|(item, place)| format!("{} {item:?}", place.unwrap())).collect()
    }

    #[test]
    fn statements_and_commands_have_line_numbers() {
        let text = "\u{FEFF}.mode csv\nSELECT 1; SELECT\n.5;\n-- .no\n  .tables x \n/*\n.no\n*/ SELECT 2";
        let expected = [
            "f:1 Command(\".mode csv\")",
            "f:2 Statement(\"SELECT 1\")",
            "f:2 Statement(\"SELECT\\n.5\")",
            "f:5 Command(\".tables x\")",
            "f:8 Statement(\"SELECT 2\")",
        ];
        assert_eq!(items(text), expected);
        assert_eq!(items(""), [""; 0]);
    }

    #[test]
    fn a_text_of_one_line_has_no_places() {
        let place = |text: &str| Script::text(text).next().unwrap().unwrap().1;
        assert_eq!(place("SELECT 1\n"), None);
        assert_eq!(place("\nSELECT\n1").unwrap().to_string(), "line 2");
    }

    #[test]
    fn a_statement_that_is_too_long_is_refused() {
        let text = format!("SELECT 1;\nSELECT '{}", "x\n".repeat(2 * SQL_BYTES_MAX));
        let mut script = Script::new(Some("f"), true, Cursor::new(text));
        assert!(script.next().is_ok());
        let error = script.next().unwrap_err().to_string();
        assert!(error.contains("more than") && error.starts_with("f:"), "{error}");
    }
}
