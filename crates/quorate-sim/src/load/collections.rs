//! Clients that write and read a few hashes and sorted sets, which others write at the same time.
//!
//! # Invariants
//!
//! - Each entry that writes a collection also adds rows that say what the collection holds then. So the end of a run
//!   shows what each entry did, whatever the clients got.
//! - Their randomness is a stream of its own, and half of the seeds have no such clients: those give the same events as
//!   before there were any.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quorate::keys::{Change, InRange, KeyInfo, Replies, SortedSet};
use quorate::sql::BatchStep;
use quorate::{Error, Keys, Level, Sql, params};
use quorate_env::{Rng, sleep};
use quorate_env_sim::SimWorld;
use quorate_model::keys::MEMBER_EXPIRY_LEVEL;

use super::WRITE_LIMIT;
use super::cells::is_in_doubt;
use crate::cluster::Cluster;
use crate::coverage::{COLLECTION_READ, FIELD_EXPIRED, HASH, MEMBER_EXPIRED, SORTED_SET};
use crate::ledger::Ledger;
use crate::ledger::collections::{
    Action, Answer, CollectionEnd, CollectionRow, Collections, FILLERS, SHOWN, Seen, filler,
};

/// Distinguishes the stream of randomness of these clients from others of the same seed.
const STREAM: u64 = 0x656c_656d_656e_7473;

/// The part of the seeds that have such clients.
const PART: f64 = 0.5;

/// How many of them there are.
const CLIENTS: u64 = 2;

/// The collections: two hashes, and two sorted sets, of which the last has so many members that blocks count them.
const COLLECTIONS: i64 = 4;
const FIRST_SORTED: i64 = 2;
const LARGE: i64 = 3;

/// How many elements there are that rows name.
const ELEMENTS: u64 = 6;

/// The table of the rows: one for a collection, without an element, that has the number of elements and the version of
/// the key; and one for each element.
const TABLE: &str = "CREATE TABLE collections (number INTEGER NOT NULL, element TEXT, value INTEGER NOT NULL,
    version INTEGER, expires INTEGER, now INTEGER NOT NULL)";

/// Adds the rows of a hash.
const ADD_HASH: &str = "WITH h AS MATERIALIZED (SELECT * FROM quorate_hashes WHERE space = 0 AND key = ?2)
    INSERT INTO collections SELECT ?1, element, value, version, expires,
        CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER)
    FROM (SELECT NULL AS element, (SELECT count(*) FROM h) AS value,
            (SELECT version FROM quorate_keys WHERE space = 0 AND key = ?2) AS version, NULL AS expires
        UNION ALL SELECT CAST(field AS TEXT), CAST(value AS INTEGER), version,
            CAST(round(unixepoch(expires_at, 'subsec') * 1000) AS INTEGER) FROM h)
    ORDER BY element";

/// Adds the rows of a sorted set, but for those members that only fill it.
const ADD_SORTED: &str = "WITH z AS MATERIALIZED (SELECT * FROM quorate_sorted_sets WHERE space = 0 AND key = ?2)
    INSERT INTO collections SELECT ?1, element, value, version, expires,
        CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER)
    FROM (SELECT NULL AS element, (SELECT count(*) FROM z) AS value,
            (SELECT version FROM quorate_keys WHERE space = 0 AND key = ?2) AS version, NULL AS expires
        UNION ALL SELECT CAST(member AS TEXT), CAST(score AS INTEGER), NULL,
            CAST(round(unixepoch(expires_at, 'subsec') * 1000) AS INTEGER) FROM z WHERE member < x'66')
    ORDER BY element";

/// The longest pause between two steps, in milliseconds.
const PAUSE_MILLIS: u64 = 300;

/// The shortest and the longest time after which an element expires, in milliseconds.
const EXPIRES_MILLIS: (u64, u64) = (50, 2_500);

