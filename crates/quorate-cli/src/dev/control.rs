//! How `quorate dev --restart N` talks to the running `quorate dev`: over a Unix socket in the data directory, with one
//! line in each direction. The request is `restart N`; the answer is `started` or an error message.
//!
//! So all nodes are children of one process, which watches and stops them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quorate_env::net::{BoxStream, Listener, Net as _, UnixNet};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::layout::control_socket;
use crate::error::{Context as _, Error, Result};

/// The maximum length of a line, in bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// How long a request may take to arrive.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// How long the node may take to stop, start and answer.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// The answer on success.
const STARTED: &str = "started";

/// Accepts requests.
#[derive(Debug)]
pub struct Control {
    listener: Arc<dyn Listener>,
}

/// A request to start node `id` again.
pub struct Request {
    /// The node.
    pub id: u64,
    stream: BoxStream,
}

impl Control {
    /// Listens in a data directory that this process has locked.
    pub async fn listen(dir: &Path) -> Result<Self> {
        let path = control_socket(dir).display().to_string();
        let listener = UnixNet::default().listen(&path).await;
        Ok(Self { listener: listener.context(|| format!("cannot listen on {path}"))? })
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

impl Request {
    async fn read(mut stream: BoxStream) -> Option<Self> {
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
    let socket = control_socket(dir).display().to_string();
    let mut stream = UnixNet::default().connect(&socket).await.map_err(nobody)?;
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

async fn read_line(stream: &mut BoxStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}
