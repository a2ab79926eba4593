//! The part of HTTP/1.1 that a client of one server needs: a request, its answer, and then the next request on the same
//! connection, over TLS or in the clear.
//!
//! Each call uses a connection that no other call uses at the same time. Connections are kept and reused.
//!
//! Invariant: an answer is read completely and within the limits, or the connection is not used again.

use std::path::Path;
use std::sync::Mutex;

use quorate_bench_harness::Result;
use quorate_env::net::{BoxStream, Net};
use quorate_env::{Env, lock};
use quorate_tls::{Ca, Keychain, TlsFiles, TlsNet};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

/// The maximum bytes of a line, lines of a head, and bytes of a body.
const LINE_MAX: u64 = 8 << 10;
const LINES_MAX: usize = 100;
const BODY_MAX: usize = 16 << 20;

/// A server that already runs, and the connections to it.
pub struct Server {
    env: Env,
    /// `HOST:PORT`.
    host: String,
    /// The connections that are not in use.
    idle: Mutex<Vec<Connection>>,
}

impl Server {
    /// Returns the server at an address, `http://HOST:PORT`, or `https://HOST:PORT` with the CA in this directory.
    pub fn at(url: Option<&str>, tls: Option<&Path>) -> Result<Self> {
        let url = url.ok_or("give the address of a running server: --url http://HOST:PORT")?;
        let (is_secure, host) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(host), _) => (false, host),
            (None, Some(host)) => (true, host),
            (None, None) => (false, ""),
        };
        let host = host.trim_end_matches('/');
        if !host.contains(':') || host.contains('/') {
            return Err(format!("{url} is not an address of the form http://HOST:PORT").into());
        }
        let mut env = Env::real();
        if is_secure {
            let dir = tls.ok_or("name the directory with the server's CA: --tls DIR")?;
            let files = TlsFiles { ca: Ca::File(dir.join("ca.crt")), identity: None };
            env = TlsNet::new(&env, Keychain::open(&env, files)?).env(&env);
        }
        Ok(Self { env, host: host.to_owned(), idle: Mutex::default() })
    }

    /// Sends a request. Fails unless the status is 200.
    pub async fn send(&self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let kept = lock(&self.idle).pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => Connection::open(&**self.env.net(), &self.host).await?,
        };
        let answer = connection.send(method, path, body).await?;
        lock(&self.idle).push(connection);
        if answer.status != 200 {
            return Err(format!("{}: {}", answer.status, String::from_utf8_lossy(&answer.body)).into());
        }
        Ok(answer)
    }

    /// Sends JSON and returns the JSON of the answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(&self.send("POST", path, &body.to_string()).await?.body)?)
    }
}

/// A connection that is kept alive.
struct Connection {
    stream: BufReader<BoxStream>,
    host: String,
}

/// The answer to a request.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The lines of its head, except the first.
    head: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Connection {
    /// Connects to `HOST:PORT`.
    async fn open(net: &dyn Net, host: &str) -> Result<Self> {
        Ok(Self { stream: BufReader::new(net.connect(host).await?), host: host.to_owned() })
    }

    /// Sends a request with a body of JSON and reads the answer.
    async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let (host, length) = (&self.host, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answer> {
        let first = self.line().await?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| format!("not an HTTP answer: {first:?}"))?;
        let mut answer = Answer { status, head: self.lines().await?, body: Vec::new() };
        if answer.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            while self.chunk(&mut answer.body).await? {}
            // Skips the trailer after the last chunk.
            self.lines().await?;
        } else {
            let length = answer.header("content-length").ok_or("the answer has no length")?.parse()?;
            self.read(length, &mut answer.body).await?;
        }
        Ok(answer)
    }

    /// Reads a chunk. Returns `false` after the last one, which is empty.
    async fn chunk(&mut self, body: &mut Vec<u8>) -> Result<bool> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16)?;
        if length == 0 {
            return Ok(false);
        }
        self.read(length, body).await?;
        match self.line().await?.is_empty() {
            true => Ok(true),
            false => Err("a chunk is longer than its length says".into()),
        }
    }

    async fn read(&mut self, length: usize, body: &mut Vec<u8>) -> Result<()> {
        let start = body.len();
        let end = start.checked_add(length).filter(|end| *end <= BODY_MAX);
        body.resize(end.ok_or("the body is too long")?, 0);
        self.stream.read_exact(body.get_mut(start..).unwrap_or_default()).await?;
        Ok(())
    }

    /// Reads lines up to an empty one.
    async fn lines(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        while lines.len() < LINES_MAX {
            match self.line().await? {
                line if line.is_empty() => return Ok(lines),
                line => lines.push(line),
            }
        }
        Err("the head is too long".into())
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(LINE_MAX).read_line(&mut line).await?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(line.trim_end_matches('\r').to_owned()),
            None => Err("the connection ended, or a line is too long".into()),
        }
    }
}

impl Answer {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.iter().filter_map(|line| line.split_once(':'));
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}
