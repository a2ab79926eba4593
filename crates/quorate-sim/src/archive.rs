//! The archive of a simulated cluster: one store in memory for all nodes, what goes wrong with it, and what nodes have
//! told about it.
//!
//! Invariants:
//! - Its randomness is a stream of its own, so a seed without an archive gives the same events as before there was any.
//! - A request goes on when the node that made it is dead, as one that is on its way does.
//! - What a node has told as archived can be restored, at any later time, also if all nodes are lost at that time.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use quorate::Status;
use quorate::archive::objects::Memory;
use quorate::archive::{Archive, Manifest, Objects, Sizes, Tidying};
use quorate_env::{Env, Rng, lock};
use quorate_env_sim::SimWorld;

use self::door::Door;
use self::promises::{Happened, Promises};
use self::weather::Weather;
use crate::coverage::{ARCHIVE_MERGED, ARCHIVER_CHANGED, GENERATION, RESTORED};
use crate::history::History;

mod door;
mod promises;
mod restores;
mod weather;

/// Distinguishes the stream of randomness of the archive from others of the same seed.
const STREAM: u64 = 0x6172_6368_6976_6573;

/// The host of the store.
const STORE: &str = "objects";

/// The part of the seeds whose cluster is archived, and the part of these in which all nodes run the current version
/// from the beginning: until they do, there is no archiver.
const ARCHIVED: f64 = 0.5;
const ALL_CURRENT: f64 = 0.75;

/// The part of the archives that do not keep all states.
const FORGETS: f64 = 0.4;

/// The largest file that is created by one request, and what is built of a longer one at once, in bytes: so small that
/// generations begin often, and that much happens while a snapshot is written.
const FILE_BYTES: [usize; 3] = [32 << 10, 128 << 10, 128 << 20];
const PIECE_BYTES: [usize; 3] = [4 << 10, 32 << 10, 8 << 20];

/// The part of the rounds of faults after which the archive is examined.
const EXAMINED: f64 = 0.08;

/// The archive of a cluster. Clones are the same one.
#[derive(Clone)]
pub struct SimArchive(Arc<Inner>);

struct Inner {
    history: History,
    /// The environment of the store's host.
    host: Env,
    store: Memory,
    weather: Arc<Mutex<Weather>>,
    rng: Rng,
    promises: Mutex<Promises>,
    settings: Settings,
}

/// What the nodes' configuration says about the archive.
struct Settings {
    interval: Duration,
    boundary: Duration,
    keep: Option<Duration>,
    tidying: Tidying,
    sizes: Sizes,
    is_current: bool,
}

impl Settings {
    /// Times are short, as the faults are, and `calm` times longer if these are.
    fn draw(rng: &Rng, calm: u32) -> Self {
        let within = |millis: RangeInclusive<u64>| {
            let drawn = millis.start() + rng.below(millis.end() - millis.start() + 1);
            Duration::from_millis(drawn) * calm
        };
        let tidying = Tidying {
            every: within(500..=4_000),
            linger: within(100..=3_000),
            snapshot_every: within(2_000..=12_000),
            fan: [3, 3, 3],
            sums_files: 2 + usize::try_from(rng.below(10)).unwrap_or(0),
        };
        let keep = rng.chance(FORGETS).then(|| within(3_000..=15_000));
        let (interval, boundary) = (within(50..=200), within(300..=2_000));
        let is_current = rng.chance(ALL_CURRENT);
        let sizes = Sizes { file: size(rng, FILE_BYTES), piece: size(rng, PIECE_BYTES) };
        Self { interval, boundary, keep, tidying, sizes, is_current }
    }
}

