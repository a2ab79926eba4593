//! Restores from the archive, and compares the results with the history.
//!
//! Invariant: the archive is examined as it was at one moment, so nothing that happens meanwhile excuses a failure.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate::archive::{FetchOptions, Fetched, Generation, Manifest, Objects, Target, clusters, fetch, manifest};
use quorate_env::{Env, Rng, lock};
use quorate_env_sim::SimWorld;
use quorate_sql::records::applied_row;
use quorate_sql::{connection, logical_hash};

use super::promises::Promises;
use super::{Inner, MANIFEST, SimArchive, copied, some_of};
use crate::history::State;
use crate::program;
use crate::vfs::{self, Slot};

/// The host that restores, and the directory of what it restores.
const HOST: &str = "restorer";
const DIR: &str = "/restored";

/// The place of a program in the list of nodes that is none of them, so that no statement ails.
const NO_PLACE: usize = 60;

/// How many states are restored of each kind: with known contents, in the promised ranges, at the begin of generations,
/// and at the end of former generations.
const KNOWN: usize = 4;
const PROMISED: usize = 3;
const BEGINS: usize = 2;
const ENDS: usize = 2;

/// A host that restores.
struct Restorer {
    env: Env,
    vfs: Option<String>,
    _slot: Slot,
}

impl SimArchive {
    /// Examines the archive as it is now: what nodes have told as archived can be restored, and is what they hold.
    ///
    /// The error says what is wrong.
    pub async fn examine(&self, world: &SimWorld) -> Result<(), String> {
        let (objects, promises) = (self.copy().await, lock(&self.0.promises).clone());
        let last = promises.last();
        let Some((cluster, manifest)) = read(&objects).await? else {
            return none_for(last);
        };
        let Some(begin) = manifest.generations.first().and_then(Generation::begin) else {
            return none_for(last);
        };
        let keys = self.0.store.contents();
        promises.check(keys.keys(), begin.index)?;
        let restorer = Restorer::start(world, &self.0.rng)?;
        let latest = self.restore(&restorer, &objects, Target::Latest).await?;
        if latest < last {
            return Err(format!("entry {last} was told as archived, and the last that can be restored is {latest}"));
        }
        for index in self.indexes(&manifest, &promises, begin.index) {
            let done = self.restore_entry(&restorer, &objects, index).await;
            done.map_err(|what| format!("{what}; {}; {}", promises.about(index), about(&manifest)))?;
        }
        let former = manifest.generations.len().saturating_sub(1);
        for at in some_of(&self.0.rng, former, ENDS) {
            let (before, index) = before(&objects, cluster, &manifest, at).await?;
            self.restore_entry(&restorer, &before, index).await?;
        }
        Ok(())
    }

    /// Draws entries the states after which can be restored if the archive keeps its promises.
    fn indexes(&self, manifest: &Manifest, promises: &Promises, begin: u64) -> Vec<u64> {
        let Inner { rng, history, .. } = &*self.0;
        let ranges: Vec<(u64, u64)> = promises.from(begin).collect();
        let is_promised = |index: &u64| ranges.iter().any(|(from, to)| from <= index && index <= to);
        let known: Vec<u64> = history.sampled().into_iter().filter(is_promised).collect();
        let begins: Vec<u64> =
            manifest.generations.iter().filter_map(Generation::begin).map(|file| file.index).collect();
        let mut indexes = Vec::new();
        for (from, most) in [(&known, KNOWN), (&begins, BEGINS)] {
            indexes.extend(some_of(rng, from.len(), most).into_iter().filter_map(|at| from.get(at)));
        }
        for at in some_of(rng, ranges.len(), PROMISED) {
            indexes.extend(ranges.get(at).map(|(from, to)| from + rng.below(to - from + 1)));
        }
        indexes
    }

    async fn restore_entry(&self, restorer: &Restorer, objects: &Arc<dyn Objects>, index: u64) -> Result<(), String> {
        let restored = self.restore(restorer, objects, Target::Entry(index)).await?;
        if restored != index {
            return Err(format!("entry {index} was to be restored, and {restored} was"));
        }
        Ok(())
    }

    /// Restores a state, and compares it with what is known of it. Returns the last entry in it.
    async fn restore(&self, restorer: &Restorer, objects: &Arc<dyn Objects>, target: Target) -> Result<u64, String> {
        let (fetched, state) = restorer.restore(objects, target, self.0.rng.chance(0.5)).await?;
        let index = fetched.position.index;
        lock(&self.0.promises).happened.restored += 1;
        // A node that was lost may have applied what an operator has rejected since.
        if !self.0.history.is_forced() {
            self.0.history.state(&format!("the archive from {} on", fetched.boundary), index, state);
        }
        Ok(index)
    }
}

