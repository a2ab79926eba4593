//! Which data directory a node of this user's `quorate dev` belongs to, by its address, so that `--node` is all that
//! another command needs to be told. A small file for each address names the data directory; the secret stays there.
//!
//! Nothing depends on it: where it can't be kept, the other commands ask for the data directory or the secret.

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Remembers where the nodes' data is, until dropped.
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
            // What stays only names a directory that no longer runs a cluster.
            let _ = fs::remove_file(file);
        }
    }
}

/// The data directory of the node at this address, if one was registered.
pub fn find(addr: &str) -> Option<PathBuf> {
    let file = own_folder()?.join(Path::new(addr).file_name()?);
    Some(PathBuf::from(std::ffi::OsString::from_vec(fs::read(file).ok()?)))
}

/// The folder, made where it is not there; `None` if it can't be made or is somebody else's.
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
