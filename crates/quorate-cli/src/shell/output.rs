//! Where results go: the standard output, or a file.
//!
//! Invariant: a terminal gets no active character but line breaks and tabs; files and pipes get what there is.

use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Write as _, stdout};
use std::path::{Path, PathBuf};

use super::shown;
use crate::error::{Result, Told as _};
use crate::format::{self, visible};
use crate::output;

/// Where results go.
#[derive(Debug, Default)]
pub struct Output {
    file: Option<(PathBuf, BufWriter<File>)>,
}

impl Output {
    /// Prints a text.
    pub fn write(&mut self, text: &str) -> Result<()> {
        match &mut self.file {
            Some((path, file)) => file.write_all(text.as_bytes()).told(|| format!("cannot write {}", shown(path))),
            None if text.is_empty() => Ok(()),
            None if stdout().is_terminal() => output::print(&visible::lines(text)),
            None => output::print(text),
        }
    }

    /// Sends what comes to another file, or, with `None`, to the standard output again.
    pub fn send_to(&mut self, file: Option<&Path>) -> Result<()> {
        self.close()?;
        if let Some(path) = file {
            let file = File::create(path).told(|| format!("cannot write {}", shown(path)))?;
            self.file = Some((path.to_owned(), BufWriter::new(file)));
        }
        Ok(())
    }

    /// Ends the file, if there is one, and says whether all of it was written.
    pub fn close(&mut self) -> Result<()> {
        let Some((path, mut file)) = self.file.take() else { return Ok(()) };
        file.flush().told(|| format!("cannot write {}", shown(&path)))
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// The width to fit tables into, if they go to a terminal.
    pub fn width(&self) -> Option<usize> {
        if self.file.is_some() { None } else { format::terminal_width() }
    }
}
