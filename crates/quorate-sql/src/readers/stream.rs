//! A result of any size, piece by piece, in bounded memory.
//!
//! The statement stands still between two pieces: nothing runs ahead of who takes them, and no thread waits.

use std::sync::Arc;

use quorate_env::Env;
use quorate_model::StoreFault;

use super::error::ReadError;
use super::guard::Allowance;
use super::held::Held;
use super::limits::{Cancel, CancelOnDrop};
use super::reader::{Chunk, Progress, StreamQuery};
use crate::query::Rows;

/// The rows of a query, in pieces of some hundred KiB; the first always comes, if only with the names of the columns.
/// It holds a read transaction, so it lasts no longer than one may: who takes pieces too slowly gets
/// [`ReadError::SnapshotEnded`]. The limits on rows and bytes are for all pieces together, the one on time is for
/// each.
pub struct RowStream {
    held: Arc<Held>,
    query: Arc<StreamQuery>,
    progress: Progress,
    lasts: Lasts,
    end: Option<End>,
}

/// How long the read transaction of a stream is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    /// Until the stream ends.
    AsLong,
    /// Beyond: it is that of a snapshot.
    Beyond,
}

/// How a stream ended.
#[derive(Clone)]
enum End {
    Complete,
    Failed(ReadError),
}

impl RowStream {
    pub(super) fn new(held: Arc<Held>, query: StreamQuery, lasts: Lasts) -> Self {
        Self { held, query: Arc::new(query), progress: Progress::default(), lasts, end: None }
    }

    /// The next piece, `None` after the last; runs on the calling thread. After an error it gives the same error.
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

    /// The next piece, `None` after the last; runs beside the calling task. If this is dropped before it is done, the
    /// stream has ended.
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
        if end.is_some() && self.lasts == Lasts::AsLong {
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
