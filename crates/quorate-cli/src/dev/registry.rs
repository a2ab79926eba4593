//! Maps the address of a node of this user's `quorate dev` to its data directory, so that other commands need only
//! `--node`. A small file for each address names the data directory; the secret stays in that directory. The files stay
//! when the cluster stops, so that no new cluster takes its ports, which it needs again.
//!
//! The registry is optional: without it, the other commands ask for the data directory or the secret.

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Registers addresses of a data directory, and forgets those of directories that are gone.
pub fn register<'a>(addrs: impl IntoIterator<Item = &'a String>, dir: &Path) {
    let Some(folder) = own_folder() else { return };
    for file in fs::read_dir(&folder).into_iter().flatten().flatten() {
        // One that names nothing is being written.
        if named_by(&file.path()).is_some_and(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
            let _ = fs::remove_file(file.path());
        }
    }
    for addr in addrs {
        // Without the file, the registry does not know the address.
        let _ = fs::write(folder.join(addr), dir.as_os_str().as_bytes());
    }
}

/// Returns whether an address is that of a data directory which is still there, though its cluster may not run.
pub fn is_taken(addr: &str) -> bool {
    find(addr).is_some_and(|dir| dir.exists())
}

/// Returns the data directory of the node at this address, if it is registered.
pub fn find(addr: &str) -> Option<PathBuf> {
    named_by(&own_folder()?.join(Path::new(addr).file_name()?))
}

/// Returns the data directory that a file of the registry names.
fn named_by(file: &Path) -> Option<PathBuf> {
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
