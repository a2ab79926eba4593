//! `.import`: `quorate import` with its defaults.

use std::path::Path;
use std::time::Duration;

use super::shown;
use crate::access::Access;
use crate::error::{Error, Result};
use crate::import::{self, ImportOptions};

/// Loads a file into a table, and prints what came of it. Cancelled, it goes on when it is asked for again.
pub async fn run(access: &Access, file: &Path, table: &str, timeout: Option<Duration>) -> Result<()> {
    let options = ImportOptions { file: file.to_owned(), table: table.to_owned(), ..ImportOptions::default() };
    if options.is_stdin() {
        return Err(Error::new(".import: name a file; `quorate import` reads the standard input"));
    }
    let summary = import::run(access, &options, timeout).await?;
    match summary.bad {
        0 => Ok(()),
        1 => Err(Error::new(format!(".import: a bad line of {} was left out", shown(file)))),
        bad => Err(Error::new(format!(".import: {bad} bad lines of {} were left out", shown(file)))),
    }
}
