//! The source of a cluster's secret.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use quorate_env::disk::{OpenMode, read_file};
use quorate_env::{Cause, Env};
use quorate_wire::Secret;

use super::ConfigError;

/// The file in a data directory that contains the secret of a node that runs alone.
const KEPT_FILE: &str = "secret";

/// The most bytes of a file with a secret.
const SECRET_FILE_MAX: u64 = 4096;

/// The number of random bytes of a drawn secret; the file contains them in hexadecimal.
const DRAWN_BYTES: usize = 32;

/// The source of the secret that all nodes and clients of a cluster share. Printing it never shows the secret.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretSource {
    /// Drawn at the first start and kept in the data directory, readable only by its owner. For nodes that run alone.
    #[default]
    Kept,
    /// A file; white space at its end is ignored.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
    /// The secret itself.
    Inline(String),
}

impl SecretSource {
    /// Returns the secret. Blocks.
    pub(crate) fn resolve(&self, env: &Env, data_dir: &Path) -> Result<Secret, ConfigError> {
        let text = match self {
            Self::Kept => kept(env, &data_dir.join(KEPT_FILE))?,
            Self::File(path) => read(env, path).map_err(|error| failed(path, error))?,
            Self::Variable(name) => std::env::var(name)
                .map_err(|_| ConfigError::Secret(format!("the environment has no text in {name}").into()))?,
            Self::Inline(text) => text.clone(),
        };
        Secret::new(text.trim_end()).map_err(|error| ConfigError::Secret(Cause::from(error)))
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("Kept"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Variable(name) => f.debug_tuple("Variable").field(name).finish(),
            Self::Inline(_) => f.write_str("Inline(..)"),
        }
    }
}

/// Returns the kept secret, drawing it if there is none.
fn kept(env: &Env, path: &Path) -> Result<String, ConfigError> {
    match read(env, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => draw(env, path),
        result => result,
    }
    .map_err(|error| failed(path, error))
}

fn draw(env: &Env, path: &Path) -> io::Result<String> {
    let mut bytes = [0; DRAWN_BYTES];
    env.rng().fill(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (disk, new) = (env.disk(), path.with_extension("new"));
    let file = disk.open(&new, OpenMode::Create)?;
    // The file is made private before the secret is written to it.
    disk.make_private(&new)?;
    file.set_len(0)?;
    file.write_at(text.as_bytes(), 0)?;
    file.sync_data()?;
    disk.rename(&new, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
    Ok(text)
}

fn read(env: &Env, path: &Path) -> io::Result<String> {
    let bytes = read_file(env.disk().as_ref(), path, SECRET_FILE_MAX)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
}

fn failed(path: &Path, error: io::Error) -> ConfigError {
    ConfigError::Secret(Cause::context(format!("{}: {error}", path.display()), error))
}
