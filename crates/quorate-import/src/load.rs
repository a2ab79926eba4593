//! Writes chunks, several at a time, each exactly once.

use futures_util::{Stream, StreamExt as _, stream};
use quorate::{
    Error as SqlError, FailureKind, Sql,
    sql::{BatchStep, Bulk, PackedRows},
};
use quorate_env::Cause;
use tokio::sync::mpsc::Receiver;
use xxhash_rust::xxh3::xxh3_64;

use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::line::{BadLine, bad_line};
use crate::progress::{Done, LeftOut, Progress};

/// Chunks that are written at the same time: while one is applied, the next ones are being replicated.
const IN_FLIGHT: usize = 4;

/// Rows of one chunk that may break a constraint. Each of them costs another attempt.
const LEFT_OUT_MAX: usize = 100;

/// Attempts to write a chunk while the outcome of the previous attempt is unknown.
const UNKNOWN_MAX: usize = 10;

/// Writes chunks.
pub struct Loader<'a> {
    /// The cluster.
    pub sql: &'a Sql,
    /// The statement that inserts a row.
    pub insert: String,
    /// The record of which chunks are written; `None` for a source that can't be read again.
    pub progress: Option<&'a Progress>,
}

/// A chunk that is written.
#[derive(Debug)]
pub struct Written {
    /// How many of its rows are in the table.
    pub rows: u64,
    /// How many of them existed before and were not changed; 0 for a chunk of an earlier run, where it is unknown.
    pub unchanged: u64,
    /// Whether an earlier run wrote it.
    pub earlier: bool,
    /// The lines that were left out, in their order.
    pub bad: Vec<BadLine>,
    /// How much of the source was read up to its end.
    pub taken: u64,
}

/// Why a chunk was not written.
enum Refused {
    /// It is written already.
    Done,
    /// This row breaks a constraint.
    Row(LeftOut),
    /// It may have been written.
    Unknown(Error),
    Failed(Error),
}

