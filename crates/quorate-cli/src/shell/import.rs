//! `.import`: hands over to the importer.

use std::path::Path;

use super::shown;
use crate::client::Client;
use crate::error::{Error, Result};

/// Loads a file into a table.
// The importer, `quorate import FILE TABLE`, is called from here once it is there.
pub async fn run(_client: &Client, file: &Path, table: &str) -> Result<()> {
    let text = format!(".import: {} into {table}: this build cannot load files; use INSERT, or .read a script", shown(file));
    Err(Error::new(text))
}
