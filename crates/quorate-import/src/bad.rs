//! The file of bad lines: for each of them its number, the reason, and its beginning, separated by tabs.
//!
//! Each run writes a new file. A run that continues an interrupted import reports the bad lines of the earlier run
//! again, so the file is complete when the import is.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use crate::error::{Context as _, Error, Result};
use crate::line::BadLine;

/// Writes the file, and fails when there are too many bad lines.
pub struct BadFile {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    count: u64,
    max: u64,
}

impl BadFile {
    /// Removes the file of an earlier run; the first bad line creates it again.
    pub fn new(path: PathBuf, max: u64) -> Result<Self> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context(|| format!("cannot write {}", path.display()));
            }
            _ => {}
        }
        Ok(Self { path, file: None, count: 0, max })
    }

    /// How many lines were reported.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Writes these lines to the file.
    ///
    /// # Errors
    ///
    /// The file can't be written, or more lines are bad than the options allow.
    pub fn report(&mut self, lines: &[BadLine]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.write(lines).context(|| format!("cannot write {}", self.path.display()))?;
        self.count = self.count.saturating_add(lines.len() as u64);
        if self.count <= self.max {
            return Ok(());
        }
        let first = lines.first().map_or(String::new(), |bad| format!(" (line {}: {})", bad.line, bad.reason));
        let (path, count) = (self.path.display(), self.count);
        let stop = if self.max == 0 { "a line is bad".to_owned() } else { format!("{count} lines are bad") };
        Err(Error::TooManyBadLines(format!("{stop}{first}: see {path}; --max-bad allows more")))
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

/// The text with control characters, backslashes and invalid UTF-8 escaped.
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
