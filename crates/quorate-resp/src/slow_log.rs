//! The requests of a node that took long, for SLOWLOG.
//!
//! Invariant: it has no more entries, and these no more and no longer arguments, than its constants say.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use quorate_env::lock;

use crate::frame::Frame;
use crate::number::integer;

/// The most entries, however many CONFIG SET asks for.
pub const SLOW_LOG_ENTRIES_MAX: usize = 1_024;

/// The most arguments of an entry.
const ARGUMENTS_MAX: usize = 32;

/// The most bytes of an argument of an entry.
const ARGUMENT_BYTES_MAX: usize = 128;

/// The time from which on a request is kept, and the number of entries, unless a client sets others.
const SLOWER_THAN_DEFAULT: i64 = 10_000;
const ENTRIES_DEFAULT: usize = 128;

/// The requests that took long.
#[derive(Debug)]
pub struct SlowLog(Mutex<Log>);

#[derive(Debug)]
struct Log {
    /// The latest one first.
    entries: VecDeque<Entry>,
    /// The number of the next one.
    next: u64,
    /// The least microseconds of an entry; if negative, none are kept.
    slower_than: i64,
    entries_max: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    /// In seconds since 1970.
    at: u64,
    took: Duration,
    words: Vec<Bytes>,
    address: String,
    name: Bytes,
}

impl Default for SlowLog {
    fn default() -> Self {
        let (slower_than, entries_max) = (SLOWER_THAN_DEFAULT, ENTRIES_DEFAULT);
        Self(Mutex::new(Log { entries: VecDeque::new(), next: 0, slower_than, entries_max }))
    }
}

impl SlowLog {
    /// Adds a request, if it took so long that it is kept: when, in seconds since 1970; how long; its words, with how
    /// many other requests it was done; and whose it is.
    pub fn add(&self, at: u64, took: Duration, (words, others): (&[Bytes], usize), address: &str, name: &Bytes) {
        let mut log = self.log();
        let is_slow = log.slower_than >= 0 && took.as_micros() >= u128::from(log.slower_than.unsigned_abs());
        if !is_slow || log.entries_max == 0 {
            return;
        }
        let words = shortened(words, others);
        let entry = Entry { number: log.next, at, took, words, address: address.to_owned(), name: name.clone() };
        log.next += 1;
        log.entries.push_front(entry);
        let max = log.entries_max;
        log.entries.truncate(max);
    }

    /// Returns the latest entries, as SLOWLOG GET does.
    pub(crate) fn latest(&self, count: usize) -> Frame {
        Frame::Array(self.log().entries.iter().take(count).cloned().map(Entry::frame).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.log().entries.len()
    }

    pub(crate) fn clear(&self) {
        self.log().entries.clear();
    }

    /// Returns the parameters of CONFIG GET.
    pub(crate) fn parameters(&self) -> [(&'static str, String); 2] {
        let log = self.log();
        [(SLOWER_THAN, log.slower_than.to_string()), (MAX_LEN, log.entries_max.to_string())]
    }

    /// Sets a parameter.
    pub(crate) fn set(&self, limit: Limit) {
        let mut log = self.log();
        match limit {
            Limit::SlowerThan(microseconds) => log.slower_than = microseconds,
            Limit::Entries(max) => {
                log.entries_max = max;
                log.entries.truncate(max);
            }
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.0)
    }
}

const SLOWER_THAN: &str = "slowlog-log-slower-than";
const MAX_LEN: &str = "slowlog-max-len";

/// What bounds the log, as CONFIG SET changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The least microseconds of an entry; if negative, none are kept.
    SlowerThan(i64),
    /// The most entries.
    Entries(usize),
}

impl Limit {
    /// Reads the value of a parameter. Returns `None` for a parameter of another part of the server.
    ///
    /// # Errors
    ///
    /// Why it can't have this value, as Redis says it.
    pub(crate) fn read(name: &str, value: &[u8]) -> Option<Result<Self, &'static str>> {
        let limit = |value: i64| match (name, usize::try_from(value)) {
            (SLOWER_THAN, _) if value >= -1 => Ok(Self::SlowerThan(value)),
            (SLOWER_THAN, _) => Err("argument must be between -1 and 9223372036854775807 inclusive"),
            (_, Ok(entries)) if entries <= SLOW_LOG_ENTRIES_MAX => Ok(Self::Entries(entries)),
            (_, Ok(_)) => Err("there can't be more than 1024 entries here"),
            (_, Err(_)) => Err("argument must be between 0 and 9223372036854775807 inclusive"),
        };
        let value = integer(value).ok_or("argument couldn't be parsed into an integer");
        matches!(name, SLOWER_THAN | MAX_LEN).then(|| value.and_then(limit))
    }
}

