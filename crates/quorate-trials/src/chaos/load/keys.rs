//! Keys over the port for Redis' clients: registers, sets and lists like those of SQL, in a key space of their own.
//!
//! A client has one connection to one node. If a reply does not come in time, it connects again, and a write of then is
//! one of unknown outcome: RESP has no other way to say so. Each append to a list also adds a row, by `Q.SQL` in the
//! same transaction. At the end the rows must equal the lists.
//!
//! Invariant: the numbers of keys in the histories, and the values, begin at [`FIRST`], so that they are not those of
//! SQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quorate::{Level, Sql};
use quorate_env::Rng;
use quorate_history::append::Step;
use quorate_history::register::Action;
use quorate_history::{Outcome, register, set};
use quorate_resp::differential::Value;
use tokio::time::{Instant, timeout_at};

use super::{Ended, Ledger, OPERATION_MAX, PATIENCE, Result, Window, int};
use crate::harness::resp::{Connection, request};
use crate::harness::until;

/// The rows that transactions add beside their appends.
pub const TABLES: &[&str] = &[
    "CREATE TABLE appended (list INTEGER NOT NULL, value INTEGER NOT NULL)",
    "CREATE INDEX appended_by_list ON appended (list)",
];

/// The first number of a key in the histories, and the first value.
const FIRST: u64 = 1 << 40;
/// How many registers, and lists, are in use at a time.
const WIDTH: u64 = 4;
/// How many operations are done on them before the next ones are used.
const USES_MAX: u64 = 600;
/// How many elements are added to a set before the next set is used.
const ELEMENTS_MAX: u64 = 300;
/// The maximum number of lists that a transaction uses.
const STEPS_MAX: u64 = 3;
/// The codes of errors after which nothing was done, and that faults explain.
const EXPECTED: [&str; 1] = ["TRYAGAIN"];

/// A client of the port of one node.
pub struct Client {
    addr: String,
    level: &'static str,
    connection: Option<Connection>,
    deadline: Duration,
    pub rng: Rng,
    ledger: Ledger,
}

/// Why an operation has no answer.
enum Unanswered {
    /// It was not sent, or refused.
    Failed,
    /// It may have been done.
    Lost,
}

impl Client {
    /// Returns a client whose reads have this level.
    pub fn new(addr: &str, level: Level, rng: Rng, ledger: &Ledger) -> Self {
        let at = usize::try_from(rng.below(OPERATION_MAX.len() as u64)).unwrap_or(0);
        let level = if level == Level::Linearizable { "linearizable" } else { "local" };
        let (addr, ledger, deadline) = (addr.to_owned(), ledger.clone(), OPERATION_MAX[at]);
        Self { addr, level, connection: None, deadline, rng, ledger }
    }

    /// Returns a client for operations that must succeed, while there are no faults.
    pub fn patient(addr: &str, rng: Rng, ledger: &Ledger) -> Self {
        Self { deadline: PATIENCE, ..Self::new(addr, Level::Linearizable, rng, ledger) }
    }

    async fn connect(&self) -> Result<Connection> {
        let mut connection = Connection::to(&self.addr).await?;
        let replies = connection.ask(&[request(&format!("Q.LEVEL {}", self.level))]).await?;
        if replies.iter().any(Value::is_error) { Err("the level of reads was refused".into()) } else { Ok(connection) }
    }

    /// Sends requests together, and returns their replies, none of which is an error.
    async fn ask(&mut self, requests: &[Vec<Bytes>]) -> Result<Vec<Value>, Unanswered> {
        let deadline = Instant::now() + self.deadline;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connected = timeout_at(deadline, self.connect()).await;
                connected.ok().and_then(Result::ok).ok_or(Unanswered::Failed)?
            }
        };
        let asked = timeout_at(deadline, connection.ask(requests)).await;
        let replies = asked.ok().and_then(Result::ok).ok_or(Unanswered::Lost)?;
        let Some(Value::Line(error)) = replies.iter().find(|reply| reply.is_error()) else {
            self.connection = Some(connection);
            return Ok(replies);
        };
        // A transaction or a WATCH may be open, which ends with the connection.
        let error = error.trim_start_matches('-');
        if error.starts_with("UNKNOWN ") {
            return Err(Unanswered::Lost);
        }
        if !EXPECTED.iter().any(|code| error.contains(code)) {
            self.ledger.surprise(format!("RESP: {error} to {:?}", requests.last()));
        }
        Err(Unanswered::Failed)
    }

    /// Waits for the outcome of an operation, and counts it.
    async fn run<T>(
        &mut self,
        kind: &'static str,
        writes: bool,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, Unanswered>,
    ) -> Ended<T> {
        let begun = self.ledger.now();
        let result = work(self).await;
        let outcome = match &result {
            Ok(_) => Outcome::Done,
            Err(Unanswered::Lost) if writes => Outcome::Unknown,
            Err(_) => Outcome::Failed,
        };
        self.ledger.ended(kind, writes, begun, outcome, result.ok())
    }
}

