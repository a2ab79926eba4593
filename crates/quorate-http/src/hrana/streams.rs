//! The streams that wait for the next request of their clients.
//!
//! A baton is the number of a stream and a random number that changes with each answer. A stream that is in use is not
//! in the table, so no two requests use one at the same time, and if a connection breaks while its request runs, the
//! stream ends with it.
//!
//! Invariants:
//! - At most [`STREAMS_MAX`] streams wait.
//! - A baton is used once, and can't be guessed. Only the user who has opened the stream can use it, with the same
//!   role.
//! - A stream that waits for too long is dropped, which rolls back its transaction.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use quorate_env::{Env, Instant, lock, sleep_until};
use tokio::sync::Notify;

use super::stream::Stream;
use crate::error::Problem;
use crate::login::Caller;
use crate::options::STREAMS_MAX;

/// Bytes of the random number in a baton.
const SECRET_BYTES: usize = 16;

/// The shortest time between two searches for expired streams.
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Streams {
    env: Env,
    idle_max: Duration,
    transaction_max: Duration,
    waiting: Mutex<Waiting>,
    /// Notified when a stream begins to wait.
    kept: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    streams: HashMap<u64, Idle>,
    /// The times at which streams expire.
    ends: BTreeSet<(Instant, u64)>,
}

#[derive(Debug)]
struct Idle {
    secret: [u8; SECRET_BYTES],
    stream: Stream,
    /// Who has opened it, and with which role.
    owner: Caller,
    end: Instant,
}

impl Streams {
    pub(crate) fn new(env: &Env, idle_max: Duration, transaction_max: Duration) -> Self {
        let (waiting, kept) = (Mutex::default(), Notify::new());
        Self { env: env.clone(), idle_max, transaction_max, waiting, kept }
    }

    /// Takes the stream of a baton, or opens one.
    pub(super) fn take(&self, baton: Option<&str>, caller: &Caller) -> Result<(u64, Stream), Problem> {
        let Some(baton) = baton else { return Ok((self.env.rng().next_u64(), Stream::default())) };
        let (id, secret) = parse(baton).ok_or(Problem::BatonInvalid)?;
        let mut waiting = self.waiting();
        waiting.expire(Instant::now(), self.idle_max);
        let idle = waiting.streams.get(&id).ok_or(Problem::StreamExpired)?;
        // The time that this takes could tell how much of a guess is right.
        let differs = idle.secret.iter().zip(secret).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 || idle.owner != *caller {
            return Err(Problem::BatonInvalid);
        }
        Ok((id, waiting.remove(id).ok_or(Problem::StreamExpired)?))
    }

    /// Keeps a stream for the next request; returns its baton.
    pub(super) fn keep(&self, id: u64, stream: Stream, owner: &Caller) -> Result<String, Problem> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        waiting.expire(now, self.idle_max);
        if waiting.streams.len() >= STREAMS_MAX {
            let oldest = waiting.oldest_without_transaction().ok_or(Problem::TooManyStreams(STREAMS_MAX))?;
            waiting.remove(oldest);
        }
        let mut secret = [0; SECRET_BYTES];
        self.env.rng().fill(&mut secret);
        let time = if stream.is_in_transaction() { self.idle_max.min(self.transaction_max) } else { self.idle_max };
        waiting.insert(id, Idle { secret, stream, owner: owner.clone(), end: now + time });
        drop(waiting);
        self.kept.notify_one();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(hex(&id.to_be_bytes()) + &hex(&secret))
    }

    /// Drops streams as they expire, for ever.
    pub(crate) async fn sweep(&self) {
        loop {
            let kept = self.kept.notified();
            let next = {
                let mut waiting = self.waiting();
                waiting.expire(Instant::now(), self.idle_max);
                waiting.ends.first().map(|(end, _)| *end)
            };
            match next {
                Some(end) => sleep_until(end.max(Instant::now() + SWEEP_PAUSE)).await,
                None => kept.await,
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

impl Waiting {
    fn insert(&mut self, id: u64, idle: Idle) {
        self.ends.insert((idle.end, id));
        self.streams.insert(id, idle);
    }

    fn remove(&mut self, id: u64) -> Option<Stream> {
        let idle = self.streams.remove(&id)?;
        self.ends.remove(&(idle.end, id));
        Some(idle.stream)
    }

    /// Drops the streams that have expired. One that was in a transaction is kept once more, without it, so that its
    /// client learns what has happened.
    fn expire(&mut self, now: Instant, idle_max: Duration) {
        while let Some((_, id)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            let Some(idle) = self.streams.remove(&id) else { break };
            self.ends.remove(&(idle.end, id));
            if idle.stream.is_in_transaction() {
                let why = "its time limit was reached between two requests";
                let stream = idle.stream.without_transaction(why.into());
                self.insert(id, Idle { stream, end: now + idle_max, ..idle });
            }
        }
    }

    fn oldest_without_transaction(&self) -> Option<u64> {
        let is_free = |id: &u64| self.streams.get(id).is_some_and(|idle| !idle.stream.is_in_transaction());
        self.ends.iter().map(|(_, id)| *id).find(is_free)
    }
}

/// Returns the number and the secret of a baton.
fn parse(baton: &str) -> Option<(u64, [u8; SECRET_BYTES])> {
    let (id, secret) = baton.split_at_checked(16)?;
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if secret.len() != 2 * SECRET_BYTES || !is_hex(id) || !is_hex(secret) {
        return None;
    }
    let secret = u128::from_str_radix(secret, 16).ok()?;
    Some((u64::from_str_radix(id, 16).ok()?, secret.to_be_bytes()))
}