impl<'a> Loader<'a> {
    /// Writes all chunks, and returns them in their order.
    pub fn all(&'a self, chunks: Receiver<Result<Chunk>>) -> impl Stream<Item = Result<Written>> + 'a {
        let chunks = stream::unfold(chunks, |mut chunks| async { chunks.recv().await.map(|chunk| (chunk, chunks)) });
        chunks.map(|chunk| async { self.chunk(chunk?).await }).buffered(IN_FLIGHT)
    }

    async fn chunk(&self, chunk: Chunk) -> Result<Written> {
        if chunk.rows.is_empty() {
            return Ok(written(chunk, &[], 0, false));
        }
        let hash = xxh3_64(chunk.rows.bytes()).cast_signed();
        if let Some(done) = self.progress.and_then(|progress| progress.done.get(&chunk.number)) {
            return earlier(chunk, hash, done);
        }
        let mut left_out: Vec<LeftOut> = Vec::new();
        let mut unknown = 0;
        loop {
            let rows = match left_out.as_slice() {
                [] => chunk.rows.clone(),
                some => chunk.rows.without(&some.iter().map(|(row, _)| *row).collect::<Vec<_>>()),
            };
            let (sent, done) = (rows.len() as u64, Done { hash, rows: rows.len() as u64, left_out });
            let result = self.write(chunk.number, rows, &done).await;
            left_out = done.left_out;
            match result {
                Ok(changes) => return Ok(written(chunk, &left_out, sent.saturating_sub(changes), false)),
                Err(Refused::Row(row)) if left_out.len() < LEFT_OUT_MAX => leave_out(&mut left_out, row),
                Err(Refused::Row((_, reason))) => {
                    let line = chunk.lines.first().copied().unwrap_or_default();
                    let text = format!(
                        "more than {LEFT_OUT_MAX} rows from line {line} on can't be inserted, as with: {reason}; \
                        --on-conflict ignore or replace continues despite them"
                    );
                    return Err(Error::Refused(text.into()));
                }
                Err(Refused::Done) => return self.written_elsewhere(chunk, hash).await,
                // The record of the chunk makes a second attempt fail if the first one took effect.
                Err(Refused::Unknown(_)) if self.progress.is_some() && unknown < UNKNOWN_MAX => unknown += 1,
                Err(Refused::Unknown(error) | Refused::Failed(error)) => return Err(error),
            }
        }
    }

    /// Writes rows as one entry, and returns how many changed the table.
    async fn write(&self, number: u64, rows: PackedRows, done: &Done) -> Result<u64, Refused> {
        let bulk = BatchStep::from(Bulk { sql: self.insert.clone().into(), rows });
        let progress = self.progress.map(|progress| BatchStep::from(progress.step(number, done)));
        let first_is_progress = progress.is_some();
        let result = self.sql.batch(progress.into_iter().chain([bulk])).await;
        let error = match result {
            Ok(batch) => return Ok(batch.results.last().map_or(0, |result| result.changes)),
            Err(error) => error,
        };
        Err(match error {
            SqlError::Unknown(_) => Refused::Unknown(Error::Unknown(error)),
            SqlError::Failed(failure) => match (failure.command, failure.row) {
                (_, Some(row)) => Refused::Row((row, failure.message)),
                (Some(0), _) if first_is_progress && failure.kind == FailureKind::Constraint => {
                    if failure.is_foreign_key_violation() { Refused::Failed(taken_over()) } else { Refused::Done }
                }
                _ => Refused::Failed(Error::Refused(Cause::context(failure.message.clone(), failure))),
            },
            error => Refused::Failed(Error::Interrupted(error)),
        })
    }

    /// Handles a chunk that an earlier attempt or another process has written.
    async fn written_elsewhere(&self, chunk: Chunk, hash: i64) -> Result<Written> {
        let done = match self.progress {
            Some(progress) => progress.chunk(self.sql, chunk.number).await?,
            None => None,
        };
        earlier(chunk, hash, &done.ok_or_else(taken_over)?)
    }
}

/// The error for an import whose record is gone.
fn taken_over() -> Error {
    Error::Concurrent("another process has completed this import, or started it over; check the table".to_owned())
}

fn earlier(chunk: Chunk, hash: i64, done: &Done) -> Result<Written> {
    if done.hash == hash {
        return Ok(written(chunk, &done.left_out, 0, true));
    }
    let line = chunk.lines.first().copied().unwrap_or_default();
    Err(Error::Changed(format!(
        "the file, or the table's columns, have changed since an earlier run imported what begins at line {line}; \
        --restart starts over"
    )))
}

/// Adds a refused row. Its number counts only the rows that were sent, so the rows left out before it are added.
fn leave_out(left_out: &mut Vec<LeftOut>, (sent, reason): LeftOut) {
    let mut number = sent;
    let mut place = 0;
    for (earlier, _) in left_out.iter() {
        if *earlier > number {
            break;
        }
        number = number.saturating_add(1);
        place += 1;
    }
    left_out.insert(place, (number, reason));
}

fn written(chunk: Chunk, left_out: &[LeftOut], unchanged: u64, earlier: bool) -> Written {
    let Chunk { rows, lines, mut bad, taken, .. } = chunk;
    for (number, reason) in left_out {
        let number = usize::try_from(*number).unwrap_or(usize::MAX);
        let values = rows.values().skip(number.saturating_mul(rows.width())).take(rows.width());
        let text: Vec<String> = values.map(|value| quorate::Value::from(value).to_string()).collect();
        let line = lines.get(number).copied().unwrap_or_default();
        bad.push(bad_line(line, reason.clone(), text.join(",").as_bytes()));
    }
    bad.sort_by_key(|bad| bad.line);
    let rows = (rows.len().saturating_sub(left_out.len())) as u64;
    Written { rows, unchanged, earlier, bad, taken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_left_out_are_counted_among_all() {
        let mut left_out = Vec::new();
        // Of rows 0..8, row 3 is refused, then the one now at 3 (row 4), at 0 (row 0), and at 4 (row 7).
        for sent in [3, 3, 0, 4] {
            leave_out(&mut left_out, (sent, String::new()));
        }
        let numbers: Vec<u32> = left_out.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 3, 4, 7]);
    }
}
