//! Writes with many in flight, for as long as a measurement takes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate::{Error, Sql};
use quorate_env::lock;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::Result;

/// The bytes of each row.
const ROW_BYTES: usize = 200;

/// A running load.
pub struct Load {
    counts: Arc<Mutex<Counts>>,
    workers: JoinSet<Result<()>>,
}

/// What has happened so far.
#[derive(Default)]
struct Counts {
    stopping: bool,
    acknowledged: u64,
    /// Writes that may or may not have been done.
    unknown: u64,
    /// The longest time that a write took since [`Load::take_longest`].
    longest: Duration,
    /// A caller that waits until a write is acknowledged that began after this moment.
    waiting: Option<(Instant, oneshot::Sender<Instant>)>,
}

/// The rows of a load, compared with its acknowledged writes.
#[derive(PartialEq)]
pub struct Compared {
    pub rows: u64,
    /// Acknowledged writes without a row, at least.
    pub lost: u64,
    /// Rows that are there once more.
    pub doubled: u64,
}

/// The result of the load.
pub struct Written {
    pub acknowledged: u64,
    pub unknown: u64,
    /// The longest time that a write took since [`Load::take_longest`].
    pub longest: Duration,
}

impl Load {
    /// Starts `in_flight` writers, which each insert one row after the other.
    pub async fn start(sql: &Sql, in_flight: u64) -> Result<Self> {
        sql.execute("CREATE TABLE IF NOT EXISTS load (writer INTEGER, number INTEGER, filler TEXT)", ()).await?;
        let counts = Arc::<Mutex<Counts>>::default();
        let mut workers = JoinSet::new();
        for writer in 0..in_flight {
            workers.spawn(write(sql.clone(), writer, Arc::clone(&counts)));
        }
        Ok(Self { counts, workers })
    }

    /// Returns how many writes were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        lock(&self.counts).acknowledged
    }

    /// Returns the longest time that a write took since the previous call. Writes in flight do not count yet.
    pub fn take_longest(&self) -> Duration {
        std::mem::take(&mut lock(&self.counts).longest)
    }

    /// Waits until a write is acknowledged that began after `moment`. Returns when that was.
    pub async fn acknowledged_after(&self, moment: Instant) -> Result<Instant> {
        let (tell, acknowledged) = oneshot::channel();
        lock(&self.counts).waiting = Some((moment, tell));
        Ok(acknowledged.await?)
    }

    /// Ends the load.
    pub async fn stop(mut self) -> Result<Written> {
        lock(&self.counts).stopping = true;
        while let Some(ended) = self.workers.join_next().await {
            ended??;
        }
        let counts = lock(&self.counts);
        Ok(Written { acknowledged: counts.acknowledged, unknown: counts.unknown, longest: counts.longest })
    }
}

impl Written {
    /// Compares the acknowledged writes with the rows: none may be lost, none may be there twice.
    pub async fn check(&self, sql: &Sql) -> Result<()> {
        let Compared { rows, lost, doubled } = self.compare(sql).await?;
        let Self { acknowledged, unknown, .. } = *self;
        println!(
            "{acknowledged} writes acknowledged, {unknown} of unknown outcome, {rows} rows, {doubled} of them doubled"
        );
        if lost > 0 || doubled > 0 || rows > acknowledged + unknown {
            return Err("a write was lost, or was applied twice".into());
        }
        Ok(())
    }

    /// Counts the rows, the acknowledged writes without a row, and the rows that are there more than once.
    pub async fn compare(&self, sql: &Sql) -> Result<Compared> {
        let rows: u64 = sql.query_one("SELECT count(*) FROM load", ()).await?;
        let distinct: u64 =
            sql.query_one("SELECT count(*) FROM (SELECT DISTINCT writer, number FROM load)", ()).await?;
        Ok(Compared { rows, lost: self.acknowledged.saturating_sub(distinct), doubled: rows - distinct })
    }
}

async fn write(sql: Sql, writer: u64, counts: Arc<Mutex<Counts>>) -> Result<()> {
    let filler = "x".repeat(ROW_BYTES);
    for number in 0_i64.. {
        let begin = Instant::now();
        let insert = "INSERT INTO load VALUES (?, ?, ?)";
        let outcome = sql.execute(insert, (i64::try_from(writer)?, number, filler.as_str())).await;
        let mut counts = lock(&counts);
        match outcome {
            Ok(_) => counts.acknowledge(begin),
            Err(Error::Unknown(_)) => counts.unknown += 1,
            Err(error) => return Err(error.into()),
        }
        if counts.stopping {
            break;
        }
    }
    Ok(())
}

impl Counts {
    fn acknowledge(&mut self, begin: Instant) {
        let now = Instant::now();
        self.acknowledged += 1;
        self.longest = self.longest.max(now - begin);
        if let Some((_, tell)) = self.waiting.take_if(|(moment, _)| begin > *moment) {
            let _ = tell.send(now);
        }
    }
}
