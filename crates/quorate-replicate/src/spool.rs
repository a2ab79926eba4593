//! Brings an object into a file, so that it is verified before anything is done with it.
//!
//! Invariant: memory is bounded by [`PIECE_BYTES`], whatever the length of the object.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_archive::ltx::ReadAt;
use quorate_archive::{ArchiveError, Objects};
use quorate_env::Env;
use quorate_env::disk::{File, OpenMode};

use crate::error::ReplicateError;

/// The bytes that are asked for at once.
const PIECE_BYTES: u64 = 4 << 20;

/// A file for what is fetched, which is removed when this is dropped.
pub struct Spool {
    env: Env,
    path: PathBuf,
    file: Arc<dyn File>,
}

/// What a spool holds, to be read from the start or at any place.
#[derive(Clone)]
pub struct Fetched {
    file: Arc<dyn File>,
    length: u64,
    at: u64,
}

impl Spool {
    /// Creates the file; one of this name is replaced.
    pub fn create(env: &Env, path: PathBuf) -> Result<Self, ReplicateError> {
        let created = env.disk().open(&path, OpenMode::Create);
        let file = created.map_err(ReplicateError::io("create a file for what is fetched"))?;
        Ok(Self { env: env.clone(), path, file })
    }

    /// Returns the file.
    pub fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.file)
    }

    /// Fetches an object in place of what was there. Returns `None` if there is no such object.
    pub async fn fetch(&mut self, objects: &dyn Objects, key: &str) -> Result<Option<Fetched>, ReplicateError> {
        let failed = ReplicateError::io("write what is fetched");
        let Some(first) = objects.read(key, Some(0..PIECE_BYTES)).await.map_err(ArchiveError::from)? else {
            return Ok(None);
        };
        let (length, version) = (first.length, first.version);
        self.file.set_len(0).and_then(|()| self.file.write_at(&first.bytes, 0)).map_err(&failed)?;
        let mut at = first.bytes.len() as u64;
        while at < length {
            let range = at..at.saturating_add(PIECE_BYTES).min(length);
            let piece = objects.read(key, Some(range)).await.map_err(ArchiveError::from)?;
            let piece = piece.filter(|piece| piece.version == version && !piece.bytes.is_empty());
            let Some(piece) = piece else {
                return Err(ArchiveError::Missing(format!("the object '{key}' was replaced meanwhile")).into());
            };
            self.file.write_at(&piece.bytes, at).map_err(&failed)?;
            at = at.saturating_add(piece.bytes.len() as u64);
        }
        Ok(Some(Fetched { file: Arc::clone(&self.file), length, at: 0 }))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // What is left harms nothing: the next spool of this name replaces it.
        let _ = self.env.disk().remove_file(&self.path);
    }
}

impl Fetched {
    /// Whether all of it was read.
    pub fn is_read(&self) -> bool {
        self.at >= self.length
    }
}

impl Read for Fetched {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(out, self.at)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

impl ReadAt for Fetched {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }
}

/// Returns a name beside a file.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the directory of a file.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
