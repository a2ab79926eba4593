//! How a file is recognised when an interrupted import of it continues.
//!
//! The size and the bytes at the beginning and the end identify a file well enough to refuse another one at once. The
//! hash of each chunk checks the part between.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Context as _, Result};
use crate::options::{Format, Options};

/// Bytes at each end of a file that are hashed.
const END_BYTES: u64 = 64 << 10;

/// The identity of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its canonical path.
    pub source: String,
    /// Its size, and a hash of its ends.
    pub digest: String,
}

impl Identity {
    /// Reads the identity of a file; `None` for the standard input, which can't be read again.
    pub fn of(options: &Options, format: Format) -> Result<Option<Self>> {
        if options.is_stdin() {
            return Ok(None);
        }
        let read = || -> io::Result<Self> {
            let path = fs::canonicalize(&options.file)?;
            let mut hash = Xxh3::new();
            let size = add_ends(&path, &mut hash)?;
            if format == Format::Sqlite {
                // Transactions that were committed but not checkpointed are in the -wal.
                let mut beside = path.clone().into_os_string();
                beside.push("-wal");
                match add_ends(Path::new(&beside), &mut hash) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            let digest = format!("{size}-{:032x}", hash.digest128());
            Ok(Self { source: path.display().to_string(), digest })
        };
        read().map(Some).context(|| format!("cannot read {}", options.file.display()))
    }
}

/// Adds the beginning and the end of a file to a hash, and returns the file's size.
fn add_ends(path: &Path, hash: &mut Xxh3) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.by_ref().take(END_BYTES).read_to_end(&mut bytes)?;
    if size > END_BYTES {
        file.seek(SeekFrom::Start(size.saturating_sub(END_BYTES)))?;
        file.take(END_BYTES).read_to_end(&mut bytes)?;
    }
    hash.update(&size.to_le_bytes());
    hash.update(&bytes);
    Ok(size)
}
