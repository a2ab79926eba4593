//! Maps the address of a node of this user's `quorate dev` to its data directory, so that other commands need only
//! `--node`. A small file for each address names the data directory; the secret stays in that directory.
//!
//! The registry is optional: without it, the other commands ask for the data directory or the secret.

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The files of registered nodes. Dropping this removes them.
#[derive(Debug)]
pub struct Registered {
    files: Vec<PathBuf>,
}

/// Registers the nodes of a data directory.
pub fn register(addrs: &[String], dir: &Path) -> Registered {
    let files = own_folder().into_iter().flat_map(|folder| addrs.iter().map(move |addr| folder.join(addr)));
    let written = files.filter(|file| fs::write(file, dir.as_os_str().as_bytes()).is_ok());
    Registered { files: written.collect() }
}

impl Drop for Registered {
    fn drop(&mut self) {
        for file in &self.files {
            // A file that stays is harmless: it names a directory that no longer runs a cluster.
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns the data directory of the node at this address, if it is registered.
pub fn find(addr: &str) -> Option<PathBuf> {
    let file = own_folder()?.join(Path::new(addr).file_name()?);
    Some(PathBuf::from(std::ffi::OsString::from_vec(fs::read(file).ok()?)))
}

/// Returns the registry's directory, creating it if it does not exist; `None` if it can't be created or belongs to
/// another user.
fn own_folder() -> Option<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => PathBuf::from(runtime).join("quorate"),
        None => std::env::temp_dir().join(format!("quorate-{user}")),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let found = fs::symlink_metadata(&folder).ok()?;
    (found.is_dir() && found.uid() == user).then_some(folder)
}
