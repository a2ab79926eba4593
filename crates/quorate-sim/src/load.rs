//! Clients that write and check what they read.
//!
//! Some come over the network and ride out every failover, some use the handles of the nodes themselves. Each writer
//! waits for one write to end before the next, so that it also knows the order of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use quorate::{
    BatchStep, Bulk, Error, FailureKind, Level, Position, RemoteConfig, RemoteSql, RowPacker, Sql, Value, ValueRef,
    params,
};
use quorate_env::{Env, JoinHandle, Rng, sleep};

use crate::cluster::Cluster;
use crate::ledger::{AGE_MAX, End, Held, Kind, Ledger, makes_row};

mod transactions;

/// Clients over the network.
const CLIENTS: i64 = 3;

/// Writers of each of them, which share its session.
const WRITERS: i64 = 3;

/// Writers that use the handles of nodes.
const INSIDE: i64 = 3;

/// The number of the client that they are.
const INSIDE_CLIENT: i64 = 0;

/// How long a write may try.
const WRITE_LIMIT: Duration = Duration::from_secs(8);

/// How long a read may try.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// The longest pause between two writes of a writer, in milliseconds, and between two reads of who only reads.
const PAUSE_MILLIS: u64 = 640;
const WATCH_MILLIS: u64 = 400;

/// The tables: one without a key, so that what was applied twice shows; and all that draws numbers and asks for the
/// time.
const SCHEMA: [&str; 7] = [
    "CREATE TABLE events (client INTEGER NOT NULL, number INTEGER NOT NULL, draw INTEGER NOT NULL DEFAULT (random()),
        at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, body TEXT CHECK (body IS NULL OR body <> 'broken'))",
    "CREATE INDEX events_by_number ON events (client, number)",
    "CREATE TABLE totals (client INTEGER PRIMARY KEY, batches INTEGER NOT NULL DEFAULT 0,
        moves INTEGER NOT NULL DEFAULT 0, moved REAL)",
    "CREATE TABLE echoes (id INTEGER PRIMARY KEY AUTOINCREMENT, event INTEGER, noise BLOB, at TEXT)",
    "CREATE TRIGGER echo AFTER INSERT ON events WHEN new.number % 3 = 0 BEGIN
        INSERT INTO echoes (event, noise, at) VALUES (new.rowid, randomblob(8), datetime('now', '+1 day')); END",
    "CREATE VIRTUAL TABLE words USING fts5 (body)",
    "CREATE TABLE notes (client INTEGER REFERENCES totals (client) DEFERRABLE INITIALLY DEFERRED, body)",
];

/// The running clients.
pub struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    calm: u64,
}

/// One writer, or who only reads.
struct Writer {
    cluster: Cluster,
    ledger: Ledger,
    client: i64,
    numbers: Arc<AtomicI64>,
    /// The handle over the network; `None` for those inside.
    remote: Option<Sql>,
    rng: Rng,
    stop: Arc<AtomicBool>,
    last: Option<Position>,
    /// How many times longer than usual it pauses.
    calm: u64,
}

/// Makes the tables.
pub async fn prepare(sql: &Sql) -> Result<(), Error> {
    sql.batch(SCHEMA.map(|statement| (statement, params![]))).await?;
    let rows = (0..=CLIENTS).map(|client| ("INSERT INTO totals (client) VALUES (?)", params![client]));
    sql.batch(rows).await.map(drop)
}

/// What the cluster holds, as a handle reads it.
pub async fn held(sql: &Sql) -> Result<Held, Error> {
    let mut held = Held { rows: Default::default(), counters: Default::default() };
    let rows: Vec<(i64, i64, i64)> = sql.query_as("SELECT client, number, draw FROM events", ()).await?;
    for (client, number, draw) in rows {
        held.rows.entry((client, number)).or_default().push(draw);
    }
    let counters: Vec<(i64, i64, i64)> = sql.query_as("SELECT client, batches, moves FROM totals", ()).await?;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    held.counters =
        counters.into_iter().map(|(client, batches, moves)| (client, (count(batches), count(moves)))).collect();
    Ok(held)
}

impl Load {
    /// Starts all clients, which pause `calm` times longer than usual.
    pub fn start(cluster: &Cluster, ledger: &Ledger, calm: u32) -> Self {
        let mut load = Self { stop: Arc::default(), tasks: Vec::new(), calm: calm.into() };
        for client in 1..=CLIENTS {
            let env = cluster.world().node(&format!("client-{client}"));
            let writers = load.writers(cluster, ledger, client, WRITERS);
            load.tasks.push(env.spawn(over_the_network(env.clone(), cluster.addrs().collect(), writers)));
        }
        let env = cluster.world().node("client-0");
        for writer in load.writers(cluster, ledger, INSIDE_CLIENT, INSIDE) {
            load.tasks.push(env.spawn(writer.run()));
        }
        let names = cluster.names();
        let readers = load.writers(cluster, ledger, INSIDE_CLIENT, i64::try_from(names.len()).unwrap_or(INSIDE));
        for (reader, name) in readers.into_iter().zip(names) {
            load.tasks.push(env.spawn(reader.watch(name)));
        }
        load
    }

