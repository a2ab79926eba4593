//! Prints the results of commands to standard output.

use std::io::Write as _;

use quorate_shell::Stdout;

use crate::error::{Context as _, Result};

/// Prints a text. If the reader of standard output has closed it, the process ends silently.
pub fn print(text: &str) -> Result<()> {
    Stdout.write_all(text.as_bytes()).and_then(|()| Stdout.flush()).context(|| "cannot write to standard output")
}