impl Restorer {
    /// Starts the host, with an empty disk for what it restores.
    fn start(world: &SimWorld, rng: &Rng) -> Result<Self, String> {
        let env = world.node(HOST);
        let clock = Arc::new(world.clock(HOST));
        let slot = vfs::bind(&world.disk(HOST), clock, rng.fork()).map_err(|error| error.to_string())?;
        env.disk().create_dir_all(Path::new(DIR)).map_err(|error| error.to_string())?;
        let vfs = env.disk().sqlite_vfs();
        Ok(Self { env, vfs, _slot: slot })
    }

    async fn restore(
        &self,
        objects: &Arc<dyn Objects>,
        target: Target,
        is_plain: bool,
    ) -> Result<(Fetched, State), String> {
        let failed = |what: String| format!("the archive can't restore {target:?}: {what}");
        let path = PathBuf::from(DIR).join("database");
        let mut options = FetchOptions::default();
        options.target = Some(target);
        options.is_plain = is_plain;
        options.extensions = program::extensions(true, NO_PLACE, |_| {});
        let (objects, file) = (Arc::clone(objects), path.clone());
        let fetched = self.env.spawn(async move { fetch(&objects, file, &options).await });
        let fetched = fetched.await.map_err(|error| failed(error.to_string()))?;
        let fetched = fetched.map_err(|error| failed(error.to_string()))?;
        let state = self.state(&path).map_err(failed)?;
        self.env.disk().remove_file(&path).map_err(|error| failed(error.to_string()))?;
        Ok((fetched, state))
    }

    /// Reads the hashes of a database.
    fn state(&self, path: &Path) -> Result<State, String> {
        let vfs = self.vfs.as_deref().ok_or("the disk has no VFS")?;
        let conn = connection::open_plain(vfs, path);
        let conn = conn.map_err(|error| error.to_string())?;
        let row = applied_row::read(&conn).map_err(|error| error.to_string())?.ok_or("it has no applied row")?;
        let user = logical_hash::user(&conn).map_err(|error| error.to_string())?;
        let reserved = logical_hash::reserved(&conn).map_err(|error| error.to_string())?;
        Ok(State { outcomes: row.outcome_hash, user, reserved, archiver: row.archiver })
    }
}

/// Reads the manifest of the one cluster in a store; `None` if there is none.
async fn read(objects: &Arc<dyn Objects>) -> Result<Option<(u128, Manifest)>, String> {
    let clusters = clusters(&**objects).await.map_err(|error| error.to_string())?;
    let cluster = match clusters.as_slice() {
        [] => return Ok(None),
        [cluster] => *cluster,
        several => return Err(format!("there are archives of {} clusters", several.len())),
    };
    let found = manifest(&**objects, cluster).await.map_err(|error| error.to_string())?;
    Ok(found.map(|manifest| (cluster, manifest)))
}

/// Returns which boundaries a manifest lists.
fn about(manifest: &Manifest) -> String {
    let of = |generation: &Generation| {
        let files = generation.files.iter().map(|file| format!("{}-{} with {}", file.min, file.max, file.index));
        format!("generation {}: {}", generation.number, files.collect::<Vec<_>>().join(", "))
    };
    manifest.generations.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// Judges an archive without any state.
fn none_for(last: u64) -> Result<(), String> {
    if last == 0 { Ok(()) } else { Err(format!("entry {last} was told as archived, and no state can be restored")) }
}

/// Returns a store whose manifest ends with the generation at a place, and the last entry in that.
async fn before(
    objects: &Arc<dyn Objects>,
    cluster: u128,
    manifest: &Manifest,
    at: usize,
) -> Result<(Arc<dyn Objects>, u64), String> {
    let mut manifest = manifest.clone();
    manifest.generations.truncate(at + 1);
    let files = manifest.current().into_iter().flat_map(|generation| &generation.files);
    let last = files.map(|file| file.index).max().ok_or("a generation has no files")?;
    let bytes = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
    let key = format!("{cluster:032x}{MANIFEST}");
    let mut all = vec![(key.clone(), bytes.into())];
    for object in objects.list(&format!("{cluster:032x}/")).await.map_err(|error| error.to_string())? {
        if object.key != key {
            let read = objects.read(&object.key, None).await.map_err(|error| error.to_string())?;
            all.extend(read.map(|read| (object.key, read.bytes)));
        }
    }
    Ok((copied(all).await, last))
}