/// At most so long after the expiry of an element its client adds to it, in milliseconds: mostly before it is swept.
const AFTER_MILLIS: u64 = 20;

/// A client.
struct CollectionClient {
    cluster: Cluster,
    ledger: Ledger,
    collections: Collections,
    rng: Rng,
    stop: Arc<AtomicBool>,
    calm: u64,
    /// Whether it has filled the large sorted set, which is the first that it does to it.
    has_filled: bool,
}

/// Creates the table, if the seed has such clients.
pub(super) async fn prepare(sql: &Sql, world: &SimWorld) -> Result<(), Error> {
    if stream(world).is_some() {
        sql.execute(TABLE, ()).await?;
    }
    Ok(())
}

/// Returns the clients to run.
pub(super) fn clients(
    cluster: &Cluster,
    ledger: &Ledger,
    stop: &Arc<AtomicBool>,
    calm: u32,
) -> Vec<impl Future<Output = ()> + Send + 'static> {
    let rng = stream(cluster.world());
    let client = |rng: &Rng| CollectionClient {
        cluster: cluster.clone(),
        ledger: ledger.clone(),
        collections: ledger.collections(),
        rng: rng.fork(),
        stop: Arc::clone(stop),
        calm: calm.into(),
        has_filled: false,
    };
    rng.iter().flat_map(|rng| (0..CLIENTS).map(move |_| client(rng).run())).collect()
}

/// Reads the rows in the order in which they were written.
pub(super) async fn held(sql: &Sql, world: &SimWorld) -> Result<Vec<CollectionRow>, Error> {
    if stream(world).is_none() {
        return Ok(Vec::new());
    }
    sql.query_as("SELECT number, element, value, version, expires, now FROM collections ORDER BY rowid", ()).await
}

/// Returns the randomness of the clients, if the seed has such clients.
fn stream(world: &SimWorld) -> Option<Rng> {
    let rng = Rng::from_seed(world.seed() ^ STREAM);
    rng.chance(PART).then_some(rng)
}

