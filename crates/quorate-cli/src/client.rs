//! Requests to single nodes.

use std::time::Duration;

use quorate::{Client, ClientConfig, ConnectError, Error as SqlError, SecretSource, Status};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Context as _, Error, Result};

/// How long a node may take to return its status.
const STATUS_MAX: Duration = Duration::from_secs(2);
/// How long a starting node or a new cluster may take to answer.
const START_MAX: Duration = Duration::from_secs(120);
/// How long an election may take.
const ELECTION_MAX: Duration = Duration::from_secs(10);
/// How often a starting node is polled.
const START_POLL: Duration = Duration::from_millis(20);

/// Returns the status that a node reports.
pub async fn status(node: ClientConfig) -> Result<Status> {
    connect_to(node).await?.status().await.map_err(of_one_node)
}

/// Waits until a node that starts answers linearizable reads.
pub async fn wait_for_reads(addr: &str, secret: &SecretSource) -> Result<()> {
    let read = || async {
        let client = connect_to(plain(addr, secret)).await?;
        client.sql().query("SELECT 1", ()).await.map_err(Error::of)
    };
    until_answered(read).await
}

/// Waits until a node that starts answers.
pub async fn wait_for_status(addr: &str, secret: &SecretSource) -> Result<()> {
    until_answered(|| status(plain(addr, secret))).await
}

/// Waits until something listens at an address.
pub async fn wait_for_port(addr: &str) -> Result<()> {
    until_answered(|| async { TcpStream::connect(addr).await.context(|| format!("nothing listens at {addr}")) }).await
}

/// Returns the number of the leader according to the first node that answers. The nodes of `quorate dev` have numbers
/// as names.
pub async fn leader(addrs: &[String], secret: &SecretSource) -> Option<u64> {
    for addr in addrs {
        if let Ok(status) = status(plain(addr, secret)).await {
            return status.leader().and_then(|leader| leader.name.parse().ok());
        }
    }
    None
}

/// The same, but waits for a leader if there is an election just now.
pub async fn wait_for_leader(addrs: &[String], secret: &SecretSource) -> Option<u64> {
    let deadline = Instant::now() + ELECTION_MAX;
    loop {
        let leader = leader(addrs, secret).await;
        if leader.is_some() || Instant::now() >= deadline {
            return leader;
        }
        sleep(START_POLL).await;
    }
}

/// The nodes of `quorate dev` use no TLS.
fn plain(addr: &str, secret: &SecretSource) -> ClientConfig {
    ClientConfig::pinned(addr, secret.clone())
}

async fn connect_to(node: ClientConfig) -> Result<Client> {
    Client::connect(node.with_deadline(STATUS_MAX)).await.map_err(of_connecting)
}

/// Describes why connecting to one node failed. The library's message would speak of a cluster.
pub fn of_connecting(error: ConnectError) -> Error {
    match error {
        ConnectError::Cluster(error) => of_one_node(error),
        error => Error::of(error),
    }
}

/// Describes why a request to one node failed.
fn of_one_node(error: SqlError) -> Error {
    match error {
        SqlError::Unavailable(why) => Error::of(why),
        error => Error::of(error),
    }
}

/// Repeats a request until it succeeds. Fails with the last error after [`START_MAX`].
async fn until_answered<T, F: Future<Output = Result<T>>>(mut ask: impl FnMut() -> F) -> Result<()> {
    let deadline = Instant::now() + START_MAX;
    let mut last = None;
    while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        match timeout(left, ask()).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => last = Some(error),
            Err(_) => break,
        }
        sleep(START_POLL).await;
    }
    let late = format!("no answer within {} s", START_MAX.as_secs());
    Err(last.map_or_else(|| Error::new(late.clone()), |error| error.within(&late)))
}
