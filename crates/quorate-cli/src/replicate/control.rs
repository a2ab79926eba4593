//! The control socket: what others ask of `quorate replicate` while it runs.
//!
//! Invariants:
//! - A request is decided by the loop that has the databases, one after the other. What takes its time is waited for
//!   by the request itself, and no longer than [`TIMEOUT_MAX`].
//! - Nothing that is asked for changes a configuration file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate_env::Env;
use quorate_http::port::Port;
use quorate_server::http::{Controlled, Refusal, control};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::database::Pending;
use crate::error::{Error, Result};

/// The most requests that wait to be decided.
const REQUESTS_MAX: usize = 64;

/// How long a request waits if it does not say so, and at most.
const TIMEOUT: Duration = Duration::from_secs(30);
pub const TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// Where the control socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    pub path: PathBuf,
    /// The mode of its file.
    pub mode: u32,
}

/// What is asked for.
#[derive(Debug)]
pub enum Ask {
    List,
    Info,
    Sync {
        path: PathBuf,
        /// How long to wait until everything is in the store; `None` not to wait.
        limit: Option<Duration>,
    },
    Start {
        path: PathBuf,
    },
    Stop {
        path: PathBuf,
        limit: Duration,
    },
    Register {
        path: PathBuf,
        url: String,
    },
    Unregister {
        path: PathBuf,
        limit: Duration,
    },
}

/// A request, which must be answered.
pub struct Request {
    pub ask: Ask,
    pub answer: oneshot::Sender<Result<Pending, Refusal>>,
}

/// Where requests come from.
pub struct Requests {
    receiver: mpsc::Receiver<Request>,
    port: Option<Port>,
}

impl Requests {
    /// Opens the socket, if there is to be one.
    pub async fn open(env: &Env, socket: Option<&Socket>) -> Result<Self> {
        let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
        let Some(Socket { path, mode }) = socket else { return Ok(Self { receiver, port: None }) };
        let port = control(env, &path.display().to_string(), *mode, Door(sender)).await.map_err(Error::of)?;
        tracing::info!(path = port.local_addr(), "listens for requests");
        Ok(Self { receiver, port: Some(port) })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Request {
        match self.receiver.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    /// Refuses all further requests.
    pub fn refuse(&mut self) {
        self.receiver.close();
        while self.receiver.try_recv().is_ok() {}
    }

    /// Refuses further requests, gives those that have begun a moment to be answered, and closes the socket.
    pub async fn close(mut self) {
        self.refuse();
        if let Some(port) = self.port {
            port.stop().await;
        }
    }
}

#[derive(Clone)]
struct Door(mpsc::Sender<Request>);

impl Controlled for Door {
    const REQUESTS: &'static [(&'static str, &'static str)] = &[
        ("GET", "/list"),
        ("GET", "/info"),
        ("POST", "/sync"),
        ("POST", "/start"),
        ("POST", "/stop"),
        ("POST", "/register"),
        ("POST", "/unregister"),
    ];

    async fn answer(&self, path: &str, body: Value) -> Result<Value, Refusal> {
        let ended = |_| Refusal::Failed("the process ends".to_owned());
        let (answer, answered) = oneshot::channel();
        self.0.send(Request { ask: Ask::parse(path, body)?, answer }).await.map_err(|_| ()).map_err(ended)?;
        answered.await.map_err(|_| ()).map_err(ended)??.await
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sync {
    path: PathBuf,
    #[serde(default)]
    wait: bool,
    timeout: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    path: PathBuf,
    timeout: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Placed {
    path: PathBuf,
    url: String,
}

impl Ask {
    fn parse(request: &str, body: Value) -> Result<Self, Refusal> {
        Ok(match request {
            "/sync" => {
                let Sync { path, wait, timeout } = read(body)?;
                let limit = limit(timeout)?;
                Self::Sync { path: absolute(path)?, limit: wait.then_some(limit) }
            }
            "/start" | "/stop" | "/unregister" => {
                let Named { path, timeout } = read(body)?;
                let (path, limit) = (absolute(path)?, limit(timeout)?);
                match request {
                    "/start" => Self::Start { path },
                    "/stop" => Self::Stop { path, limit },
                    _ => Self::Unregister { path, limit },
                }
            }
            "/register" => {
                let Placed { path, url } = read(body)?;
                Self::Register { path: absolute(path)?, url }
            }
            "/info" => Self::Info,
            _ => Self::List,
        })
    }
}

fn read<T: DeserializeOwned>(body: Value) -> Result<T, Refusal> {
    serde_json::from_value(body).map_err(|error| Refusal::Malformed(format!("the body is not understood: {error}")))
}

fn absolute(path: PathBuf) -> Result<PathBuf, Refusal> {
    match Path::is_absolute(&path) {
        true => Ok(path),
        false => Err(Refusal::Malformed(format!("'path' must begin with /, not be {}", path.display()))),
    }
}

fn limit(seconds: Option<f64>) -> Result<Duration, Refusal> {
    let Some(seconds) = seconds else { return Ok(TIMEOUT) };
    let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero() && *limit <= TIMEOUT_MAX);
    let wrong = || Refusal::Malformed(format!("'timeout' must be a number of seconds up to {}", TIMEOUT_MAX.as_secs()));
    limit.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use serde_json::json;

    use super::*;

    #[test]
    fn requests_that_make_no_sense_are_refused() {
        for (request, body, why) in [
            ("/sync", Value::Null, "not understood"),
            ("/sync", json!({"path": 1}), "not understood"),
            ("/sync", json!({"path": "app.db"}), "must begin with /"),
            ("/sync", json!({"path": "/a", "timeout": 301}), "up to 300"),
            ("/sync", json!({"path": "/a", "timeout": -1}), "up to 300"),
            ("/sync", json!({"path": "/a", "timeout": 1e300}), "up to 300"),
            ("/stop", json!({"path": "/a", "wait": true}), "unknown field `wait`"),
            ("/start", json!([]), "not understood"),
            ("/register", json!({"path": "/a"}), "missing field `url`"),
        ] {
            let refusal = Ask::parse(request, body.clone()).unwrap_err();
            assert!(matches!(&refusal, Refusal::Malformed(text) if text.contains(why)), "{request} {body}: {refusal}");
        }
        let asked = Ask::parse("/sync", json!({"path": "/a", "wait": true, "timeout": 0.5})).unwrap();
        assert!(matches!(asked, Ask::Sync { limit: Some(limit), .. } if limit == Duration::from_millis(500)));
    }
}
