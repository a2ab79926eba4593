//! The clients, which write, and check what they read.
//!
//! Some clients connect over the network and retry through every failover; others use the handles of the nodes
//! themselves. Each writer waits until a write has ended before it begins the next, so it knows the order of its own
//! writes. Now and then it sends a burst of many writes at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use quorate::{
    Client, ClientConfig, Error, FailureKind, Migrations, Position, Sql, Step, Value, params,
    sql::{BatchStep, Bulk, MigrateError, RowPacker},
    types::ValueRef,
};
use quorate_env::{Env, JoinHandle, Rng, sleep};
use quorate_env_sim::SimWorld;
use quorate_model::events::EVENTS_LEVEL;
use quorate_model::keys::RELATIVE_LEVEL;

use crate::cluster::Cluster;
use crate::coverage::{ABORTED, CONFLICT, OVERLOADED, ROLLED_BACK};
use crate::ledger::{COMMON, End, Held, Key, Kind, Ledger};

mod ails;
mod bursts;
mod cells;
mod changes;
mod collections;
mod events;
mod items;
mod keys;
mod locks;
mod pipelines;
mod reads;
mod requests;
mod transactions;
mod upkeep;
mod users;

use ails::Ails;
use cells::CellClient;
use changes::ChangesClient;
use items::ItemsClient;
use locks::LockClient;
use upkeep::Upkeep;
use users::UsersOperator;

/// The number of clients over the network.
const CLIENTS: i64 = 3;

/// The number of writers of each of these clients, which share its session.
const WRITERS: i64 = 3;

/// The number of writers that use the handles of nodes.
const INSIDE: i64 = 3;

/// The client number of these writers.
const INSIDE_CLIENT: i64 = 0;

/// The deadline of a write.
const WRITE_LIMIT: Duration = Duration::from_secs(8);

/// The longest pauses, in milliseconds: between two writes of a writer, and between two reads of a client that only
/// reads.
const PAUSE_MILLIS: u64 = 640;
const WATCH_MILLIS: u64 = 400;

/// One step of a writer in this many is a burst.
const BURST_ONE_IN: u64 = 600;

/// The tables. `events` has no key, so that a write which is applied twice shows. Defaults, triggers and indexes draw
/// random numbers, ask for the time and call functions of the program. `relics` is never written again, so only readers
/// can meet a bad page there.
const SCHEMA: [&str; 17] = [
    "CREATE TABLE events (client INTEGER NOT NULL, number INTEGER NOT NULL, draw INTEGER NOT NULL DEFAULT (random()),
        at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, body TEXT CHECK (body IS NULL OR body <> 'broken'))",
    "CREATE INDEX events_by_number ON events (client, number)",
    "CREATE INDEX events_by_scramble ON events (scramble(number), body COLLATE by_length)",
    "CREATE TABLE lates (x)",
    "CREATE TABLE ails (number INTEGER NOT NULL, x)",
    "CREATE TABLE totals (client INTEGER PRIMARY KEY, batches INTEGER NOT NULL DEFAULT 0,
        moves INTEGER NOT NULL DEFAULT 0, moved REAL)",
    "CREATE TABLE echoes (id INTEGER PRIMARY KEY AUTOINCREMENT, event INTEGER, noise BLOB, at TEXT)",
    "CREATE TRIGGER echo AFTER INSERT ON events WHEN new.number % 3 = 0 BEGIN
        INSERT INTO echoes (event, noise, at)
            VALUES (scramble(new.rowid), randomblob(8), datetime('now', '+1 day')); END",
    "CREATE VIRTUAL TABLE words USING fts5 (body)",
    "CREATE TABLE notes (client INTEGER REFERENCES totals (client) DEFERRABLE INITIALLY DEFERRED, body)",
    "CREATE TABLE mirrors (client INTEGER NOT NULL, number INTEGER NOT NULL, draw INTEGER NOT NULL)",
    "CREATE TABLE steps (number INTEGER NOT NULL, before INTEGER NOT NULL)",
    "CREATE TABLE relics (body TEXT)",
    locks::TABLE,
    cells::TABLE,
    "CREATE TABLE signals (client INTEGER NOT NULL, number INTEGER NOT NULL)",
    "CREATE TRIGGER signal AFTER INSERT ON signals BEGIN
        SELECT notify('signal:' || new.client, new.number), notify('echo:' || new.client, new.number); END",
];

/// Fills some pages of `relics`.
const RELICS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 40)
    INSERT INTO relics SELECT printf('%.*c', 500, 'r') FROM n";

/// The running clients.
pub struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    calm: u64,
}

