//! `.import`: hands over to the importer.

use std::path::Path;

use super::shown;
use crate::access::Access;
use crate::error::{Error, Result};

/// Loads a file into a table. The importer is called from here once it is there.
pub async fn run(_access: &Access, file: &Path, table: &str) -> Result<()> {
    let (file, instead) = (shown(file), "use INSERT, or .read a script");
    Err(Error::new(format!(".import: {file} into {table}: this build can't load files; {instead}")))
}
