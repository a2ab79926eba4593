//! Runs statements for one request, and keeps count of what its answer holds.
//!
//! Invariant: the values of one answer have at most about [`ANSWER_BYTES_MAX`] bytes.

use std::time::Duration;

use bytes::Bytes;
use quorate::events::EventId;
use quorate::keys::Replies;
use quorate::sql::{BatchResult, BatchStep, StatementResult};
use quorate::{Error, Params, Position, Rows, Snapshot, Sql, Transaction, Value};

use crate::error::Problem;
use crate::login::Caller;
use crate::options::{ANSWER_BYTES_MAX, ROWS_MAX};
use crate::text::Kind;

/// A statement with its parameters.
pub(crate) type Bound = (String, Params);

/// The result of a statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) rows: Rows,
    pub(crate) changes: u64,
    /// The rowid of the last row that it inserted; 0 if it inserted none.
    pub(crate) last_insert_rowid: i64,
    /// The position of the write, if it wrote by itself.
    pub(crate) position: Option<Position>,
}

impl From<Rows> for Ran {
    fn from(rows: Rows) -> Self {
        Self { rows, ..Self::default() }
    }
}

impl From<StatementResult> for Ran {
    fn from(result: StatementResult) -> Self {
        let (changes, last_insert_rowid) = (result.changes, result.last_insert_rowid);
        Self { rows: result.into(), changes, last_insert_rowid, position: None }
    }
}

/// The key of a request, which makes each of its writes take effect once, however often the request is sent.
#[derive(Debug)]
struct Key {
    text: String,
    /// How many writes the request has sent so far. A write is recognised by the key and its number.
    writes: u32,
}

/// A transaction consists of reads and writes that differ between two attempts, so there is nothing to recognise.
pub(crate) const KEYED_TRANSACTION: &str = "a request with Idempotency-Key can't be part of an interactive \
                                            transaction: send statements that write, alone or as one batch";

/// What one request does.
#[derive(Debug)]
pub(crate) struct Work {
    sql: Sql,
    caller: Caller,
    key: Option<Key>,
    /// Whether its writes are archived before it is answered.
    is_archived: bool,
    /// How long an interactive transaction may last.
    transaction_time: Duration,
    /// The bytes that its answer may still take.
    left: usize,
    /// The position of its last write.
    position: Option<Position>,
}

impl Work {
    pub(crate) fn new(sql: Sql, caller: Caller, transaction_time: Duration) -> Self {
        let sql = sql.with_role(caller.role);
        Self { sql, caller, key: None, is_archived: false, transaction_time, left: ANSWER_BYTES_MAX, position: None }
    }

    /// Returns the same work with the key of its request.
    pub(crate) fn with_key(self, key: Option<String>) -> Self {
        Self { key: key.map(|text| Key { text, writes: 0 }), ..self }
    }

    /// Returns the same work, whose writes are archived before it is answered, if the request asks for that.
    pub(crate) fn archived(self, is_archived: bool) -> Self {
        let sql = if is_archived { self.sql.with_archived_writes() } else { self.sql };
        Self { sql, is_archived, ..self }
    }

    /// Returns whether the request has a key.
    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Returns the handle for the next write. Users don't share keys.
    fn writer(&mut self) -> Sql {
        let Some(key) = &mut self.key else { return self.sql.clone() };
        key.writes = key.writes.saturating_add(1);
        let name = self.caller.name.as_deref().unwrap_or_default();
        self.sql.with_key(format!("{name}\0{}\0{}", key.writes, key.text))
    }

    /// Fails if the request has a key: it would do a part of a transaction.
    pub(crate) fn without_key(&self) -> Result<(), Problem> {
        self.unkeyed(KEYED_TRANSACTION)
    }

    /// Fails with this text if the request has a key.
    pub(crate) fn unkeyed(&self, help: &'static str) -> Result<(), Problem> {
        if self.has_key() { Err(Problem::NotOffered(help)) } else { Ok(()) }
    }

    /// Returns the same work with other settings of its handle.
    pub(crate) fn with(self, set: impl FnOnce(Sql) -> Sql) -> Self {
        Self { sql: set(self.sql), ..self }
    }

    /// Returns for whom the work is done.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the handle, at the level of the request.
    pub(crate) fn sql(&self) -> &Sql {
        &self.sql
    }

    /// Begins an interactive transaction.
    pub(crate) async fn begin(&self) -> Result<Transaction, Problem> {
        self.without_key()?;
        Ok(self.sql.with_deadline(self.transaction_time).begin().await?)
    }

    /// Returns the position of the last write, if there was one.
    pub(crate) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Runs a statement by itself: as a query, or as a write.
    pub(crate) async fn run(&mut self, (text, params): Bound) -> Result<Ran, Problem> {
        let kind = Kind::of(&text);
        if let Kind::Write { .. } = kind {
            return self.write((text, params)).await;
        }
        match self.query((text.clone(), params.clone())).await {
            // Only the node knows whether, say, a PRAGMA writes.
            Err(Problem::Sql(error)) if kind == Kind::Other && Problem::is_refusal(&error) => {
                self.write((text, params)).await
            }
            result => result,
        }
    }