impl CollectionClient {
    async fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS * self.calm))).await;
            if !self.cluster.statuses().iter().any(|status| status.format_level >= MEMBER_EXPIRY_LEVEL) {
                continue;
            }
            let collection = self.rng.below(COLLECTIONS.unsigned_abs()).cast_signed();
            match self.rng.below(10) {
                0 | 1 => self.read(collection).await,
                _ if collection < FIRST_SORTED => self.step_hash(collection).await,
                _ => self.step_sorted(collection).await,
            }
        }
    }

    /// Returns the handle of a random node, if that node serves.
    fn some_node(&self) -> Option<Sql> {
        let names = self.cluster.names();
        let name = names.get(usize::try_from(self.rng.below(names.len() as u64)).unwrap_or(0))?;
        Some(self.cluster.sql(name)?.with_deadline(WRITE_LIMIT))
    }

    fn some_element(&self) -> String {
        format!("e{}", self.rng.below(ELEMENTS))
    }

    /// Writes a field of a hash. Often adds to it about when it expires.
    async fn step_hash(&self, collection: i64) {
        let (element, millis) = (self.some_element(), self.some_millis());
        let action = match self.rng.below(8) {
            0 | 1 => Action::Set { expires_in: None },
            2 => Action::Set { expires_in: Some(millis.cast_signed()) },
            3 | 4 => Action::Expire { millis: millis.cast_signed() },
            5 => Action::Remove,
            _ => Action::Add(1),
        };
        self.write(collection, &element, action).await;
        if matches!(action, Action::Set { expires_in: Some(_) } | Action::Expire { .. }) && self.rng.below(3) > 0 {
            self.about_when_it_expires(millis).await;
            self.ledger.happened(FIELD_EXPIRED);
            self.write(collection, &element, Action::Add(1)).await;
        }
    }

    fn some_millis(&self) -> u64 {
        let (least, most) = EXPIRES_MILLIS;
        least + self.rng.below(most - least)
    }

    /// Waits until some time before an element expires, or until shortly after that.
    async fn about_when_it_expires(&self, millis: u64) {
        let is_early = self.rng.below(2) == 0;
        let pause = if is_early { self.rng.below(millis) } else { millis + self.rng.below(AFTER_MILLIS) };
        sleep(Duration::from_millis(pause)).await;
    }

    /// Writes a member of a sorted set. Scores are often equal, and go through all blocks of the large one. Often
    /// writes another member about when one expires, so that its rank shows whether the former counts.
    async fn step_sorted(&mut self, collection: i64) {
        let is_filler = collection == LARGE && self.rng.below(3) == 0;
        let element = if is_filler { filler(self.rng.below(FILLERS)) } else { self.some_element() };
        let scores = if collection == LARGE { FILLERS } else { ELEMENTS / 2 };
        let (score, millis) = (self.rng.below(scores).cast_signed(), self.some_millis());
        let action = match self.rng.below(10) {
            _ if collection == LARGE && !self.has_filled => Action::Fill,
            0 if collection == LARGE => Action::Fill,
            0..3 => Action::Score(score),
            3..5 => Action::Remove,
            5..8 if !is_filler => Action::Expire { millis: millis.cast_signed() },
            _ => Action::Add(score - scores.cast_signed() / 2),
        };
        self.has_filled |= action == Action::Fill;
        self.write(collection, &element, action).await;
        if matches!(action, Action::Expire { .. }) {
            self.about_when_it_expires(millis).await;
            self.ledger.happened(MEMBER_EXPIRED);
            let (element, highest) = (self.some_element(), scores.cast_signed());
            self.write(collection, &element, Action::Score(highest)).await;
        }
    }

    /// Writes an element by a batch of keys and SQL.
    async fn write(&self, collection: i64, element: &str, action: Action) {
        let Some(sql) = self.some_node() else { return };
        let (keys, is_hash) = (sql.keys(), collection < FIRST_SORTED);
        let number = self.collections.begin(collection, is_hash, element, action);
        let describe = keys.describe(name_of(collection)).into();
        let mut steps = vec![command(&keys, collection, number, element, action), row(number, collection), describe];
        if is_hash {
            steps.push(keys.hash(name_of(collection)).get_each(elements()).into());
        } else {
            let set = keys.sorted_set(name_of(collection));
            steps.extend([first_from(&set, 0).into(), set.rank(element).into()]);
        }
        let done = sql.batch(steps).await.map(|done| CollectionEnd::Done(answer(&done.replies, is_hash)));
        self.cluster.world().trace().add("collections", format_args!("{number} {done:?}"));
        if done.is_ok() {
            self.ledger.happened(if is_hash { HASH } else { SORTED_SET });
        }
        let end = done.unwrap_or_else(|error| {
            let what = format_args!("write {number} of a collection");
            if is_in_doubt(&self.cluster, what, &error) { CollectionEnd::Unknown } else { CollectionEnd::NotDone }
        });
        self.collections.ended(number, end);
    }

    /// Reads a collection; at the end it is compared with the states that it may have shown.
    async fn read(&self, collection: i64) {
        let Some(sql) = self.some_node() else { return };
        let (floor, keys) = (self.collections.floor(collection), sql.keys().at(Level::Linearizable));
        let set = keys.sorted_set(name_of(collection));
        let seen = if collection < FIRST_SORTED {
            let values = keys.hash(name_of(collection)).get_each(elements()).await;
            values.map(|values| Seen::Fields(named(values)))
        } else if self.rng.below(2) == 0 {
            let element = self.some_element();
            let rank = set.rank(element.as_str()).await;
            rank.map(|rank| Seen::Rank(element, rank.map(|(rank, score)| (rank, whole(score)))))
        } else {
            let start = if collection == LARGE { self.rng.below(FILLERS) } else { 0 };
            let members = first_from(&set, start).await;
            members.map(|members| Seen::Ranks(start, scored(members)))
        };
        if let Ok(seen) = seen {
            self.collections.saw(collection, floor, seen);
            self.ledger.happened(COLLECTION_READ);
        }
    }
}