impl Entry {
    fn frame(self) -> Frame {
        Frame::Array(vec![
            Frame::count(self.number),
            Frame::count(self.at),
            Frame::count(u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX)),
            Frame::bulks(self.words),
            Frame::bulk(self.address),
            Frame::Bulk(self.name),
        ])
    }
}

/// Returns the beginning of a request, as Redis keeps it. All parts are copies.
fn shortened(words: &[Bytes], others: usize) -> Vec<Bytes> {
    let kept = if words.len() > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { words.len() };
    let mut all: Vec<Bytes> = words.iter().take(kept).map(|word| shortened_word(word)).collect();
    if kept < words.len() {
        all.push(format!("... ({} more arguments)", words.len() - kept).into());
    }
    if others > 0 {
        all.push(format!("... ({others} more requests)").into());
    }
    all
}

fn shortened_word(word: &[u8]) -> Bytes {
    match word.get(..ARGUMENT_BYTES_MAX) {
        Some(start) if word.len() > ARGUMENT_BYTES_MAX => {
            let end = format!("... ({} more bytes)", word.len() - ARGUMENT_BYTES_MAX);
            [start, end.as_bytes()].concat().into()
        }
        _ => Bytes::copy_from_slice(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(log: &SlowLog, microseconds: u64, words: &[Bytes], others: usize) {
        log.add(7, Duration::from_micros(microseconds), (words, others), "here", &Bytes::from("me"));
    }

    #[test]
    fn what_took_long_is_kept_the_latest_first() {
        let log = SlowLog::default();
        for (number, time) in [(1, 9_999), (2, 10_000), (3, 20_000)] {
            add(&log, time, &[Bytes::from(format!("word{number}"))], 0);
        }
        let entry = |number, time, word: &'static str| {
            let (here, me) = (Frame::bulk("here"), Frame::bulk("me"));
            let words = Frame::bulks([Bytes::from(word)]);
            Frame::Array(vec![Frame::Integer(number), Frame::Integer(7), Frame::Integer(time), words, here, me])
        };
        assert_eq!(log.latest(10), Frame::Array(vec![entry(1, 20_000, "word3"), entry(0, 10_000, "word2")]));
        assert_eq!(log.latest(1), Frame::Array(vec![entry(1, 20_000, "word3")]));
        log.clear();
        assert_eq!(log.len(), 0);
    }

    #[test]
    fn there_are_as_many_entries_as_are_set() {
        let log = SlowLog::default();
        let set = |name, value: &str| Limit::read(name, value.as_bytes())?.map(|limit| log.set(limit)).ok();
        assert!(set(MAX_LEN, "2").and(set(SLOWER_THAN, "0")).is_some());
        (0..5).for_each(|_| add(&log, 0, &[], 0));
        assert_eq!(log.len(), 2);
        assert!(set(MAX_LEN, "1").is_some());
        assert_eq!(log.len(), 1);
        assert!(set(SLOWER_THAN, "-1").is_some());
        log.clear();
        add(&log, 1 << 40, &[], 0);
        assert_eq!(log.len(), 0);
        for (name, value) in
            [(MAX_LEN, "-1"), (MAX_LEN, "1025"), (SLOWER_THAN, "-2"), (SLOWER_THAN, "x"), ("save", "1")]
        {
            assert!(set(name, value).is_none(), "{name} {value}");
        }
    }

    #[test]
    fn long_requests_are_shortened() {
        let words = vec![Bytes::from("a".repeat(130)); 40];
        let kept = shortened(&words, 3);
        assert_eq!(kept.len(), 33);
        assert_eq!(kept[0], format!("{}... (2 more bytes)", "a".repeat(128)));
        assert_eq!(kept[31..], ["... (9 more arguments)", "... (3 more requests)"]);
    }
}
