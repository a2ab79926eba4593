//! Keeps an archive tidy: merges files and segments, so that a restore reads few, and deletes what is no longer needed.
//!
//! Files of one level are merged into one of the next. The files of the highest level, and the last snapshot, are
//! merged into a new snapshot once a day, so that older ones can go. All of this happens in the store: the database is
//! not read.
//!
//! Invariants:
//! - Nothing is deleted without which a state of the database that was promised can't be restored.
//! - An object is deleted after the manifest that does not list it is stored. So an archiver that was replaced deletes
//!   nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_env::lock;
use quorate_env::mutant::Mutant;

use super::{Archiver, Identity, next_after};
use crate::entries::Segment;
use crate::error::ArchiveError;
use crate::keys::parse_segment;
use crate::ltx::Level;
use crate::manifest::{File, Generation, Manifest};

/// The bytes of files that are merged, even if they are few.
const MERGE_BYTES: u64 = 64 << 20;

/// How many bytes of files for each byte of the table of checksums follow it before the next one is stored. Who takes
/// over reads these files.
const SUMS_RATIO: u64 = 4;

/// How often an archive is tidied up, and how. Only a simulation, in which time is short, changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tidying {
    /// How often the archive is tidied up, while it grows.
    pub every: Duration,
    /// For how long a merged file stays.
    pub linger: Duration,
    /// How old the last snapshot is when the next one is made.
    pub snapshot_every: Duration,
    /// How many files of the levels 0, 1 and 2 are merged into one of the next.
    pub fan: [usize; 3],
    /// How many files follow the last table of checksums before the next one is stored.
    pub sums_files: usize,
}

impl Default for Tidying {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(300),
            // A reader may be using the file, and stock Litestream's reader wants the files of the level 0 for 5
            // minutes.
            linger: Duration::from_secs(600),
            snapshot_every: Duration::from_secs(24 * 3600),
            // With a boundary each 30 s, a file of level 1 covers 5 minutes, one of level 2 an hour, and one of level 3
            // a day.
            fan: [10, 12, 24],
            sums_files: 60,
        }
    }
}

impl Archiver {
    /// Tidies up. States of the database that are older than `keep` at the time `now` (in milliseconds since 1970) are
    /// given up; `None` keeps everything. Does nothing if nothing was put since the last time.
    pub async fn tidy(&mut self, now: i64, keep: Option<Duration>) -> Result<(), ArchiveError> {
        self.settle().await?;
        self.merge_recent().await?;
        if self.chain.as_ref().is_none_or(|chain| chain.unlisted.is_empty()) {
            return Ok(());
        }
        // States may have been given up by hand meanwhile.
        self.check_token().await?;
        let Some(chain) = &self.chain else { return Ok(()) };
        let Some(current) = self.manifest.current().filter(|current| current.number == chain.generation) else {
            return Ok(());
        };
        let mut generation = current.clone();
        // A manifest that was stored without an answer may list some of them already.
        let listed = |file: &File| current.files.iter().any(|listed| listed.name() == file.name());
        generation.files.extend(chain.unlisted.iter().filter(|file| !listed(file)).cloned());
        self.merge_levels(&mut generation).await?;
        self.renew_snapshot(&mut generation, now).await?;
        self.renew_sums(&mut generation).await?;
        let before = self.manifest.clone();
        let tidied = Manifest { generations: with_current(&before, generation), ..before.clone() };
        let after = retained(tidied.clone(), now, keep, self.tidying.linger);
        self.replace_manifest(after.clone()).await?;
        if let Some(chain) = &mut self.chain {
            chain.unlisted.clear();
        }
        let mut gone = self.unlisted(&before, &after);
        gone.extend(self.unlisted(&tidied, &after));
        if keep.is_some() {
            gone.extend(self.old_segments(&before, &after).await?);
        }
        for key in gone {
            self.objects.delete(&key).await?;
        }
        Ok(())
    }