    /// Lets writes under way end, and waits for that.
    pub async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            // A client that panicked has failed the run.
            let _ = task.await;
        }
    }

    fn writers(&self, cluster: &Cluster, ledger: &Ledger, client: i64, count: i64) -> Vec<Writer> {
        let numbers = Arc::new(AtomicI64::new(0));
        let writer = |_| Writer {
            cluster: cluster.clone(),
            ledger: ledger.clone(),
            client,
            numbers: Arc::clone(&numbers),
            remote: None,
            rng: cluster.world().rng().fork(),
            stop: Arc::clone(&self.stop),
            last: None,
            calm: self.calm,
        };
        (0..count).map(writer).collect()
    }
}

/// Whether a failure is what a broken write deserves.
fn breaks_a_rule(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Constraint | FailureKind::ForeignKey)
}

/// A client's process: connects, then runs its writers.
async fn over_the_network(env: Env, addrs: Vec<String>, writers: Vec<Writer>) {
    let config = RemoteConfig::new(addrs, Cluster::secret());
    let remote = loop {
        match RemoteSql::connect_in(env.clone(), config.clone()).await {
            Ok(remote) => break remote,
            Err(error) if error.is_retryable() => {}
            Err(error) => {
                let Some(writer) = writers.first() else { return };
                return writer.cluster.history().violation(format!("a client was refused: {error}"));
            }
        }
    };
    let run = |writer: Writer| env.spawn(Writer { remote: Some((*remote).clone()), ..writer }.run());
    let tasks: Vec<_> = writers.into_iter().map(run).collect();
    for task in tasks {
        let _ = task.await;
    }
}

