//! How `quorate dev --restart N` talks to the running `quorate dev`: over a Unix socket in the data directory, with one
//! line in each direction. The request is `restart N`; the answer is `started` or an error message.
//!
//! So all nodes are children of one process, which watches and stops them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::layout::control_socket;
use crate::error::{Context as _, Error, Result};

/// The maximum length of a line, in bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// The longest path of a socket that every system accepts, in bytes.
const PATH_BYTES_MAX: usize = 100;
/// How long a request may take to arrive.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// How long the node may take to stop, start and answer.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// The answer on success.
const STARTED: &str = "started";

/// Accepts requests.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

/// A request to start node `id` again.
#[derive(Debug)]
pub struct Request {
    /// The node.
    pub id: u64,
    stream: UnixStream,
}

impl Control {
    /// Listens in a data directory that this process has locked.
    pub fn listen(dir: &Path) -> Result<Self> {
        let path = control_socket(dir);
        // A socket file here is left over from a process that was killed: this process has the lock, so nobody listens.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
        let listener = shortened(&path).and_then(|short| UnixListener::bind(&short.path));
        Ok(Self { listener: listener.context(|| format!("cannot listen on {}", path.display()))?, path })
    }

    /// Waits for the next request. Anything else that arrives is answered with an error and dropped.
    pub async fn next(&self) -> Request {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(_) => {
                    // The cause may be too many open files: wait before trying again.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if let Ok(Some(request)) = tokio::time::timeout(REQUEST_MAX, Request::read(stream)).await {
                return request;
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // If this fails, the next `listen` removes the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Request {
    async fn read(mut stream: UnixStream) -> Option<Self> {
        let line = read_line(&mut stream).await.ok()?;
        let id = line.strip_prefix("restart ").and_then(|id| id.parse().ok());
        if id.is_none() {
            let _ = stream.write_all(b"not understood: is this another version of quorate?\n").await;
        }
        Some(Self { id: id?, stream })
    }

    /// Sends the outcome. Errors are ignored: the other process may have ended.
    pub async fn answer(mut self, outcome: Result<()>) {
        let line = match outcome {
            Ok(()) => STARTED.to_owned(),
            Err(error) => error.to_string().replace('\n', " "),
        };
        let _ = self.stream.write_all(format!("{line}\n").as_bytes()).await;
    }
}

/// Asks the `quorate dev` of a data directory to start a node again, and waits until it has.
pub async fn restart(dir: &Path, id: u64) -> Result<()> {
    let nobody = |error: io::Error| {
        let dir = dir.display();
        Error::caused(
            format!("no `quorate dev` runs in {dir} ({error}): start it with `quorate dev --data-dir {dir}`"),
            error,
        )
    };
    let socket = shortened(&control_socket(dir)).map_err(nobody)?;
    let mut stream = UnixStream::connect(&socket.path).await.map_err(nobody)?;
    let exchange = async {
        stream.write_all(format!("restart {id}\n").as_bytes()).await?;
        read_line(&mut stream).await
    };
    match tokio::time::timeout(ANSWER_MAX, exchange).await {
        Ok(Ok(line)) if line == STARTED => Ok(()),
        Ok(Ok(line)) if line.is_empty() => Err(Error::new("`quorate dev` ended before it answered")),
        Ok(Ok(line)) => Err(Error::new(line)),
        Ok(Err(error)) => Err(error).context(|| "`quorate dev` does not answer"),
        Err(_) => Err(Error::new(format!("node {id} did not answer within {} s", ANSWER_MAX.as_secs()))),
    }
}

/// A path, and the directory that must stay open while the path is used.
struct ShortPath {
    path: PathBuf,
    _folder: Option<File>,
}

/// Returns the path of a socket. A path that is too long is replaced by one through its opened directory.
fn shortened(path: &Path) -> io::Result<ShortPath> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if path.as_os_str().len() > PATH_BYTES_MAX => {
            let folder = File::open(folder)?;
            let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
            Ok(ShortPath { path, _folder: Some(folder) })
        }
        _ => Ok(ShortPath { path: path.to_owned(), _folder: None }),
    }
}

async fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}
