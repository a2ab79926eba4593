//! The standard output of the commands that answer a question.

use std::io::Write as _;

use quorate_shell::Stdout;

use crate::error::{Result, Told as _};

/// Prints a text. If the reader of the standard output has closed it, the process ends silently.
pub fn print(text: &str) -> Result<()> {
    Stdout.write_all(text.as_bytes()).and_then(|()| Stdout.flush()).told(|| "cannot write the answer")
}