impl Writer {
    async fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS * self.calm))).await;
            if let Some(sql) = self.handle() {
                self.step(&sql.with_deadline(WRITE_LIMIT)).await;
            }
        }
    }

    /// Reads on one node again and again: it may take itself for the leader when it is none any more.
    async fn watch(self, name: &'static str) {
        while !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.below(WATCH_MILLIS * self.calm))).await;
            if let Some(sql) = self.cluster.sql(name) {
                self.read_all(sql).await;
            }
        }
    }

    /// The handle for the next write.
    fn handle(&self) -> Option<Sql> {
        self.remote.clone().or_else(|| self.some_node())
    }

    /// The handle of a node that serves, if the one that was drawn does.
    fn some_node(&self) -> Option<Sql> {
        let names = self.cluster.names();
        let name = names.get(usize::try_from(self.rng.below(names.len() as u64)).unwrap_or(0))?;
        self.cluster.sql(name)
    }

    /// One write, and perhaps a read that must see it.
    async fn step(&mut self, sql: &Sql) {
        let kind = match self.rng.below(20) {
            0..9 => Kind::Insert,
            9..13 => Kind::Batch,
            13..15 => Kind::Move,
            15..18 => Kind::Transact,
            18 => Kind::Interact,
            _ => Kind::Broken,
        };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let key = (self.client, number);
        self.ledger.begin(key, kind);
        let result = self.write(sql, kind, number).await;
        self.cluster.world().trace().add("client", format_args!("{key:?} {kind:?} {result:?}"));
        match result {
            Ok((position, drawn)) => {
                self.acknowledged(kind, number, position, drawn);
                match self.rng.below(8) {
                    0 | 1 => self.read_own(kind, number, position).await,
                    2 => self.read_some().await,
                    3 => self.read_by_same(sql, kind, number).await,
                    _ => {}
                }
            }
            Err(Error::Failed(failure)) if kind == Kind::Broken && breaks_a_rule(failure.kind) => {
                self.ledger.ended(key, kind, End::NotDone);
            }
            Err(Error::Unknown(_)) => self.ledger.ended(key, kind, End::Unknown),
            Err(error @ (Error::Failed(_) | Error::Forbidden(_) | Error::Row(_))) => {
                self.violation(format!("{kind:?} {key:?} failed: {error}"));
            }
            Err(_) => self.ledger.ended(key, kind, End::NotDone),
        }
    }

    async fn write(&self, sql: &Sql, kind: Kind, number: i64) -> Result<(Position, Option<i64>), Error> {
        let insert = "INSERT INTO events (client, number, body) VALUES (?, ?, ?)";
        let body = self.body();
        match kind {
            Kind::Insert => {
                let returning = format!("{insert} RETURNING draw");
                let returned = sql.execute_returning(returning, (self.client, number, body)).await?;
                let draw = returned.rows.one::<i64>()?;
                Ok((returned.position, Some(draw)))
            }
            Kind::Batch => {
                let count = "UPDATE totals SET batches = batches + 1 WHERE client = ? RETURNING batches";
                let batch: [BatchStep; 3] = [
                    (insert, params![self.client, number, body]).into(),
                    (count, params![self.client]).into(),
                    self.words(number).into(),
                ];
                Ok((sql.batch(batch).await?.position, None))
            }
            Kind::Move => {
                let update = "UPDATE totals SET moves = moves + 1, moved = julianday('now') WHERE client = ?";
                Ok((sql.execute(update, (self.client,)).await?.position, None))
            }
            Kind::Transact => Ok((self.transact(sql).await?, None)),
            Kind::Interact => self.interact(sql, number, body).await,
            Kind::Broken => {
                let rows = [body, "broken".into()].map(|body| (self.client, number, body));
                if number % 3 == 0 {
                    // A key that leads nowhere, which shows only when the entry ends.
                    let note = ("INSERT INTO notes VALUES (-1, ?)", (number,));
                    return Ok((sql.batch([note]).await?.position, None));
                }
                if number % 3 == 1 {
                    return Ok((sql.execute_many(insert, rows).await?.position, None));
                }
                Ok((sql.batch(rows.map(|row| (insert, row))).await?.position, None))
            }
        }
    }

    /// Some rows of words, by one bulk statement.
    fn words(&self, number: i64) -> Bulk {
        let mut rows = RowPacker::new(1);
        for word in 0..=self.rng.below(20) {
            rows.push(ValueRef::Text(&format!("word{number} client{} {word}", self.client)));
            // Each has its one value.
            let _ = rows.end_row();
        }
        Bulk { sql: "INSERT INTO words SELECT ?1 || ' ' || hex(randomblob(4))".to_owned(), rows: rows.finish() }
    }

    /// Mostly little, sometimes a lot.
    fn body(&self) -> Value {
        let len = match self.rng.below(12) {
            0 => self.rng.below(6_000),
            1..8 => self.rng.below(120),
            _ => return Value::Null,
        };
        // Not all the same, so that it does not compress to nothing.
        let letter = |_| char::from(b'a'.saturating_add(u8::try_from(self.rng.below(26)).unwrap_or(0)));
        Value::Text((0..len).map(letter).collect())
    }

    fn acknowledged(&mut self, kind: Kind, number: i64, position: Position, drawn: Option<i64>) {
        let key = (self.client, number);
        if kind == Kind::Broken {
            self.violation(format!("{key:?} breaks a rule, and was acknowledged at {position}"));
        }
        if !self.ledger.acknowledged(key, kind, drawn, position.index) {
            self.violation(format!("{key:?} was acknowledged at {position}, and so was another"));
        }
        if self.last.is_some_and(|last| last >= position) {
            self.violation(format!("{key:?} was acknowledged at {position}, and one before it at {:?}", self.last));
        }
        self.last = Some(position);
    }

    /// Any node must show the row at its position.
    async fn read_own(&self, kind: Kind, number: i64, position: Position) {
        if let Some(sql) = self.some_node() {
            self.find_own(&sql.at(Level::AtLeast(position)), kind, number).await;
        }
    }

    /// The handle that has written must show the row.
    async fn read_by_same(&self, sql: &Sql, kind: Kind, number: i64) {
        let sql = if self.rng.below(2) == 0 { sql.at(Level::Local) } else { sql.at(self.some_age().0) };
        self.find_own(&sql.with_own_writes(), kind, number).await;
    }

    async fn find_own(&self, sql: &Sql, kind: Kind, number: i64) {
        if makes_row(kind) {
            let (sql, count) =
                (sql.with_deadline(READ_LIMIT), "SELECT count(*) FROM events WHERE client = ? AND number = ?");
            self.judge(sql.query_one::<i64>(count, (self.client, number)).await, |found| match found {
                1 => None,
                found => Some(format!("{sql:?} shows its own ({}, {number}) {found} times", self.client)),
            });
        }
    }

    async fn read_some(&self) {
        if let Some(sql) = self.remote.clone().or_else(|| self.some_node()) {
            self.read_all(sql).await;
        }
    }

    /// A linearizable read must show everything that was acknowledged, or shown by another, before it; one of bounded
    /// age what was so that long before it.
    async fn read_all(&self, sql: Sql) {
        let (level, before) = match self.rng.below(3) {
            0 => self.some_age(),
            _ => (Level::Linearizable, self.ledger.rows()),
        };
        let sql = sql.at(level).with_deadline(READ_LIMIT);
        self.judge(sql.query_one::<i64>("SELECT count(*) FROM events", ()).await, |found| {
            let found = u64::try_from(found).unwrap_or(0);
            self.ledger.shown(found);
            (found < before).then(|| format!("a read at {level:?} shows {found} of {before} rows"))
        });
    }

    /// A level of bounded age, and how many rows a read that begins now must show.
    fn some_age(&self) -> (Level, u64) {
        let age = Duration::from_millis(self.rng.below(u64::try_from(AGE_MAX.as_millis()).unwrap_or(0)));
        (Level::Bounded(age), self.ledger.rows_before(age))
    }

    fn judge(&self, result: Result<i64, Error>, wrong: impl FnOnce(i64) -> Option<String>) {
        match result {
            Ok(found) => {
                self.ledger.read();
                if let Some(wrong) = wrong(found) {
                    self.violation(wrong);
                }
            }
            Err(error @ (Error::Failed(_) | Error::Forbidden(_) | Error::Row(_))) => {
                self.violation(format!("a read failed: {error}"));
            }
            // The node was killed or cut off.
            Err(_) => {}
        }
    }

    fn violation(&self, what: String) {
        self.cluster.history().violation(what);
    }
}
