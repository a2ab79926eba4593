//! Requests with `Idempotency-Key`: each inserts a row, and is sent again with its key, through another proxy, until it
//! is answered.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use quorate::Sql;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::harness::Result;

/// How long a request is sent again.
const REQUEST_MAX: Duration = Duration::from_secs(60);
/// How long one attempt may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// The requests, which one client sends one after the other.
pub struct Keyed<'a> {
    token: &'a str,
    proxies: &'a [String],
}

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    acknowledged: Vec<i64>,
    /// Requests that were not answered in time.
    failed: u64,
    attempts: u64,
}

/// What was found of it.
#[derive(Debug)]
pub struct Found {
    written: Written,
    lost: u64,
    doubled: u64,
}

impl<'a> Keyed<'a> {
    /// Creates the table.
    pub async fn start(sql: &Sql, token: &'a str, proxies: &'a [String]) -> Result<Self> {
        sql.execute("CREATE TABLE keyed (n INTEGER)", ()).await?;
        Ok(Self { token, proxies })
    }

    /// Sends requests until it is over.
    pub async fn run(&self, is_over: &Cell<bool>) -> Result<Written> {
        let mut written = Written::default();
        for number in 0.. {
            if is_over.get() {
                break;
            }
            let begun = Instant::now();
            let mut at = usize::try_from(number)?;
            loop {
                written.attempts += 1;
                let addr = &self.proxies[at % self.proxies.len()];
                if matches!(timeout(ATTEMPT_MAX, self.send(addr, number)).await, Ok(Ok(true))) {
                    written.acknowledged.push(number);
                    break;
                }
                if begun.elapsed() > REQUEST_MAX {
                    written.failed += 1;
                    break;
                }
                at += 1;
                sleep(PAUSE).await;
            }
        }
        Ok(written)
    }

    /// Sends a request once; returns whether it was done.
    async fn send(&self, addr: &str, number: i64) -> Result<bool> {
        let body = format!("[[\"INSERT INTO keyed VALUES (?)\", {number}]]");
        let head =
            format!("POST /db/execute HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nIdempotency-Key: row-{number}");
        let request =
            format!("{head}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}", self.token, body.len());
        let mut stream = TcpStream::connect(addr).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.starts_with("HTTP/1.1 200") && answer.contains("\"rows_affected\":1"))
    }
}

impl Written {
    /// Compares it with the table.
    pub async fn check(self, sql: &Sql) -> Result<Found> {
        let rows: Vec<(i64, i64)> = sql.query_as("SELECT n, count(*) FROM keyed GROUP BY n", ()).await?;
        let rows: BTreeMap<i64, i64> = rows.into_iter().collect();
        let lost = self.acknowledged.iter().filter(|number| !rows.contains_key(number)).count();
        let doubled = rows.values().filter(|count| **count > 1).count();
        Ok(Found { lost: u64::try_from(lost)?, doubled: u64::try_from(doubled)?, written: self })
    }
}

impl Found {
    /// Returns whether each request had an answer and one effect.
    pub fn is_right(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.written.failed == 0 && !self.written.acknowledged.is_empty()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written { acknowledged, failed, attempts } = &self.written;
        let sent = acknowledged.len();
        write!(f, "{sent} requests with keys in {attempts} attempts: {failed} failed, ")?;
        write!(f, "{} lost, {} doubled", self.lost, self.doubled)
    }
}
