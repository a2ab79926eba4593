//! `.import`: `quorate import` with its defaults.

use std::path::Path;

use quorate_import::Options;

use crate::client::Connection;
use crate::error::{Error, Result};
use crate::output::Stdout;

/// Loads a file into a table over a connection of its own, and prints the summary. An import that was cancelled
/// continues when it is run again.
pub async fn run(client: &Connection, file: &Path, table: &str) -> Result<()> {
    let options = Options::new(file, table);
    if options.is_stdin() {
        return Err(Error::new(".import: name a file; `quorate import` reads the standard input"));
    }
    let client = client.again().await?;
    let imported = quorate_import::run(client.sql(), &options, &mut Stdout).await;
    client.close().await;
    match imported?.bad {
        0 => Ok(()),
        1 => Err(Error::new(format!(".import: a bad line of {} was skipped", file.display()))),
        bad => Err(Error::new(format!(".import: {bad} bad lines of {} were skipped", file.display()))),
    }
}