/// The three kinds of keys, with those in use.
#[derive(Clone, Default)]
pub struct Keys {
    registers: Window,
    sets: Window,
    lists: Window,
    /// How many values were written. Each value is new, so that a read identifies the write.
    value: Arc<AtomicU64>,
}

impl Keys {
    /// Waits until the cluster has keys, and premises of transactions, which follow its founding.
    pub async fn prepare(&self, client: &mut Client) -> Result<()> {
        let guarded = ["WATCH ready", "MULTI", "SET ready 1", "EXEC"].map(request);
        until("keys", PATIENCE, async || client.ask(&guarded).await.ok()).await.map(drop)
    }

    pub async fn step(&self, client: &mut Client) {
        match client.rng.below(100) {
            0..40 => self.register(client).await,
            40..60 => self.set(client).await,
            _ => self.list(client).await,
        }
    }

    fn new_value(&self) -> u64 {
        FIRST + self.value.fetch_add(1, Ordering::Relaxed)
    }

    async fn register(&self, client: &mut Client) {
        let key = self.registers.first(1, USES_MAX, WIDTH) + client.rng.below(WIDTH);
        let new = self.new_value();
        // The register probably holds one of the last values.
        let old = new.saturating_sub(1 + client.rng.below(4 * WIDTH));
        let action = |action| register::Access { key: FIRST + key, action };
        let op = match client.rng.below(5) {
            0 => {
                let set = [request(&format!("SET register:{key} {new}"))];
                client
                    .run("key set", true, async |client| client.ask(&set).await)
                    .await
                    .with(action(Action::Write(new)))
            }
            1 => {
                let swap = async |client: &mut Client| client.watch_and_set(key, old, new).await;
                let ended = client.run("key watch, set", true, swap).await;
                ended.with(action(Action::Swap { old, new, swapped: ended.answer.unwrap_or(false) }))
            }
            2 => {
                let swap = async |client: &mut Client| client.swap(key, old, new).await;
                let ended = client.run("key swap", true, swap).await;
                ended.with(action(Action::Swap { old, new, swapped: ended.answer.unwrap_or(false) }))
            }
            _ => {
                read_register(client, key).await;
                return;
            }
        };
        client.ledger.record().registers.push(op);
    }

    async fn set(&self, client: &mut Client) {
        if !client.rng.chance(0.8) {
            read_set(client, self.sets.first(0, ELEMENTS_MAX, 1)).await;
            return;
        }
        let (set, element) = (self.sets.first(1, ELEMENTS_MAX, 1), self.new_value());
        // A list, because it would show an element twice.
        let add = [request(&format!("RPUSH set:{set} {element}"))];
        let ended = client.run("key push", true, async |client| client.ask(&add).await).await;
        client.ledger.record().sets.push(ended.with(set::Access::Add { set: FIRST + set, element }));
    }

    async fn list(&self, client: &mut Client) {
        let count = 1 + client.rng.below(STEPS_MAX);
        let first = self.lists.first(count, USES_MAX, WIDTH);
        let lists: Vec<u64> = (0..count).map(|_| first + client.rng.below(WIDTH)).collect();
        if client.rng.chance(0.3) {
            read_lists(client, &lists).await;
            return;
        }
        let appends: Vec<(u64, u64)> = lists.into_iter().map(|list| (list, self.new_value())).collect();
        let mut requests = vec![request("MULTI")];
        if client.rng.chance(0.5) {
            requests.push(request("Q.ATOMIC"));
        }
        let before = requests.len() - 1;
        for (list, value) in &appends {
            let add = b"INSERT INTO appended VALUES (?, ?)".as_slice();
            let parameters = [list.to_string().into(), value.to_string().into()];
            requests.push(request(&format!("RPUSH list:{list} {value}")));
            requests.push(["Q.SQL".into(), add.into()].into_iter().chain(parameters).collect());
            requests.push(request(&format!("LRANGE list:{list} 0 -1")));
        }
        requests.push(request("EXEC"));
        let append = async |client: &mut Client| client.transaction(&requests).await;
        let ended = client.run("key transaction", true, append).await;
        let shown = ended.answer.as_deref().unwrap_or_default();
        let steps = appends.iter().zip(0..).flat_map(|((list, value), number)| {
            let values = shown.get(before + 3 * number + 2).map(numbers).unwrap_or_default();
            [Step::Append { key: FIRST + list, value: *value }, Step::Read { key: FIRST + list, values }]
        });
        let steps = steps.collect();
        client.ledger.record().lists.push(ended.with(steps));
    }

