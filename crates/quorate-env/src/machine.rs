//! What the machine says of itself.

use std::io;

/// The name of the machine, up to its first dot.
pub fn host_name() -> io::Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match name.split('.').next() {
        Some(first) if !first.is_empty() => Ok(first.to_owned()),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "this machine has no name")),
    }
}
