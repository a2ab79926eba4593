//! A result of any size, piece by piece, in bounded memory.
//!
//! The statement is paused between two pieces: nothing is computed before the caller requests it, and no thread waits.

use std::sync::Arc;

use quorate_env::Env;
use quorate_model::StoreFault;

use super::error::ReadError;
use super::guard::Allowance;
use super::held::Held;
use super::limits::{Cancel, CancelOnDrop};
use super::reader::{Chunk, Progress, StreamQuery};
use crate::query::Rows;

/// The rows of a query, in pieces of some hundred KiB. The first piece always comes, if only with the names of the
/// columns. The stream holds a read transaction and is subject to its age limit: a caller that takes pieces too slowly
/// gets [`ReadError::SnapshotEnded`]. The limits on rows and bytes apply to all pieces together, the limit on time to
/// each piece.
pub struct RowStream {
    held: Arc<Held>,
    query: Arc<StreamQuery>,
    progress: Progress,
    transaction: Transaction,
    end: Option<End>,
}

/// The read transaction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    /// The stream's own, which ends with the stream.
    Own,
    /// That of a snapshot, which outlives the stream.
    OfSnapshot,
}

/// How a stream ended.
#[derive(Clone)]
enum End {
    Complete,
    Failed(ReadError),
}

impl RowStream {
    pub(super) fn new(held: Arc<Held>, query: StreamQuery, transaction: Transaction) -> Self {
        Self { held, query: Arc::new(query), progress: Progress::default(), transaction, end: None }
    }

    /// Computes the next piece on the calling thread; `None` after the last. After an error, returns the same error
    /// again.
    pub fn next_blocking(&mut self) -> Result<Option<Rows>, ReadError> {
        match &self.end {
            None => {
                let chunk = chunk(&self.held, &self.query, self.progress, None);
                self.note(chunk)
            }
            Some(End::Complete) => Ok(None),
            Some(End::Failed(error)) => Err(error.clone()),
        }
    }

    /// Computes the next piece on a thread for blocking work; `None` after the last. Dropping the future before it is
    /// ready ends the stream.
    pub async fn next(&mut self, env: &Env) -> Result<Option<Rows>, ReadError> {
        if self.end.is_some() {
            return self.next_blocking();
        }
        self.end = Some(End::Failed(ReadError::Cancelled));
        let gone = CancelOnDrop(Cancel::new());
        let (held, query, progress) = (Arc::clone(&self.held), Arc::clone(&self.query), self.progress);
        let cancel = Some(gone.0.clone());
        let chunk = env.blocking(move || chunk(&held, &query, progress, cancel)).await;
        self.end = None;
        self.note(chunk.unwrap_or(Err(StoreFault::Closed.into())))
    }

    fn note(&mut self, chunk: Result<Chunk, ReadError>) -> Result<Option<Rows>, ReadError> {
        let (rows, end) = match chunk {
            Ok(Chunk { rows, progress, more }) => {
                self.progress = progress;
                (Ok(rows), (!more).then_some(End::Complete))
            }
            Err(error) => (Err(error.clone()), Some(End::Failed(error))),
        };
        if end.is_some() && self.transaction == Transaction::Own {
            self.held.end();
        }
        self.end = end;
        rows
    }
}

fn chunk(held: &Held, query: &StreamQuery, progress: Progress, gone: Option<Cancel>) -> Result<Chunk, ReadError> {
    let mut allowance = Allowance::within(&query.limits, held.age());
    allowance.cancel[1] = gone;
    held.with(|lease| lease.reader()?.next_chunk(query, allowance, progress))
}
