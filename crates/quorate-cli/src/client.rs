//! The library, as the commands call it.

use std::time::Duration;

use quorate::{Error as SqlError, FailureKind, RemoteConfig, RemoteSql, SecretSource, Sql, Status};
use tokio::time::{Instant, sleep, timeout};

use crate::access::Access;
use crate::args::Level;
use crate::error::{Error, Result};
use crate::format::{Answer, Written};

/// How long nodes may take to let this client in.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a statement may take, changes of the leader included.
const STATEMENT_MAX: Duration = Duration::from_secs(60);
/// How long a node may take to say how it is.
const STATUS_MAX: Duration = Duration::from_secs(2);
/// How long a new cluster may take to answer, or a node that starts.
const START_MAX: Duration = Duration::from_secs(120);
/// How often one that starts is asked.
const START_POLL: Duration = Duration::from_millis(20);

/// Runs statements.
pub struct Client {
    sql: Sql,
    remote: RemoteSql,
}

impl Client {
    /// Reaches the cluster, or the node.
    pub async fn connect(access: &Access) -> Result<Self> {
        let config = RemoteConfig {
            pinned: access.pinned,
            deadline: CONNECT_MAX,
            ..RemoteConfig::new(access.addrs.clone(), access.secret.clone())
        };
        let remote = RemoteSql::connect(config).await.map_err(|error| Error::new(error.to_string()))?;
        Ok(Self { sql: remote.with_deadline(STATEMENT_MAX), remote })
    }

    /// Runs a statement: as a query, or, if it turns out that it is none, as a write.
    pub async fn run(&self, statement: &str, level: Level) -> Result<Answer> {
        match self.sql.at(level.into()).query(statement, ()).await {
            Ok(rows) => Ok(Answer {
                columns: rows.columns().to_vec(),
                rows: rows.iter().map(|row| row.values().to_vec()).collect(),
                written: None,
            }),
            // What is no query is refused as one. What is not allowed at all is refused again.
            Err(SqlError::Failed(failure)) if failure.kind == FailureKind::Refused => self.write(statement).await,
            Err(error) => Err(Error::new(error.to_string())),
        }
    }

    async fn write(&self, statement: &str) -> Result<Answer> {
        let batch = self.sql.batch([statement]).await.map_err(|error| Error::new(error.to_string()))?;
        let result = batch.results.into_iter().next().unwrap_or_default();
        let written = Written {
            changes: result.changes,
            last_insert_rowid: result.last_insert_rowid,
            position: batch.position.to_string(),
        };
        Ok(Answer { columns: result.columns, rows: result.rows, written: Some(written) })
    }

    /// The handle, for many statements.
    pub fn sql(&self) -> &Sql {
        &self.sql
    }

    /// Leaves in good order.
    pub async fn close(self) {
        self.remote.close().await;
    }
}

/// What a node says of itself.
pub async fn status(addr: &str, secret: &SecretSource) -> Result<Status> {
    connect_to(addr, secret).await?.status().await.map_err(|error| Error::new(error.to_string()))
}

/// Waits until a node that starts answers linearizable reads.
pub async fn wait_for_reads(addr: &str, secret: &SecretSource) -> Result<()> {
    let read = || async {
        let remote = connect_to(addr, secret).await?;
        remote.query("SELECT 1", ()).await.map_err(|error| Error::new(error.to_string()))
    };
    until_answered(read).await
}

/// Waits until a node that starts answers.
pub async fn wait_for_status(addr: &str, secret: &SecretSource) -> Result<()> {
    until_answered(|| status(addr, secret)).await
}

/// The number that is the leader's name, as the first node knows it that answers.
pub async fn leader(addrs: &[String], secret: &SecretSource) -> Option<u64> {
    for addr in addrs {
        if let Ok(status) = status(addr, secret).await {
            return status.leader().and_then(|leader| leader.name.parse().ok());
        }
    }
    None
}

async fn connect_to(addr: &str, secret: &SecretSource) -> Result<RemoteSql> {
    let config = RemoteConfig { deadline: STATUS_MAX, ..RemoteConfig::pinned(addr, secret.clone()) };
    RemoteSql::connect(config).await.map_err(|error| Error::new(error.to_string()))
}

/// Asks again until there is an answer, or says what the last answer was.
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
    let why = last.map_or_else(String::new, |error| format!(": {error}"));
    Err(Error::new(format!("no answer within {} s{why}", START_MAX.as_secs())))
}
