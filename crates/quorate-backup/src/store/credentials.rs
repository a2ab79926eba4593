//! A file with credentials: lines `NAME=value`, with the names that the variables of the environment have.
//!
//! Invariant: errors name a line by its number, and never repeat it.

use std::path::Path;

use quorate_env::{Env, disk};

use crate::error::Error;

/// The most bytes of such a file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Reads the settings in a file: names in small letters, with their values.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, Error> {
    let env = Env::current().unwrap_or_else(Env::real);
    let bytes = disk::read_file(env.disk().as_ref(), path, FILE_BYTES_MAX).map_err(Error::disk(path))?;
    let wrong = |what: String| Error::Key(format!("{}: {what}", path.display()));
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not a text in UTF-8".to_owned()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let setting = |(number, line): (usize, &str)| {
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| wrong(format!("line {} is not of the form NAME=value", number.saturating_add(1))))?;
        Ok((name.trim().to_ascii_lowercase(), value.trim().trim_matches('"').to_owned()))
    };
    lines.map(setting).collect()
}
