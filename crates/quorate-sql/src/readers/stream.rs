//! A result of any size, piece by piece, in bounded memory.
//!
//! The statement stands still between two pieces: nothing runs ahead of who takes them, and no thread waits.

use std::sync::Arc;

use quorate_env::Env;
use quorate_model::{Statement, StoreFault};

use super::error::ReadError;
use super::guard::Allowance;
use super::held::Held;
use super::limits::{Cancel, CancelOnDrop, ReadLimits};
use super::reader::Progress;
use crate::query::Rows;

/// The rows of a query, in pieces of some hundred KiB. It holds a read transaction, so it lasts no longer than one may:
/// who takes pieces too slowly gets [`ReadError::SnapshotTooOld`]. The limits on rows and bytes are for all pieces
/// together, the one on time is for each.
pub struct RowStream {
    held: Arc<Held<Progress>>,
    query: Arc<(Statement, ReadLimits)>,
    end: Option<End>,
}

/// How a stream ended.
#[derive(Clone)]
enum End {
    Complete,
    Failed(ReadError),
}

impl RowStream {
    pub(super) fn new(held: Arc<Held<Progress>>, statement: Statement, limits: ReadLimits) -> Self {
        Self { held, query: Arc::new((statement, limits)), end: None }
    }

    /// The next piece, `None` after the last; runs on the calling thread. After an error it gives the same error.
    pub fn next_blocking(&mut self) -> Result<Option<Rows>, ReadError> {
        match &self.end {
            None => {
                let chunk = chunk(&self.held, &self.query, None);
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
        let (held, query, cancel) = (Arc::clone(&self.held), Arc::clone(&self.query), gone.0.clone());
        let chunk = env.blocking(move || chunk(&held, &query, Some(cancel))).await;
        self.end = None;
        self.note(chunk.unwrap_or(Err(StoreFault::Closed.into())))
    }

    fn note(&mut self, chunk: Result<Chunk, ReadError>) -> Result<Option<Rows>, ReadError> {
        match chunk {
            Ok(Chunk { rows, more }) => {
                self.end = (!more).then_some(End::Complete);
                Ok(rows)
            }
            Err(error) => {
                self.held.end();
                self.end = Some(End::Failed(error.clone()));
                Err(error)
            }
        }
    }
}

struct Chunk {
    rows: Option<Rows>,
    more: bool,
}

fn chunk(
    held: &Held<Progress>,
    (statement, limits): &(Statement, ReadLimits),
    gone: Option<Cancel>,
) -> Result<Chunk, ReadError> {
    let mut allowance = Allowance { begun: Some(held.begun()), ..Allowance::new(limits, held.max_age()) };
    allowance.cancel[1] = gone;
    let chunk = held.with(|lease, progress| {
        let reader = lease.reader()?;
        let rows = reader.next_chunk(statement, limits, allowance, progress)?;
        Ok(Chunk { rows, more: reader.is_paused() })
    })?;
    if !chunk.more {
        held.end();
    }
    Ok(chunk)
}
