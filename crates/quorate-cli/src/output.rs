//! The standard output of the commands that answer a question.

use std::io::{self, Write as _};

use crate::error::{Result, Told as _};

/// Prints a text. Who stops reading has seen enough: the process ends in silence.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        outcome => outcome.told(|| "cannot write the answer"),
    }
}