    /// Merges the segments that were put lately into one.
    pub(super) async fn merge_recent(&mut self) -> Result<(), ArchiveError> {
        let Some((first, entries, keys)) = lock(&self.recent).take() else { return Ok(()) };
        let Identity { cluster, epoch, .. } = self.identity;
        let segment = Segment { cluster, epoch, first, entries };
        let key = self.keys.segment(epoch, first, segment.last());
        let encoded = self.blocking(move || segment.encode()).await?;
        let bytes = encoded.map_err(|error| ArchiveError::damaged(&key, error.to_string()))?;
        self.objects.create(&key, bytes, None).await?;
        for small in keys.iter().filter(|small| **small != key) {
            self.objects.delete(small).await?;
        }
        Ok(())
    }

    /// Merges files of each level that are many, and not in a file of a higher level yet.
    async fn merge_levels(&mut self, generation: &mut Generation) -> Result<(), ArchiveError> {
        for (level, fan) in (0_u8..).zip(self.tidying.fan) {
            let covered = covered(&generation.files, level);
            let is_open = |file: &&File| file.level == level && file.max > covered;
            let mut inputs: Vec<_> = generation.files.iter().filter(is_open).cloned().collect();
            inputs.sort_by_key(|file| file.max);
            let bytes = inputs.iter().map(|file| file.length).fold(0, u64::saturating_add);
            if inputs.len() >= fan || (inputs.len() > 1 && bytes >= MERGE_BYTES) {
                let before = generation.files.iter().filter(|file| file.max <= covered).map(|file| file.index);
                let segments = self.segments().await?;
                for run in runs(inputs, before.max().unwrap_or(0), &segments) {
                    let merged = self.merge(generation.number, &run, level.saturating_add(1)).await?;
                    generation.files.push(merged);
                }
            }
        }
        Ok(())
    }

    /// Makes a new snapshot of the last one and what has been merged since.
    async fn renew_snapshot(&mut self, generation: &mut Generation, now: i64) -> Result<(), ArchiveError> {
        let is_merged = |file: &File| file.level > 0;
        let Some(chain) = Generation::chain(&generation.files, is_merged) else { return Ok(()) };
        let inputs: Vec<_> = chain.into_iter().cloned().collect();
        let is_due = inputs.first().is_some_and(|snapshot| age(snapshot, now) >= self.tidying.snapshot_every);
        if is_due && inputs.len() > 1 {
            let snapshot = self.merge(generation.number, &inputs, Level::SNAPSHOTS.number()).await?;
            generation.files.push(snapshot);
        }
        Ok(())
    }

    /// Stores the checksums of all pages, if reading the files since the last time would take longer.
    async fn renew_sums(&mut self, generation: &mut Generation) -> Result<(), ArchiveError> {
        let Some(chain) = &self.chain else { return Ok(()) };
        let since = generation.files.iter().filter(|file| file.level == 0 && file.max > generation.sums);
        let (files, bytes) = since.fold((0_usize, 0_u64), |(files, bytes), file| {
            (files.saturating_add(1), bytes.saturating_add(file.length))
        });
        let table = u64::from(chain.sums.pages()).saturating_mul(8);
        if files >= self.tidying.sums_files || bytes >= table.saturating_mul(SUMS_RATIO).max(MERGE_BYTES / 8) {
            self.put_sums(generation.number, chain.last, &chain.sums).await?;
            (generation.sums, generation.sums_index) = (chain.last, chain.index);
        }
        Ok(())
    }

    /// Returns the keys of the files that one manifest lists and a later one does not.
    pub(super) fn unlisted(&self, before: &Manifest, after: &Manifest) -> BTreeSet<String> {
        let kept = self.listed(after);
        self.listed(before).into_iter().filter(|key| !kept.contains(key)).collect()
    }

    /// Returns the keys of all files that a manifest lists.
    fn listed(&self, manifest: &Manifest) -> BTreeSet<String> {
        let keys = manifest.generations.iter().flat_map(|generation| {
            let names = generation.files.iter().filter_map(File::name);
            let files = names.map(|(level, name)| self.keys.file(generation.number, level, name));
            files.chain([self.keys.sums(generation.number, generation.sums)])
        });
        keys.collect()
    }