impl SimArchive {
    /// Draws whether a cluster is archived, and how.
    pub fn draw(world: &SimWorld, history: &History, calm: u32) -> Option<Self> {
        let rng = Rng::from_seed(world.seed() ^ STREAM);
        if !rng.chance(ARCHIVED) {
            return None;
        }
        let (settings, weather) = (Settings::draw(&rng, calm), Arc::new(Mutex::new(Weather::draw(rng.fork()))));
        let (store, host, history) = (Memory::new(), world.node(STORE), history.clone());
        let troubles = Arc::clone(&weather);
        store.set_troubles(move |_, _| lock(&troubles).trouble());
        Some(Self(Arc::new(Inner { history, host, store, weather, rng, promises: Mutex::default(), settings })))
    }

    /// Returns the configuration of a node.
    pub fn config(&self, name: &str) -> Archive {
        let Inner { history, host, store, settings, .. } = &*self.0;
        let door = Door::new(name, host.clone(), store.clone(), history.clone());
        let mut archive = Archive::new(Arc::new(door))
            .with_interval(settings.interval)
            .with_boundary(settings.boundary)
            .with_keep(settings.keep);
        (archive.tidying, archive.sizes) = (settings.tidying, settings.sizes);
        archive
    }

    /// Whether all nodes run the current version from the beginning.
    pub fn is_of_current(&self) -> bool {
        self.0.settings.is_current
    }

    /// Sets whether much goes wrong with the store.
    pub fn storm(&self, is_storm: bool) {
        lock(&self.0.weather).storm(is_storm);
    }

    /// From now on nothing goes wrong with the store.
    pub fn calm(&self) {
        self.0.store.end_troubles();
    }

    /// Draws whether the archive is to be examined now.
    pub fn is_due(&self) -> bool {
        self.0.rng.chance(EXAMINED)
    }

    /// Takes note of what a node tells about the archive.
    pub fn told(&self, status: &Status) {
        if let Some(archive) = status.archive.as_ref().filter(|archive| archive.archived_index > 0) {
            lock(&self.0.promises).told(archive.boundary_index, archive.archived_index);
        }
    }

    /// Returns the token of the archiver that has last taken over the archive.
    pub fn token(&self) -> u64 {
        lock(&self.0.promises).token()
    }

    /// Returns what happened, and how often.
    pub fn happenings(&self) -> [(&'static str, u64); 4] {
        let promises = lock(&self.0.promises);
        let Happened { restored, changed, generations, merged } = promises.happened;
        [(RESTORED, restored), (ARCHIVER_CHANGED, changed), (GENERATION, generations), (ARCHIVE_MERGED, merged)]
    }

    /// Checks that the manifest of the archive never goes back.
    pub fn look(&self) {
        let manifest = self.0.store.contents().into_iter().find(|(key, _)| key.ends_with(MANIFEST));
        let manifest = manifest.and_then(|(_, bytes)| serde_json::from_slice::<Manifest>(&bytes).ok());
        if let Some(Err(what)) = manifest.map(|manifest| lock(&self.0.promises).seen(&manifest)) {
            self.0.history.violation(what);
        }
    }

    /// Returns a copy of the store as it is at this moment, with which nothing goes wrong.
    async fn copy(&self) -> Arc<dyn Objects> {
        copied(self.0.store.contents()).await
    }
}

/// The end of the key of a manifest.
const MANIFEST: &str = "/archive.json";

/// Returns a store with these objects.
async fn copied(objects: impl IntoIterator<Item = (String, Bytes)>) -> Arc<dyn Objects> {
    let copy = Memory::new();
    for (key, bytes) in objects {
        // Nothing goes wrong with a store in memory unless that is ordered.
        let _ = copy.create(&key, bytes, None).await;
    }
    Arc::new(copy)
}

/// Draws one of these sizes.
fn size(rng: &Rng, sizes: [usize; 3]) -> usize {
    sizes.get(usize::try_from(rng.below(3)).unwrap_or(0)).copied().unwrap_or(usize::MAX)
}

/// Returns the indexes of what was drawn from so many.
fn some_of(rng: &Rng, count: usize, most: usize) -> BTreeSet<usize> {
    (0..most.min(count)).filter_map(|_| usize::try_from(rng.below(count as u64)).ok()).collect()
}