    /// Runs a query.
    pub(crate) async fn query(&mut self, (text, params): Bound) -> Result<Ran, Problem> {
        let rows = self.sql.with_limits(ROWS_MAX, self.left).query(text, params).await.map_err(of_statement)?;
        Ok(self.counted(rows.into()))
    }

    /// Runs a statement that writes.
    pub(crate) async fn write(&mut self, statement: Bound) -> Result<Ran, Problem> {
        let written = self.batch(vec![statement]).await.map_err(of_statement)?;
        Ok(written.into_iter().next().unwrap_or_default())
    }

    /// Runs statements that write: all of them take effect, or none.
    pub(crate) async fn batch(&mut self, statements: Vec<Bound>) -> Result<Vec<Ran>, Error> {
        self.room()?;
        let BatchResult { results, position, .. } = self.writer().batch(statements).await?;
        self.wrote(position);
        let ran = |result: StatementResult| Ran { position: Some(position), ..result.into() };
        Ok(results.into_iter().map(|result| self.counted(ran(result))).collect())
    }

    /// Adds an event.
    pub(crate) async fn notify(&mut self, channel: String, payload: Bytes) -> Result<(EventId, Position), Problem> {
        let (id, position) = self.writer().events().notify(channel, payload).with_position().await?;
        self.wrote(position);
        Ok((id, position))
    }

    /// Runs commands on keys as one entry: all of them take effect, or none.
    pub(crate) async fn change(&mut self, steps: impl IntoIterator<Item = BatchStep>) -> Result<Replies, Error> {
        let BatchResult { replies, position, .. } = self.writer().batch(steps).await?;
        self.wrote(position);
        Ok(replies)
    }

    /// Runs statements that write, each by itself, as one entry.
    pub(crate) async fn pipeline(&mut self, statements: Vec<Bound>) -> Result<Vec<Result<Ran, Problem>>, Error> {
        self.room()?;
        let written = self.writer().pipeline(statements).await?;
        let position = written.position;
        self.wrote(position);
        let results = written.results.into_iter().map(|result| match result {
            Ok(result) => Ok(self.counted(Ran { position: Some(position), ..result.into() })),
            Err(failure) => Err(failure.into()),
        });
        Ok(results.collect())
    }

    /// Runs a query on one state.
    pub(crate) async fn look(&mut self, snapshot: &mut Snapshot, (text, params): Bound) -> Result<Ran, Problem> {
        let mut stream = snapshot.stream(text, params).await.map_err(of_statement)?;
        let (mut values, mut bytes, mut count) = (Vec::new(), 0_usize, 0_usize);
        while let Some(rows) = stream.next().await.map_err(of_statement)? {
            (bytes, count) = (bytes.saturating_add(bytes_of(&rows)), count.saturating_add(rows.len()));
            if bytes > self.left || count > ROWS_MAX {
                return Err(too_large().into());
            }
            values.extend(rows.into_values());
        }
        let rows = stream.rows(values);
        Ok(self.counted(rows.into()))
    }

    /// Runs a statement of an interactive transaction. If there is no room for its result, it does not run.
    pub(crate) async fn step(&mut self, open: &mut Transaction, (text, params): Bound) -> Result<Ran, Problem> {
        self.without_key()?;
        self.room()?;
        let result = open.execute(text, params).await.map_err(of_statement)?;
        Ok(self.counted(result.into()))
    }

    /// Commits an interactive transaction.
    pub(crate) async fn commit(&mut self, open: Transaction) -> Result<(), Error> {
        // An earlier request of the stream may have begun it.
        let open = if self.is_archived { open.with_archived_commit() } else { open };
        let BatchResult { results, position, .. } = open.commit().await?;
        if !results.is_empty() {
            self.wrote(position);
        }
        Ok(())
    }

    /// Fails if the answer is full. The results of one entry may exceed the limit by what the library allows for them.
    fn room(&self) -> Result<(), Error> {
        if self.left == 0 { Err(too_large()) } else { Ok(()) }
    }

    fn wrote(&mut self, position: Position) {
        self.position = self.position.max(Some(position));
    }

    fn counted(&mut self, ran: Ran) -> Ran {
        self.left = self.left.saturating_sub(bytes_of(&ran.rows));
        ran
    }
}

/// Returns the problem of a statement, without its number, which clients learn from its place.
fn of_statement(error: Error) -> Problem {
    match error {
        Error::Failed(failure) => failure.into(),
        error => error.into(),
    }
}

pub(crate) fn too_large() -> Error {
    Error::TooLarge(
        format!("an answer has at most {ROWS_MAX} rows and {ANSWER_BYTES_MAX} bytes; read it in parts").into(),
    )
}

fn bytes_of(rows: &Rows) -> usize {
    rows.values().iter().fold(0, |sum, value| sum.saturating_add(value.size()).saturating_add(size_of::<Value>()))
}
