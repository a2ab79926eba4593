//! What a file is recognised by when an import of it goes on.
//!
//! Its size and the bytes at its beginning and end: enough to refuse another file at once. That the part between is the
//! same, the hash of each chunk tells.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::options::{Format, ImportOptions};
use crate::error::{Result, Told as _};

/// Bytes at each end of a file that are looked at.
const END_BYTES: u64 = 64 << 10;

/// Which file it is, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its whole path.
    pub source: String,
    /// Its size, and a hash.
    pub digest: String,
}

impl Identity {
    /// Looks at the file; `None` for the standard input, which can't be read again.
    pub fn of(options: &ImportOptions, format: Format) -> Result<Option<Self>> {
        if options.is_stdin() {
            return Ok(None);
        }
        let read = || -> io::Result<Self> {
            let path = fs::canonicalize(&options.file)?;
            let mut hash = Xxh3::new();
            let size = add_ends(&path, &mut hash)?;
            if format == Format::Sqlite {
                // What was committed and not yet moved into the file stands beside it.
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
        read().map(Some).told(|| format!("cannot read {}", options.file.display()))
    }
}

/// Adds the beginning and the end of a file, and gives back its size.
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