/// A writer, or a client that only reads.
struct Writer {
    cluster: Cluster,
    ledger: Ledger,
    client: i64,
    numbers: Arc<AtomicI64>,
    /// The handle over the network; `None` for writers inside nodes.
    remote: Option<Sql>,
    rng: Rng,
    stop: Arc<AtomicBool>,
    last: Option<Position>,
    /// How many times longer than usual its pauses are.
    calm: u64,
}

/// Creates and fills the tables.
pub async fn prepare(sql: &Sql, world: &SimWorld) -> Result<(), Error> {
    sql.batch(SCHEMA.map(|statement| (statement, params![]))).await?;
    let rows = (0..=CLIENTS).chain([COMMON]).map(|client| ("INSERT INTO totals (client) VALUES (?)", params![client]));
    sql.batch(rows).await?;
    sql.execute(RELICS, ()).await?;
    collections::prepare(sql, world).await
}

/// Reads what the cluster holds through a handle.
pub async fn held(sql: &Sql, world: &SimWorld) -> Result<Held, Error> {
    let mut held = Held { rows: draws(sql, "events").await?, mirrors: draws(sql, "mirrors").await?, ..Held::default() };
    let counters: Vec<(i64, i64, i64)> = sql.query_as("SELECT client, batches, moves FROM totals", ()).await?;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    held.counters =
        counters.into_iter().map(|(client, batches, moves)| (client, (count(batches), count(moves)))).collect();
    held.steps = sql.query_as("SELECT number, before FROM steps ORDER BY rowid", ()).await?;
    let ails: Vec<(i64, i64)> = sql.query_as("SELECT number, count(*) FROM ails GROUP BY number", ()).await?;
    held.ails = ails.into_iter().map(|(number, found)| (number, count(found))).collect();
    held.keys = keys::held(sql).await?;
    held.cells = cells::held(sql).await?;
    held.collections = collections::held(sql, world).await?;
    held.grants = locks::grants(sql).await?;
    held.events = events::held(sql).await?;
    held.signals = events::signals(sql).await?;
    let status = sql.migration_status(&Migrations::default()).await;
    let status = status.map_err(|error| match error {
        MigrateError::Database(error) => error,
        error => Error::Unavailable(error.into()),
    })?;
    held.recorded = status.done.iter().map(|done| count(done.number)).collect();
    Ok(held)
}

/// Reads the random numbers in a table, by the key of their write.
async fn draws(sql: &Sql, table: &str) -> Result<BTreeMap<Key, Vec<i64>>, Error> {
    let mut draws: BTreeMap<Key, Vec<i64>> = BTreeMap::new();
    let rows: Vec<(i64, i64, i64)> = sql.query_as(format!("SELECT client, number, draw FROM {table}"), ()).await?;
    for (client, number, draw) in rows {
        draws.entry((client, number)).or_default().push(draw);
    }
    Ok(draws)
}