fn command(keys: &Keys, collection: i64, number: i64, element: &str, action: Action) -> BatchStep {
    let (hash, set) = (keys.hash(name_of(collection)), keys.sorted_set(name_of(collection)));
    let millis = |millis: i64| Duration::from_millis(millis.unsigned_abs());
    match action {
        Action::Set { expires_in: None } => hash.set([(element, number.to_string())]).into(),
        Action::Set { expires_in: Some(after) } => {
            hash.set([(element, number.to_string())]).expires(millis(after)).into()
        }
        Action::Expire { millis: after } if collection < FIRST_SORTED => hash.expire([element], millis(after)).into(),
        Action::Expire { millis: after } => set.expire([element], millis(after)).into(),
        Action::Add(by) if collection < FIRST_SORTED => hash.increment(element, by).into(),
        Action::Remove if collection < FIRST_SORTED => hash.remove([element]).into(),
        Action::Add(by) => set.increment(element, score(by)).into(),
        Action::Remove => set.remove([element]).into(),
        Action::Score(to) => set.add([(score(to), element)]).into(),
        Action::Fill => set.add((0..FILLERS).map(|number| (score(number.cast_signed()), filler(number)))).into(),
    }
}

fn row(number: i64, collection: i64) -> BatchStep {
    let add = if collection < FIRST_SORTED { ADD_HASH } else { ADD_SORTED };
    (add, params![number, name_of(collection).into_bytes()]).into()
}

/// The members from a rank on that are shown.
fn first_from(set: &SortedSet, start: u64) -> InRange {
    set.by_rank(start.cast_signed(), i64::MAX).limit(SHOWN as u64)
}

/// Reads what a write was told; -1 for a number that is not there.
fn answer(replies: &Replies, is_hash: bool) -> Answer {
    let number = replies.get::<i64>(0).or_else(|| replies.get::<f64>(0).map(whole));
    let changes = || replies.get::<Vec<Change>>(0).map(|changes| i64::from(changes == [Change::Done]));
    let count = || replies.get::<u64>(0).map(u64::cast_signed);
    let version = replies.get::<Option<KeyInfo>>(2).flatten().map(|info| info.version);
    let shown = if is_hash { replies.get(3).map(named) } else { replies.get(3).map(scored) };
    let rank = replies.get::<Option<(u64, f64)>>(4).flatten().map(|(rank, _)| rank);
    Answer {
        told: number.or_else(changes).or_else(count).unwrap_or(-1),
        version,
        shown: shown.unwrap_or_default(),
        rank,
    }
}

/// Returns the fields that have values.
fn named(values: Vec<Option<Bytes>>) -> Vec<(String, i64)> {
    let number = |value: Bytes| std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()).unwrap_or(-1);
    elements().zip(values).filter_map(|(element, value)| Some((element, number(value?)))).collect()
}

fn scored(members: Vec<(Bytes, f64)>) -> Vec<(String, i64)> {
    members.into_iter().map(|(member, score)| (String::from_utf8_lossy(&member).into_owned(), whole(score))).collect()
}

fn elements() -> impl Iterator<Item = String> {
    (0..ELEMENTS).map(|element| format!("e{element}"))
}

fn name_of(collection: i64) -> String {
    format!("collection:{collection}")
}

/// Scores are whole numbers, so small that a float holds them exactly.
#[expect(clippy::cast_possible_truncation, reason = "scores are small whole numbers")]
fn whole(score: f64) -> i64 {
    score as i64
}

#[expect(clippy::cast_precision_loss, reason = "scores are small whole numbers")]
fn score(whole: i64) -> f64 {
    whole as f64
}
