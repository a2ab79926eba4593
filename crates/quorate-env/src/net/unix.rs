//! Unix sockets: connections within this machine. An address is the path of a socket's file.
//!
//! Invariants:
//! - Only the user of the process can connect, unless another mode is named. The file has its mode from the first
//!   moment at which it has its name.
//! - The file of a process that is gone is replaced; that of one that listens, or any other file, never is.
//! - A path may be longer than the operating system allows for a socket.

#![allow(clippy::disallowed_methods, reason = "the one place that uses the files of sockets")]

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::net::{UnixListener, UnixStream};

use super::{BoxStream, Listener, Net, Stream};

/// The mode of a socket that only its user can connect to.
pub const OWNER_ONLY: u32 = 0o600;

/// The longest path of a socket that every system accepts, in bytes.
const PATH_BYTES_MAX: usize = 100;

/// What is appended to the name of a socket until it has its mode.
const UNFINISHED: &str = ".new";

/// The Unix sockets of this machine.
#[derive(Clone, Copy, Debug)]
pub struct UnixNet {
    mode: u32,
}

#[derive(Debug)]
struct SocketFile {
    socket: UnixListener,
    path: PathBuf,
}

impl UnixNet {
    /// Returns the network in which sockets that listen get files of this mode.
    pub fn with_mode(mode: u32) -> Self {
        Self { mode }
    }
}

impl Default for UnixNet {
    fn default() -> Self {
        Self::with_mode(OWNER_ONLY)
    }
}

impl Stream for UnixStream {}

impl Net for UnixNet {
    fn connect(&self, addr: &str) -> BoxFuture<'static, io::Result<BoxStream>> {
        let path = PathBuf::from(addr);
        async move { Ok(Box::new(connect(&path).await?) as BoxStream) }.boxed()
    }

    fn listen(&self, addr: &str) -> BoxFuture<'static, io::Result<Arc<dyn Listener>>> {
        let (path, mode) = (PathBuf::from(addr), self.mode);
        async move { Ok(Arc::new(listen(path, mode).await?) as Arc<dyn Listener>) }.boxed()
    }
}

impl Listener for SocketFile {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxStream, String)>> {
        // All clients are of this machine, and have no address of their own.
        async move { Ok((Box::new(self.socket.accept().await?.0) as BoxStream, self.local_addr())) }.boxed()
    }

    fn local_addr(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If the file stays, the next process that listens replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

async fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = ShortPath::of(path)?;
    UnixStream::connect(&short.path).await
}

async fn listen(path: PathBuf, mode: u32) -> io::Result<SocketFile> {
    check_unused(&path).await?;
    let mut unfinished = path.clone().into_os_string();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    match fs::symlink_metadata(&unfinished) {
        // A process was killed at this point.
        Ok(found) if found.file_type().is_socket() => fs::remove_file(&unfinished)?,
        _ => {}
    }
    let socket = UnixListener::bind(&ShortPath::of(&unfinished)?.path)?;
    // From here on, its file is removed if something fails.
    let mut listening = SocketFile { socket, path: unfinished };
    fs::set_permissions(&listening.path, Permissions::from_mode(mode))?;
    fs::rename(&listening.path, &path)?;
    listening.path = path;
    Ok(listening)
}

/// Checks that there is nothing at a path, or the socket of a process that is gone.
async fn check_unused(path: &Path) -> io::Result<()> {
    let used = |what: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, what));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return used("there is a file that is no socket: remove it, or use another path");
        }
        Ok(_) => {}
    }
    match connect(path).await {
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => used("another process listens there: stop it, or use another path"),
    }
}

/// A path that is not too long, and the directory that must stay open while it is used.
struct ShortPath {
    path: PathBuf,
    _folder: Option<File>,
}

impl ShortPath {
    /// Returns the path of a socket. One that is too long is replaced by one through its opened directory.
    fn of(path: &Path) -> io::Result<Self> {
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) if path.as_os_str().len() > PATH_BYTES_MAX => {
                let folder = File::open(folder)?;
                let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
                Ok(Self { path, _folder: Some(folder) })
            }
            _ => Ok(Self { path: path.to_owned(), _folder: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn streams_connect_by_a_path_of_any_length_and_the_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("d".repeat(120));
        fs::create_dir(&long).unwrap();
        for (folder, mode) in [(dir.path(), OWNER_ONLY), (&long, 0o660)] {
            let path = folder.join("socket");
            let (net, addr) = (UnixNet::with_mode(mode), path.to_str().unwrap());
            let listener = net.listen(addr).await.unwrap();
            assert_eq!(mode_of(&path), mode);
            let mut near = net.connect(addr).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            near.write_all(b"x").await.unwrap();
            assert_eq!(far.read_u8().await.unwrap(), b'x');
            drop(listener);
            assert_eq!(fs::read_dir(folder).unwrap().filter(|item| item.as_ref().unwrap().path() != long).count(), 0);
        }
    }

    #[tokio::test]
    async fn only_a_socket_that_nobody_listens_to_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (net, addr) = (UnixNet::default(), path.to_str().unwrap());
        // The files of a process that was killed: sockets without a listener.
        for left in ["socket", "socket.new"] {
            drop(std::os::unix::net::UnixListener::bind(dir.path().join(left)).unwrap());
        }
        let listener = net.listen(addr).await.unwrap();
        assert_eq!(mode_of(&path), OWNER_ONLY);
        let refused = net.listen(addr).await.unwrap_err();
        assert!(refused.to_string().contains("another process listens there"), "{refused}");
        assert!(net.connect(addr).await.is_ok());
        drop(listener);
        fs::write(&path, "text").unwrap();
        let refused = net.listen(addr).await.unwrap_err();
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }
}
