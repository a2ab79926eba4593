//! The library, as the commands call it.

use std::time::Duration;

use quorate::{
    BatchResult, ConnectError, Error as SqlError, IntoParams, Level as ReadLevel, RemoteConfig, RemoteSql, Rows,
    SecretSource, Snapshot, Sql, Status,
};
use tokio::time::{Instant, sleep, timeout};

use crate::access::Access;
use crate::error::{Error, Result};
use crate::format::visible;
use crate::options::Level;

/// How long nodes may take to let this client in.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a statement may take unless told otherwise, changes of the leader included.
const STATEMENT_MAX: Duration = Duration::from_secs(60);
/// Rows of a result that is taken whole; a larger one is streamed.
const WHOLE_ROWS_MAX: usize = 50_000;
/// Bytes of it.
const WHOLE_BYTES_MAX: usize = 4 << 20;
/// How long a node may take to say how it is.
const STATUS_MAX: Duration = Duration::from_secs(2);
/// How long a new cluster may take to answer, or a node that starts.
const START_MAX: Duration = Duration::from_secs(120);
/// How often one that starts is asked.
const START_POLL: Duration = Duration::from_millis(20);

/// Runs statements. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    sql: Sql,
    remote: RemoteSql,
    /// How long a statement may take, where the caller said so.
    timeout: Option<Duration>,
}

impl Client {
    /// Reaches the cluster, or the node. No statement takes longer than `timeout`, if there is one, and no query longer
    /// than the node lets it.
    pub async fn connect(access: &Access, timeout: Option<Duration>) -> Result<Self> {
        let config = RemoteConfig {
            pinned: access.pinned,
            deadline: timeout.map_or(CONNECT_MAX, |timeout| timeout.min(CONNECT_MAX)),
            ..RemoteConfig::new(access.addrs.clone(), access.secret.clone())
        };
        let remote = RemoteSql::connect(config).await.map_err(|error| Error::new(error.to_string()).of_connection())?;
        let sql = remote.with_deadline(timeout.unwrap_or(STATEMENT_MAX));
        let sql = timeout.map_or_else(|| sql.clone(), |timeout| sql.with_query_timeout(timeout));
        Ok(Self { sql, remote, timeout })
    }

    /// The same, whose writes may take so many steps of SQLite each, if that is said.
    pub fn with_budget(self, steps: Option<u64>) -> Self {
        let sql = steps.map_or_else(|| self.sql.clone(), |steps| self.sql.with_budget(steps));
        Self { sql, ..self }
    }

    /// How long a statement may take, where the caller said so.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Runs a query whose result is not too large to be taken whole; else it fails with [`SqlError::TooLarge`], and a
    /// [`Client::snapshot`] streams it.
    pub async fn query(&self, level: Level, query: &str, params: impl IntoParams) -> Result<Rows, SqlError> {
        self.sql.at(level.into()).with_limits(WHOLE_ROWS_MAX, WHOLE_BYTES_MAX).query(query, params).await
    }

    /// Keeps a state to read from. A node keeps only a few at a time.
    pub async fn snapshot(&self, level: Level) -> Result<Snapshot> {
        Ok(self.sql.at(level.into()).snapshot().await?)
    }

    /// An error of a query, with which limit it hit if it ran too long.
    pub fn of_query(&self, error: SqlError) -> Error {
        let is_too_long = matches!(&error, SqlError::TimedOut(text) if text.contains("did not end within"));
        let is_own = self.timeout.is_some_and(|timeout| error.to_string().contains(&format!("within {timeout:?};")));
        let error = Error::from(error);
        match (is_too_long, is_own) {
            (false, _) => error,
            (true, true) => error.followed_by("this limit is --timeout"),
            (true, false) => error.followed_by("this limit is the node's 'sql.query_timeout'"),
        }
    }

    /// Runs a query for ourselves, of whatever the node that answers has.
    pub async fn look(&self, query: &str, limit: Duration) -> Result<Rows> {
        Ok(self.sql.at(ReadLevel::Local).with_deadline(limit).query(query, ()).await?)
    }

    /// Runs statements that write, all of them or none.
    pub async fn write(&self, statements: Vec<String>) -> Result<BatchResult, SqlError> {
        self.sql.batch(statements).await
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

/// An error of the library, with text of the database made harmless for terminals.
impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        // As the options are called that do here what these do in a program.
        let text = error.to_string().replace("(with_deadline)", "(--timeout)");
        let text = text.replace("(with_query_timeout)", "(--timeout)").replace("(with_budget)", "(--budget)");
        let told = Self::new(visible::lines(&text));
        match error {
            SqlError::Failed(_)
            | SqlError::Conflict(_)
            | SqlError::TimedOut(_)
            | SqlError::TooLarge(_)
            | SqlError::SnapshotEnded => told,
            _ => told.of_connection(),
        }
    }
}

/// What a node says of itself.
pub async fn status(addr: &str, secret: &SecretSource) -> Result<Status> {
    connect_to(addr, secret).await?.status().await.map_err(of_one_node)
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
    RemoteSql::connect(config).await.map_err(of_connecting)
}

/// An error of connecting to one node, whose text would tell of a cluster.
pub fn of_connecting(error: ConnectError) -> Error {
    match error {
        ConnectError::Cluster(error) => of_one_node(error),
        error => Error::new(error.to_string()),
    }
}

/// The same of asking it.
fn of_one_node(error: SqlError) -> Error {
    match error {
        SqlError::Unavailable(why) => Error::new(why),
        error => Error::new(error.to_string()),
    }
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
