//! The file that bad lines are told in: for each a line with its number, a reason, and how it begins, between tabs.
//!
//! It is written anew by each run, and a run that goes on after an interruption tells those of the earlier one again,
//! so that in the end it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use super::line::BadLine;
use crate::error::{Error, Result, Told as _};

/// Tells bad lines, and says when there are too many.
pub struct BadFile {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    count: u64,
    max: u64,
}

impl BadFile {
    /// Nothing is there before the first bad line, whatever an earlier run left.
    pub fn new(path: PathBuf, max: u64) -> Result<Self> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).told(|| format!("cannot write {}", path.display()));
            }
            _ => {}
        }
        Ok(Self { path, file: None, count: 0, max })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Tells some, which are then in the file.
    ///
    /// # Errors
    ///
    /// If the file can't be written, or if there are more than may be.
    pub fn tell(&mut self, lines: &[BadLine]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.write(lines).told(|| format!("cannot write {}", self.path.display()))?;
        self.count = self.count.saturating_add(lines.len() as u64);
        if self.count <= self.max {
            return Ok(());
        }
        let first = lines.first().map_or(String::new(), |bad| format!(" (line {}: {})", bad.line, bad.reason));
        let (path, count) = (self.path.display(), self.count);
        let stop = if self.max == 0 { "a line is bad".to_owned() } else { format!("{count} lines are bad") };
        Err(Error::new(format!("{stop}{first}: see {path}; --max-bad says how many may be")))
    }

    fn write(&mut self, lines: &[BadLine]) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => BufWriter::new(File::create(&self.path)?),
        };
        let file = self.file.insert(file);
        for BadLine { line, reason, text } in lines {
            writeln!(file, "{line}\t{}\t{}", visible(reason.as_bytes()), visible(text))?;
        }
        file.flush()
    }
}

/// Without line breaks, tabs and what is not UTF-8.
fn visible(bytes: &[u8]) -> String {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' { shown.extend(c.escape_default()) } else { shown.push(c) }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}
