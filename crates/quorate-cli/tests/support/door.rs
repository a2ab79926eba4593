//! Plain HTTP to a node of a cluster of real processes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::Dev;

/// How long an answer may take; requests on locks wait.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// The HTTP port of a node.
pub struct Door(String);

impl Door {
    pub fn of(dev: &Dev, node: usize) -> Self {
        Self(dev.nodes()[node]["http_addr"].as_str().unwrap().to_owned())
    }

    /// Sends a request; returns the status, the `ETag` and the body, unless the connection breaks.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<(u16, String, String)> {
        let mut stream = TcpStream::connect(&self.0).ok()?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).ok()?;
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {length}");
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
        Some((head.split(' ').nth(1)?.parse().ok()?, tag.to_owned(), body.to_owned()))
    }
}