    /// Reads everything, and compares the rows with the lists.
    pub async fn finish(&self, client: &mut Client, sql: &Sql) -> Result<()> {
        // The connection may be one from before a fault.
        for key in 0..self.registers.first(0, USES_MAX, WIDTH) + WIDTH {
            until("the registers of keys", PATIENCE, async || read_register(client, key).await).await?;
        }
        for set in 0..=self.sets.first(0, ELEMENTS_MAX, 1) {
            until("the sets of keys", PATIENCE, async || read_set(client, set).await).await?;
        }
        for list in 0..self.lists.first(0, USES_MAX, WIDTH) + WIDTH {
            // Writes of unknown outcome may still be done between both reads.
            let equal = async || {
                let values = read_lists(client, &[list]).await?;
                let rows =
                    sql.query_as::<u64>("SELECT value FROM appended WHERE list = ? ORDER BY rowid", (int(list),));
                (rows.await.ok()? == *values.first()?).then_some(())
            };
            until(&format!("the rows of list {list} to equal its values"), PATIENCE, equal).await?;
        }
        Ok(())
    }
}

impl Client {
    /// Sets a register if it holds `old`: with WATCH. Returns whether it was set.
    async fn watch_and_set(&mut self, key: u64, old: u64, new: u64) -> Result<bool, Unanswered> {
        let watch = ["WATCH", "GET"].map(|command| request(&format!("{command} register:{key}")));
        let held = self.ask(&watch).await?.get(1).and_then(number);
        if held != Some(old) {
            self.ask(&[request("UNWATCH")]).await?;
            return Ok(false);
        }
        let set = ["MULTI".to_owned(), format!("SET register:{key} {new}"), "EXEC".to_owned()];
        let replies = self.ask(&set.map(|command| request(&command))).await?;
        Ok(matches!(replies.last(), Some(Value::Parts(..))))
    }

    /// Sets a register if it holds `old`: with its version. Returns whether it was set.
    async fn swap(&mut self, key: u64, old: u64, new: u64) -> Result<bool, Unanswered> {
        let found = self.ask(&[request(&format!("Q.GETV register:{key}"))]).await?;
        let Some(Value::Parts(_, parts)) = found.first() else { return Ok(false) };
        let (Some(version), Some(held)) = (parts.first().and_then(Value::number), parts.get(1).and_then(number)) else {
            return Ok(false);
        };
        if held != old {
            return Ok(false);
        }
        let set = self.ask(&[request(&format!("Q.CAS register:{key} {version} {new}"))]).await?;
        Ok(set.first().and_then(Value::number).is_some())
    }

    /// Does a transaction, and returns the replies of its commands.
    async fn transaction(&mut self, requests: &[Vec<Bytes>]) -> Result<Vec<Value>, Unanswered> {
        let mut replies = self.ask(requests).await?;
        match replies.pop() {
            Some(Value::Parts(_, replies)) if !replies.iter().any(Value::is_error) => Ok(replies),
            reply => {
                self.ledger.surprise(format!("RESP: EXEC replied {reply:?}"));
                Err(Unanswered::Lost)
            }
        }
    }
}

/// Reads a register, and records that. Returns what it holds; none if it could not be read.
async fn read_register(client: &mut Client, key: u64) -> Option<Option<u64>> {
    let read = [request(&format!("GET register:{key}"))];
    let ended = client.run("key get", false, async |client| client.ask(&read).await).await;
    let found = ended.answer.as_ref().map(|replies| replies.first().and_then(number));
    let access = register::Access { key: FIRST + key, action: Action::Read(found.flatten()) };
    client.ledger.record().registers.push(ended.with(access));
    found
}

/// Reads a set, and records that. Returns whether it could be read.
async fn read_set(client: &mut Client, set: u64) -> Option<()> {
    let read = [request(&format!("LRANGE set:{set} 0 -1"))];
    let ended = client.run("key range", false, async |client| client.ask(&read).await).await;
    let elements = ended.answer.as_ref().and_then(|replies| replies.first()).map(numbers).unwrap_or_default();
    client.ledger.record().sets.push(ended.with(set::Access::Read { set: FIRST + set, elements }));
    ended.answer.map(drop)
}

/// Reads lists in one transaction, and records that. Returns their values; none if they could not be read.
async fn read_lists(client: &mut Client, lists: &[u64]) -> Option<Vec<Vec<u64>>> {
    let ranges = lists.iter().map(|list| request(&format!("LRANGE list:{list} 0 -1")));
    let requests: Vec<_> = [request("MULTI")].into_iter().chain(ranges).chain([request("EXEC")]).collect();
    let ended = client.run("key transaction, read", false, async |client| client.transaction(&requests).await).await;
    let values = ended.answer.as_ref().map(|replies| replies.iter().map(numbers).collect::<Vec<_>>());
    let shown = lists.iter().zip(values.iter().flatten());
    let steps = shown.map(|(list, values)| Step::Read { key: FIRST + list, values: values.clone() }).collect();
    client.ledger.record().lists.push(ended.with(steps));
    values
}

/// Returns the number that a string is, if there is one.
fn number(value: &Value) -> Option<u64> {
    if let Value::Bulk(_, bytes) = value { std::str::from_utf8(bytes).ok()?.parse().ok() } else { None }
}

/// Returns the numbers in an array. Anything else becomes a number that is never added.
fn numbers(value: &Value) -> Vec<u64> {
    let Value::Parts(_, parts) = value else { return vec![u64::MAX] };
    parts.iter().map(|part| number(part).unwrap_or(u64::MAX)).collect()
}