    /// Returns the keys of the segments whose entries all restorable states hold, or whose epoch has no more states.
    pub(super) async fn old_segments(
        &self,
        before: &Manifest,
        after: &Manifest,
    ) -> Result<BTreeSet<String>, ArchiveError> {
        let epochs: BTreeSet<_> = before.generations.iter().map(|generation| generation.epoch).collect();
        let mut old = BTreeSet::new();
        for epoch in epochs {
            let oldest = after.generations.iter().find(|generation| generation.epoch == epoch);
            let begin = oldest.map(|generation| generation.begin().map_or(0, |begin| begin.index));
            let is_old =
                |key: &str| begin.is_none_or(|begin| parse_segment(key).is_some_and(|(_, last)| last <= begin));
            let listed = self.objects.list(&self.keys.segments(epoch)).await?;
            old.extend(listed.into_iter().map(|object| object.key).filter(|key| is_old(key)));
        }
        Ok(old)
    }
}

/// Returns the generations of a manifest, with the current one replaced.
fn with_current(manifest: &Manifest, current: Generation) -> Vec<Generation> {
    let mut generations = manifest.generations.clone();
    generations.pop();
    generations.push(current);
    generations
}

/// Divides files into those that are merged into one. A file ends such a run if an entry before it, and after the file
/// before, is not archived: the entries that follow can only be applied to the state after that file. `before` is the
/// last entry before all of them.
fn runs(files: Vec<File>, mut before: u64, segments: &[(u64, u64)]) -> Vec<Vec<File>> {
    let mut runs = vec![Vec::new()];
    for file in files {
        let is_after_gap = next_after(segments, before.saturating_add(1)) <= file.index;
        before = file.index;
        if let Some(run) = runs.last_mut() {
            run.push(file);
        }
        if is_after_gap {
            runs.push(Vec::new());
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// Returns the last transaction of a level that files of higher levels hold. Snapshots don't count: with one, the
/// states between it and the one before could no longer be restored.
fn covered(files: &[File], level: u8) -> u64 {
    let merged = files.iter().filter(|file| file.level > level && file.level < Level::SNAPSHOTS.number());
    merged.map(|file| file.max).max().unwrap_or(0)
}

/// Returns how long ago the state after a file was that of the database.
fn age(file: &File, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(now.saturating_sub(file.time)).unwrap_or(0))
}

/// Takes out of a manifest what is not needed to restore the states of the last `keep`.
pub(super) fn retained(mut manifest: Manifest, now: i64, keep: Option<Duration>, linger: Duration) -> Manifest {
    for generation in &mut manifest.generations {
        let files = std::mem::take(&mut generation.files);
        // Who takes over reads the files of level 0 after the table of checksums.
        let sums = generation.sums;
        let is_used = |file: &File| file.level == 0 && file.max > sums;
        let is_merged = |file: &File| {
            let is_covered = file.level < Level::SNAPSHOTS.number() && file.max <= covered(&files, file.level);
            is_covered && !is_used(file) && age(file, now) >= linger
        };
        let is_snapshot = |file: &&File| file.min == 1;
        let is_old = |file: &&File| keep.is_some_and(|keep| age(file, now) >= keep);
        let base = files.iter().filter(is_snapshot).filter(is_old).map(|file| file.max).max().unwrap_or(0);
        let keeps_base = !Mutant::ChainCutByRetention.is_on();
        let is_after = |file: &File| file.max > base || (file.min == 1 && file.max == base && keeps_base);
        let is_needed = |file: &File| is_used(file) || (!is_merged(file) && is_after(file));
        let kept: Vec<_> = files.iter().filter(|file| is_needed(file)).collect();
        // An archiver would merge what stays once more, into a file of the same name.
        let is_within =
            |inner: &&File, outer: &File| inner.level < outer.level && inner.min >= outer.min && inner.max <= outer.max;
        let is_remade =
            |file: &File| file.level < Level::SNAPSHOTS.number() && kept.iter().any(|inner| is_within(inner, file));
        let stays = |file: &&File| is_needed(file) || is_remade(file);
        generation.files = files.iter().filter(stays).cloned().collect();
    }
    let begins_old = |generation: &Generation| {
        keep.is_some_and(|keep| generation.begin().is_some_and(|begin| age(begin, now) >= keep))
    };
    // A generation is needed until the one after it reaches back far enough.
    let base = manifest.generations.iter().rposition(begins_old).unwrap_or(0);
    manifest.generations.drain(..base);
    manifest
}
