//! The records of a trial: what is in flight, how each statement was answered, how long writes waited, and every reason
//! why the verdict fails.
//!
//! Invariant: while nodes are killed and started again (a trouble), neither waits nor lost answers count.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::statements::{Category, Hostile};
use super::writers::Written;
use quorate_env::lock;

/// How many statements each connection remembers.
const RING: usize = 8;
/// How many reasons are kept; more are only counted.
const REASONS_MAX: usize = 50;
/// How many characters of a statement or a text are printed.
pub const SHOWN: usize = 240;
/// How many different doubtful texts are kept.
const DOUBTFUL_MAX: usize = 60;

/// The records of a trial.
pub struct Books {
    inner: Mutex<Inner>,
    suspects: PathBuf,
    pub machine: Arc<Machine>,
}

#[derive(Default)]
pub struct Inner {
    pub sent: u64,
    pub ended: u64,
    pub kills: u64,
    /// How many clusters did not come back and were replaced.
    pub lost: u64,
    pub longest: Duration,
    pub answers: BTreeMap<(Category, &'static str), u64>,
    /// Texts that a user may not understand, with their number and one of their statements.
    pub doubtful: BTreeMap<String, (u64, String)>,
    pub reasons: Vec<String>,
    pub failed: u64,
    pub trouble: Trouble,
    pub flights: Vec<Flight>,
    pub writers: Vec<Written>,
    seen: HashSet<u64>,
}

/// Whether nodes are down, and how often that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    pub count: u64,
    pub since: Option<Instant>,
}

/// The statements of one connection.
#[derive(Default)]
pub struct Flight {
    now: Option<(Hostile, Instant)>,
    past: VecDeque<(Hostile, Instant)>,
}

impl Books {
    pub fn new(suspects: PathBuf, senders: usize, machine: Arc<Machine>) -> Self {
        let flights = (0..senders).map(|_| Flight::default()).collect();
        Self { inner: Mutex::new(Inner { flights, ..Inner::default() }), suspects, machine }
    }

    pub fn open(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Records that a connection sends a statement.
    pub fn sends(&self, sender: usize, hostile: &Hostile) {
        let mut inner = self.open();
        inner.sent += 1;
        let mut hasher = DefaultHasher::new();
        hostile.sql.hash(&mut hasher);
        inner.seen.insert(hasher.finish());
        inner.flights[sender].now = Some((hostile.clone(), Instant::now()));
    }

    /// Records that the statement of a connection ended, with the kind of its answer.
    pub fn answered(&self, sender: usize, kind: &'static str) {
        let mut inner = self.open();
        let Some((hostile, begun)) = inner.flights[sender].now.take() else { return };
        *inner.answers.entry((hostile.category, kind)).or_default() += 1;
        let past = &mut inner.flights[sender].past;
        past.push_back((hostile, begun));
        if past.len() > RING {
            past.pop_front();
        }
    }

    /// Records a text that a user may not understand.
    pub fn doubts(&self, text: &str, hostile: &Hostile) {
        let mut inner = self.open();
        let text: String = text.chars().take(SHOWN).collect();
        if inner.doubtful.len() < DOUBTFUL_MAX || inner.doubtful.contains_key(&text) {
            inner.doubtful.entry(text).or_insert_with(|| (0, shown(hostile))).0 += 1;
        }
    }

    /// Records and prints why the verdict fails, and keeps the statements that may have caused it: those in flight, and
    /// the last ones of each connection that began after a moment.
    pub fn fails(&self, reason: &str, since: Option<Instant>) {
        let mut inner = self.open();
        inner.failed += 1;
        // The time helps to find the events in the logs of the nodes.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        println!("FAILS at {:02}:{:02}:{:02} UTC: {reason}", now / 3600 % 24, now / 60 % 60, now % 60);
        println!("  {}", self.machine.said());
        if inner.reasons.len() < REASONS_MAX {
            inner.reasons.push(reason.to_owned());
        }
        let mut suspects = Vec::new();
        for flight in &inner.flights {
            let recent = flight.past.iter().filter(|(_, begun)| since.is_none_or(|since| *begun >= since));
            suspects.extend(recent.chain(&flight.now).map(|(hostile, _)| hostile));
        }
        for hostile in inner.flights.iter().filter_map(|flight| flight.now.as_ref().map(|(hostile, _)| hostile)) {
            println!("  in flight: {}", shown(hostile));
        }
        if let Err(error) = self.keep(reason, &suspects) {
            println!("  the suspects can't be kept: {error}");
        }
    }

    fn keep(&self, reason: &str, suspects: &[&Hostile]) -> std::io::Result<()> {
        let mut file = std::fs::File::options().append(true).create(true).open(&self.suspects)?;
        writeln!(file, "# {}", reason.lines().next().unwrap_or_default())?;
        for hostile in suspects {
            writeln!(file, "{}", serde_json::to_string(hostile)?)?;
        }
        Ok(())
    }

    /// Records how long a write waits.
    pub fn waited(&self, waits: Duration) {
        let mut inner = self.open();
        inner.longest = inner.longest.max(waits);
    }

    /// Begins a trouble, unless there is one.
    pub fn trouble_begins(&self) {
        let mut inner = self.open();
        if inner.trouble.since.is_none() {
            inner.trouble = Trouble { count: inner.trouble.count + 1, since: Some(Instant::now()) };
        }
    }

    pub fn trouble_ends(&self) {
        self.open().trouble.since = None;
    }

    /// Returns whether nodes have been down since the state `before` was read.
    pub fn was_troubled(&self, before: Trouble) -> bool {
        let inner = self.open();
        before.since.is_some() || inner.trouble.since.is_some() || inner.trouble.count != before.count
    }

    /// Returns the number of different statements.
    pub fn distinct(&self) -> usize {
        self.open().seen.len()
    }
}

/// Formats a statement for printing.
pub fn shown(hostile: &Hostile) -> String {
    let Hostile { number, category, door, sql, .. } = hostile;
    let mut text: String = sql.chars().take(SHOWN).collect();
    if text.len() < sql.len() {
        text.push_str(&format!("... ({} bytes)", sql.len()));
    }
    format!("{number} {category:?} {door:?}: {text}")
}
