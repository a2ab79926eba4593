//! A connection to a cluster, with the limits that a person at a terminal expects.

use std::time::Duration;

use quorate::{
    Client, ClientConfig, Error as SqlError, Level as ReadLevel, Params, Rows, Snapshot, Sql,
    sql::{BatchResult, IntoParams},
};

use crate::error::{Error, Result};

/// How long nodes may take to accept this client.
pub const ACCEPT_MAX: Duration = Duration::from_secs(5);
/// The default limit of a statement, changes of the leader included.
const STATEMENT_MAX: Duration = Duration::from_secs(60);
/// Rows of a result that is fetched whole; a larger one is streamed.
const WHOLE_ROWS_MAX: usize = 50_000;
/// Bytes of such a result.
const WHOLE_BYTES_MAX: usize = 4 << 20;

/// The guarantee of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// What the node that answers has applied.
    Local,
    /// Everything that was acknowledged before the read.
    #[default]
    Linearizable,
}

impl From<Level> for ReadLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Local => Self::Local,
            Level::Linearizable => Self::Linearizable,
        }
    }
}

/// A connection to a cluster, or to one of its nodes. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    config: ClientConfig,
    sql: Sql,
    client: Client,
    /// The limit of a statement, if the caller set one.
    timeout: Option<Duration>,
}

impl Connection {
    /// Connects. No statement takes longer than `timeout`, or 60 s without one, and no query longer than the node
    /// allows. The deadline of `config` is not used.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`]: no node can be reached within 5 s (or `timeout`, if that is less), or they refuse.
    pub async fn connect(config: ClientConfig, timeout: Option<Duration>) -> Result<Self> {
        let deadline = timeout.map_or(ACCEPT_MAX, |timeout| timeout.min(ACCEPT_MAX));
        let config = config.with_deadline(deadline);
        let client = Client::connect(config.clone()).await;
        let client = client.map_err(|error| Error::Connection(error.into()))?;
        let sql = client.sql().with_deadline(timeout.unwrap_or(STATEMENT_MAX));
        let sql = timeout.map_or_else(|| sql.clone(), |timeout| sql.with_query_timeout(timeout));
        Ok(Self { config, sql, client, timeout })
    }

    /// Connects again, without the limit of [`Connection::with_budget`].
    pub(crate) async fn again(&self) -> Result<Self> {
        Self::connect(self.config.clone(), self.timeout).await
    }

    /// The same connection, on which each write may take this many steps of SQLite; without a number, the default.
    #[must_use]
    pub fn with_budget(self, steps: Option<u64>) -> Self {
        let sql = steps.map_or_else(|| self.sql.clone(), |steps| self.sql.with_budget(steps));
        Self { sql, ..self }
    }

    /// The handle of the library, with the limits of this connection.
    pub fn sql(&self) -> &Sql {
        &self.sql
    }

    /// Closes the connection after what was sent on it.
    pub async fn close(self) {
        self.client.close().await;
    }

    /// Runs a query whose result is small enough to be fetched whole. It fails with [`SqlError::TooLarge`] on a larger
    /// one, which a [`Connection::snapshot`] streams.
    pub(crate) async fn query(&self, level: Level, query: &str, params: impl IntoParams) -> Result<Rows, SqlError> {
        self.sql.at(level.into()).with_limits(WHOLE_ROWS_MAX, WHOLE_BYTES_MAX).query(query.to_owned(), params).await
    }

    /// Keeps one state to read from. A node keeps only a few at a time.
    pub(crate) async fn snapshot(&self, level: Level) -> Result<Snapshot> {
        Ok(self.sql.at(level.into()).snapshot().await?)
    }

    /// The error of a query. If the query ran too long, the message says which limit ended it.
    pub(crate) fn of_query(&self, error: SqlError) -> Error {
        let is_too_long = matches!(&error, SqlError::TimedOut(why) if why.to_string().contains("did not end within"));
        let is_own = self.timeout.is_some_and(|timeout| error.to_string().contains(&format!("within {timeout:?};")));
        let error = Error::from(error);
        match (is_too_long, is_own) {
            (false, _) => error,
            (true, true) => error.followed_by("this limit is --timeout"),
            (true, false) => error.followed_by("this limit is the node's 'sql.query_timeout'"),
        }
    }

    /// Runs a query of the shell itself, on whatever state the node that answers has.
    pub(crate) async fn look(&self, query: &str, limit: Duration) -> Result<Rows> {
        Ok(self.sql.at(ReadLevel::Local).with_deadline(limit).query(query.to_owned(), ()).await?)
    }

    /// Runs writes, all of them or none.
    pub(crate) async fn write(&self, statements: Vec<(String, Params)>) -> Result<BatchResult, SqlError> {
        self.sql.batch(statements).await
    }
}
