//! Sixteen ordinary writers: each inserts one small row after the other. The time that they wait is what the hostile
//! statements cost others.
//!
//! Invariant: a number that was acknowledged, or whose outcome is unknown, is never written again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quorate::{Client, Error, Sql};
use tokio::task::JoinSet;

use super::books::{Books, Trouble};
use super::fleet::{Fleet, NODES};
use crate::harness::{Result, until};

/// How many writers there are.
pub const WRITERS: usize = 16;
/// How long a writer pauses between two rows.
const REST: Duration = Duration::from_millis(50);
/// How long a write is retried.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long reading the rows at the end may take.
const READ_MAX: Duration = Duration::from_secs(60);
/// How many rows are read at once.
const PAGE: i64 = 20_000;

/// The record of a writer.
pub struct Written {
    next: i64,
    /// Numbers that were refused: they must not be there.
    refused: BTreeSet<i64>,
    /// Numbers that may be there.
    unknown: BTreeSet<i64>,
    /// When the write in flight began.
    pub begun: Option<Instant>,
    trouble: Trouble,
    /// When the last acknowledged write began.
    pub acknowledged: Option<Instant>,
    pub acknowledgments: u64,
}

impl Written {
    fn new() -> Self {
        Self {
            next: 0,
            refused: BTreeSet::new(),
            unknown: BTreeSet::new(),
            begun: None,
            trouble: Trouble::default(),
            acknowledged: None,
            acknowledgments: 0,
        }
    }
}

/// Creates their table.
pub async fn prepare(sql: &Sql) -> Result<()> {
    sql.execute("CREATE TABLE written (writer INTEGER, number INTEGER, filler TEXT)", ()).await?;
    sql.execute("CREATE INDEX written_by ON written (writer)", ()).await?;
    Ok(())
}

/// Starts the writers in a new cluster.
pub async fn start(fleet: &Fleet, books: &Arc<Books>) -> Result<JoinSet<()>> {
    books.open().writers = (0..WRITERS).map(|_| Written::new()).collect();
    let mut clients = Vec::new();
    for first in 0..NODES {
        clients.push(Client::connect(fleet.config(first)).await?.sql());
    }
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        tasks.spawn(write(clients[writer % NODES].clone(), writer, Arc::clone(books)));
    }
    Ok(tasks)
}

async fn write(sql: Sql, writer: usize, books: Arc<Books>) {
    let sql = sql.with_deadline(DEADLINE);
    loop {
        let begun = Instant::now();
        let number = {
            let mut inner = books.open();
            let trouble = inner.trouble;
            let own = &mut inner.writers[writer];
            (own.begun, own.trouble) = (Some(begun), trouble);
            own.next += 1;
            own.next - 1
        };
        let row = (i64::try_from(writer).unwrap_or(0), number, "a small row");
        let done = sql.execute("INSERT INTO written VALUES (?, ?, ?)", row).await;
        let troubled = note(&books, writer, number, begun, &done);
        if let (Err(error), false) = (&done, troubled) {
            books.fails(&format!("the write {number} of writer {writer} failed: {error}"), Some(begun));
        }
        tokio::time::sleep(REST).await;
    }
}

/// Records the outcome of a write. Returns whether nodes were down meanwhile.
fn note<T>(books: &Books, writer: usize, number: i64, begun: Instant, done: &Result<T, Error>) -> bool {
    let before = books.open().writers[writer].trouble;
    let troubled = books.was_troubled(before);
    let mut inner = books.open();
    let own = &mut inner.writers[writer];
    own.begun = None;
    match done {
        Ok(_) => {
            own.acknowledged = Some(begun);
            own.acknowledgments += 1;
        }
        Err(Error::Unknown(_)) => drop(own.unknown.insert(number)),
        Err(_) => drop(own.refused.insert(number)),
    }
    if !troubled {
        inner.longest = inner.longest.max(begun.elapsed());
    }
    troubled
}

/// Compares the rows with the answers to the writers: all acknowledged rows must be there exactly once, and no refused
/// row. The writers must have been stopped.
pub async fn compare(sql: &Sql, books: &Books) -> Result<String> {
    let mut rows = 0;
    for writer in 0..WRITERS {
        let (mut last, mut there) = (0_i64, BTreeSet::new());
        loop {
            let ask = "SELECT rowid, number FROM written WHERE writer = ? AND rowid > ? ORDER BY rowid LIMIT ?";
            let parameters = (i64::try_from(writer)?, last, PAGE);
            let page = until("the rows of a writer", READ_MAX, async || {
                sql.query_as::<(i64, i64)>(ask, parameters).await.ok()
            });
            let page = page.await?;
            let Some((rowid, _)) = page.last() else { break };
            last = *rowid;
            for (_, number) in page {
                rows += 1;
                if !there.insert(number) {
                    return Err(format!("row {number} of writer {writer} is there twice").into());
                }
            }
        }
        check(&books.open().writers[writer], writer, &there)?;
    }
    let inner = books.open();
    let total = |count: fn(&Written) -> usize| inner.writers.iter().map(count).sum::<usize>();
    let acknowledged: u64 = inner.writers.iter().map(|own| own.acknowledgments).sum();
    let (unknown, refused) = (total(|own| own.unknown.len()), total(|own| own.refused.len()));
    Ok(format!("writers: {acknowledged} rows acknowledged, {unknown} unknown, {refused} refused; {rows} are there"))
}

fn check(own: &Written, writer: usize, there: &BTreeSet<i64>) -> Result<()> {
    // A writer that was stopped may have had one more write in flight.
    let open = own.begun.map(|_| own.next - 1);
    for number in 0..own.next {
        let may = own.unknown.contains(&number) || open == Some(number);
        let must = !own.refused.contains(&number);
        if !may && there.contains(&number) != must {
            let is = if must { "was acknowledged and is lost" } else { "was refused and is there" };
            return Err(format!("row {number} of writer {writer} {is}").into());
        }
    }
    there.range(own.next..).next().map_or(Ok(()), |number| Err(format!("row {number} was never written").into()))
}