impl Load {
    /// Starts all clients, whose pauses are `calm` times longer than usual.
    pub fn start(cluster: &Cluster, ledger: &Ledger, calm: u32) -> Self {
        let mut load = Self { stop: Arc::default(), tasks: Vec::new(), calm: calm.into() };
        for client in 1..=CLIENTS {
            let env = cluster.world().node(&format!("client-{client}"));
            let writers = load.writers(cluster, ledger, client, WRITERS);
            load.tasks.push(env.spawn(over_the_network(env.clone(), cluster.clone(), writers)));
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
        let env = cluster.world().node("listener");
        let rng = cluster.world().rng().fork();
        let listening = events::listen(env.clone(), cluster.clone(), ledger.clone(), rng, Arc::clone(&load.stop));
        load.tasks.push(env.spawn(listening));
        let env = cluster.world().node("upkeep");
        load.tasks.push(env.spawn(Upkeep::new(cluster, ledger, &load.stop, calm).run(env.clone())));
        let env = cluster.world().node("items");
        for client in 0..items::CLIENTS {
            let client = ItemsClient::new(&env, cluster, ledger, &load.stop, calm, client);
            load.tasks.push(env.spawn(client.run()));
        }
        let env = cluster.world().node("ails");
        load.tasks.push(env.spawn(Ails::new(cluster, ledger, &load.stop, calm).run(env.clone())));
        let env = cluster.world().node("users");
        load.tasks.push(env.spawn(UsersOperator::new(cluster, ledger, &load.stop, calm).run()));
        let env = cluster.world().node("locks");
        for _ in 0..locks::CLIENTS {
            load.tasks.push(env.spawn(LockClient::new(cluster, ledger, &load.stop, calm).run()));
        }
        let env = cluster.world().node("cells");
        for client in 0..cells::CLIENTS {
            load.tasks.push(env.spawn(CellClient::new(cluster, ledger, &load.stop, calm, client).run()));
        }
        let env = cluster.world().node("changes");
        for client in 0..changes::CLIENTS {
            load.tasks.push(env.spawn(ChangesClient::new(cluster, ledger, &load.stop, calm, client).run()));
        }
        for client in collections::clients(cluster, ledger, &load.stop, calm) {
            load.tasks.push(cluster.world().node("collections").spawn(client));
        }
        load
    }

    /// Stops all clients, and waits until their current writes have ended.
    pub async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            // The run fails anyway if a client panicked.
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

/// Whether a failure is a violated constraint, which a write of the kind `Broken` must get.
fn violates_a_constraint(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Constraint | FailureKind::ForeignKey)
}

/// Connects a client, and retries until that succeeds. Returns `None` if the client is refused for good.
async fn connected(env: &Env, cluster: &Cluster) -> Option<Client> {
    let config = ClientConfig::new(cluster.addrs(), Cluster::secret());
    loop {
        match Client::connect_in(env.clone(), config.clone()).await {
            Ok(client) => return Some(client),
            Err(error) if error.is_retryable() => {}
            Err(error) => {
                cluster.history().violation(format!("a client was refused: {error}"));
                return None;
            }
        }
    }
}

/// Runs a client's process: connects, then runs its writers.
async fn over_the_network(env: Env, cluster: Cluster, writers: Vec<Writer>) {
    let Some(client) = connected(&env, &cluster).await else { return };
    let run = |writer: Writer| env.spawn(Writer { remote: Some(client.sql()), ..writer }.run());
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
                let sql = sql.with_deadline(WRITE_LIMIT);
                if self.rng.below(BURST_ONE_IN) == 0 {
                    self.burst(&sql).await;
                } else {
                    self.step(&sql).await;
                }
            }
        }
    }

    /// Reads on one node again and again: a node that was the leader may believe that it still is.
    async fn watch(self, name: &'static str) {
        while !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.below(WATCH_MILLIS * self.calm))).await;
            if let Some(sql) = self.cluster.sql(name) {
                self.read_all(sql).await;
            }
        }
    }

    /// Returns the handle for the next write.
    fn handle(&self) -> Option<Sql> {
        self.remote.clone().or_else(|| self.some_node())
    }

    /// Returns the handle of a random node, if that node serves.
    fn some_node(&self) -> Option<Sql> {
        let names = self.cluster.names();
        let name = names.get(usize::try_from(self.rng.below(names.len() as u64)).unwrap_or(0))?;
        self.cluster.sql(name)
    }

    /// Does one write, and sometimes a read that must see it.
    async fn step(&mut self, sql: &Sql) {
        let kind = match self.rng.below(22) {
            0..6 => Kind::Insert,
            6..8 => Kind::Request,
            8 => Kind::Pipeline,
            9..13 => Kind::Batch,
            13..15 => Kind::Move,
            15..18 => Kind::Transact,
            18 => Kind::Interact,
            19 if self.understands(RELATIVE_LEVEL) => Kind::Keys,
            20 if self.understands(EVENTS_LEVEL) => Kind::Events,
            19..21 => Kind::Insert,
            _ => Kind::Broken,
        };
        let key = self.next_key();
        let number = key.1;
        self.ledger.begin(key, kind);
        let begun = self.cluster.history().time();
        let result = self.write(sql, kind, number).await;
        if kind == Kind::Request && self.is_forgotten(begun) {
            self.ledger.ended(key, End::Forgotten);
            return;
        }
        if let Some(position) = self.ended(key, kind, result) {
            self.follows(key, position);
            self.last = Some(position);
            match self.rng.below(8) {
                0 | 1 => self.read_own(kind, number, position).await,
                2 => self.read_some().await,
                // A request may have been answered to another handle.
                3 if kind != Kind::Request => self.read_by_same(sql, kind, number).await,
                _ => {}
            }
        }
    }

    /// Whether all members understand a format level, as far as a node knows.
    fn understands(&self, level: u32) -> bool {
        self.cluster.statuses().iter().any(|status| status.format_level >= level)
    }

    fn next_key(&self) -> Key {
        (self.client, self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Records how a write ended. Returns its position if it was acknowledged.
    fn ended(&self, key: Key, kind: Kind, result: Result<(Position, Option<i64>), Error>) -> Option<Position> {
        self.cluster.world().trace().add("client", format_args!("{key:?} {kind:?} {result:?}"));
        let end = match result {
            Ok((position, drawn)) => {
                self.acknowledged(key, kind, position, drawn);
                return Some(position);
            }
            Err(Error::Failed(failure)) if kind == Kind::Broken && violates_a_constraint(failure.kind) => End::NotDone,
            Err(Error::Failed(failure)) if failure.kind == FailureKind::Rejected && self.cluster.may_reject() => {
                End::NotDone
            }
            // Not all members understand it yet.
            Err(Error::Failed(failure))
                if matches!(kind, Kind::Request | Kind::Keys | Kind::Events)
                    && failure.kind == FailureKind::Unsupported =>
            {
                End::NotDone
            }
            Err(Error::Unknown(_)) => End::Unknown,
            Err(error @ (Error::Failed(_) | Error::Forbidden(_) | Error::Row(_))) => {
                self.violation(format!("{kind:?} {key:?} failed: {error}"));
                return None;
            }
            Err(error) => {
                match error {
                    Error::TransactionAborted(why) if why.to_string() == ROLLED_BACK => {
                        self.ledger.happened(ROLLED_BACK)
                    }
                    Error::TransactionAborted(_) => self.ledger.happened(ABORTED),
                    Error::Conflict(_) => self.ledger.happened(CONFLICT),
                    Error::Overloaded(_) => self.ledger.happened(OVERLOADED),
                    _ => {}
                }
                End::NotDone
            }
        };
        self.ledger.ended(key, end);
        None
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
                let returning = format!("{insert} RETURNING draw, number");
                let mirror = "INSERT INTO mirrors (client, number, draw) VALUES (?, ?, ?)";
                let batch: [BatchStep; 4] = [
                    (returning, params![self.client, number, body]).into(),
                    (mirror, params![self.client, Step(0).column(1), Step(0).column("draw")]).into(),
                    (count, params![self.client]).into(),
                    self.words(number).into(),
                ];
                Ok((sql.batch(batch).await?.position, None))
            }
            Kind::Request => self.request(sql, number, body).await,
            Kind::Pipeline => self.pipeline(sql, number, body).await,
            Kind::Keys => self.keys(sql, number, body).await,
            Kind::Events => self.events(sql, number, body).await,
            Kind::Move => {
                let update = "UPDATE totals SET moves = moves + 1, moved = julianday('now') WHERE client = ?";
                Ok((sql.execute(update, (self.client,)).await?.position, None))
            }
            Kind::Transact => Ok((self.transact(sql).await?, None)),
            Kind::Interact => self.interact(sql, number, body).await,
            Kind::Broken => {
                let rows = [body, "broken".into()].map(|body| (self.client, number, body));
                if number % 3 == 0 {
                    // A foreign key without a parent row, which is detected only at the end of the entry.
                    let note = ("INSERT INTO notes (client, body) VALUES (-1, ?)", (number,));
                    return Ok((sql.batch([note]).await?.position, None));
                }
                if number % 3 == 1 {
                    return Ok((sql.execute_many(insert, rows).await?.position, None));
                }
                Ok((sql.batch(rows.map(|row| (insert, row))).await?.position, None))
            }
        }
    }

    /// Returns a bulk statement that inserts some rows of words.
    fn words(&self, number: i64) -> Bulk {
        let mut rows = RowPacker::new(1);
        for word in 0..=self.rng.below(20) {
            rows.push(ValueRef::Text(&format!("word{number} client{} {word}", self.client)));
            // Each row has its one value, so this can't fail.
            let _ = rows.end_row();
        }
        Bulk { sql: "INSERT INTO words SELECT ?1 || ' ' || hex(randomblob(4))".into(), rows: rows.finish() }
    }

    /// Returns a random text, mostly short, sometimes long, or NULL.
    fn body(&self) -> Value {
        let len = match self.rng.below(12) {
            0 => self.rng.below(6_000),
            1..8 => self.rng.below(120),
            _ => return Value::Null,
        };
        // The letters differ, so that the text does not compress to nothing.
        let letter = |_| char::from(b'a'.saturating_add(u8::try_from(self.rng.below(26)).unwrap_or(0)));
        Value::Text((0..len).map(letter).collect())
    }

    fn acknowledged(&self, key: Key, kind: Kind, position: Position, drawn: Option<i64>) {
        if kind == Kind::Broken {
            self.violation(format!("{key:?} violates a constraint, but was acknowledged at {position}"));
        }
        if !self.ledger.acknowledged(key, kind, drawn, position.index) {
            self.violation(format!("{key:?} was acknowledged at {position}, and so was another write"));
        }
    }

    /// Checks that a write which began after the last one had ended has a later position.
    fn follows(&self, key: Key, position: Position) {
        if self.last.is_some_and(|last| last >= position) {
            self.violation(format!("{key:?} was acknowledged at {position}, but an earlier write at {:?}", self.last));
        }
    }

    fn violation(&self, what: String) {
        self.cluster.history().violation(what);
    }
}
