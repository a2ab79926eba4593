//! Appends to a log, as many pending as asked for: Quorate's log, the crate raft-log, and what the disk itself gives.
//!
//! Both logs run their own threads. One thread appends: each entry by a call of its own, with a completion of its own,
//! and the next as soon as one completes. Plain writes put what is pending into one write with one `fdatasync`, with
//! nobody to tell: no log can be faster.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use quorate_bench_harness::{Disk, Histogram, Report, Result, Summary, data_dir};
use serde_json::{Value, json};

mod peer_log;
mod plain;
mod quorate_log;

use peer_log::PeerLog;
use quorate_log::QuorateLog;

/// How long an append may take.
const APPEND_MAX: Duration = Duration::from_secs(60);

/// How it is measured.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Numbers of pending appends.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64, 512])]
    pending: Vec<u32>,
    /// Bytes of an entry.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    entry_bytes: u32,
    /// Seconds for each figure.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Where the data go, on the disk to be measured; the default is beside this program. Removed at the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print one line of JSON, the last one.
    #[arg(long)]
    json: bool,
}

/// A log that is measured.
trait Log {
    /// Appends an entry; `done` is told its number when it is durable.
    fn append(&mut self, number: u64, done: &Done) -> Result<()>;

    /// How often it synced so far, if it knows.
    fn syncs(&self) -> Option<u64>;
}

/// Where completions go: the number of the entry, or what went wrong.
type Done = Sender<Result<u64, String>>;

/// What a log did.
struct Figures {
    appends_per_s: f64,
    syncs_per_s: Option<f64>,
    times: Summary,
}

/// Measures all logs, one after the other for each number of pending appends.
pub fn run(options: &Options) -> Result<()> {
    let dir = data_dir(options.dir.as_deref())?;
    let disk = Disk::probe(dir.path())?;
    let mut runs = Vec::new();
    for &pending in &options.pending {
        for (log, measure) in LOGS {
            let log_dir = dir.path().join(format!("{log}-{pending}"));
            std::fs::create_dir(&log_dir)?;
            let figures = measure(&log_dir, pending.max(1), options)?;
            if !options.json {
                println!("{}", figures.line(log, pending));
            }
            runs.push(figures.value(log, pending));
            std::fs::remove_dir_all(&log_dir)?;
        }
    }
    let mut report = Report::default();
    report.add("bench", "wal").add("durability", "fsync").add("entry_bytes", options.entry_bytes);
    if options.json {
        report.add("runs", runs);
    }
    report.disk(&disk).add("finished", true);
    report.print(options.json)
}

/// What measures a log in a directory, with so many appends pending.
type Measure = fn(&Path, u32, &Options) -> Result<Figures>;

const LOGS: [(&str, Measure); 3] = [
    ("plain", plain::measure),
    ("quorate-wal", |dir, pending, options| pend(QuorateLog::open(dir, options.entry_bytes)?, pending, options)),
    ("raft-log", |dir, pending, options| pend(PeerLog::open(dir, options.entry_bytes, pending)?, pending, options)),
];

/// Appends for a while, keeping so many pending.
fn pend(mut log: impl Log, pending: u32, options: &Options) -> Result<Figures> {
    let (done, completed) = channel();
    let syncs = log.syncs();
    let mut appended = Appended { log: &mut log, done, begins: Vec::new(), completed, times: Histogram::default() };
    let begin = Instant::now();
    for _ in 0..pending {
        appended.append()?;
    }
    while begin.elapsed() < Duration::from_secs(options.seconds) {
        appended.complete()?;
        appended.append()?;
    }
    for _ in 0..pending {
        appended.complete()?;
    }
    let (seconds, times) = (begin.elapsed().as_secs_f64(), appended.times.summary());
    let syncs = log.syncs().zip(syncs).map(|(after, before)| (after - before) as f64 / seconds);
    Ok(Figures { appends_per_s: times.count as f64 / seconds, syncs_per_s: syncs, times })
}

/// A log with entries on their way.
struct Appended<'a, L> {
    log: &'a mut L,
    done: Done,
    completed: Receiver<Result<u64, String>>,
    /// When each entry was appended.
    begins: Vec<Instant>,
    times: Histogram,
}

impl<L: Log> Appended<'_, L> {
    fn append(&mut self) -> Result<()> {
        let number = self.begins.len() as u64;
        self.begins.push(Instant::now());
        self.log.append(number, &self.done)
    }

    fn complete(&mut self) -> Result<()> {
        let number = self.completed.recv_timeout(APPEND_MAX)??;
        let begin = self.begins.get(usize::try_from(number)?).ok_or("an entry completed that was not appended")?;
        self.times.record(begin.elapsed());
        Ok(())
    }
}

/// Bytes that don't compress, the same in every run.
fn payload(bytes: u32) -> Vec<u8> {
    let mut payload = vec![0; bytes as usize];
    quorate_env::Rng::from_seed(1).fill(&mut payload);
    payload
}

impl Figures {
    fn line(&self, log: &str, pending: u32) -> String {
        let Self { appends_per_s, times, .. } = self;
        let syncs = self.syncs_per_s.map_or_else(|| "-".to_owned(), |syncs| format!("{syncs:.0}"));
        let rates = format!("{appends_per_s:>10.0} appends/s {syncs:>7} syncs/s");
        format!("{pending:>4} pending  {log:<12}{rates}  p50 {:.0} us, p99 {:.0} us", times.p50_us, times.p99_us)
    }

    fn value(&self, log: &str, pending: u32) -> Value {
        let Summary { p50_us, p90_us, p99_us, max_us, .. } = self.times;
        json!({
            "log": log, "pending": pending, "appends_per_s": self.appends_per_s.round(),
            "syncs_per_s": self.syncs_per_s.map(f64::round),
            "p50_us": p50_us, "p90_us": p90_us, "p99_us": p99_us, "max_us": max_us,
        })
    }
}
