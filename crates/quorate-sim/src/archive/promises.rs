//! What nodes have told about the archive, and what follows from it.
//!
//! Invariant: all of it stays true. Only the states that the archive need not keep may go.

use std::collections::BTreeMap;

use quorate::archive::Manifest;

/// What was told, and what the manifest was last.
#[derive(Clone, Default)]
pub(super) struct Promises {
    /// By the last entry in a boundary, the last entry up to which all entries after it are archived.
    ranges: BTreeMap<u64, u64>,
    /// The token in the manifest, and how many generations were begun.
    seen: (u64, u32),
    pub happened: Happened,
}

/// How often something happened.
#[derive(Clone, Copy, Default)]
pub(super) struct Happened {
    /// A state was restored.
    pub restored: u64,
    /// Another archiver took over.
    pub changed: u64,
    /// Generations after the first.
    pub generations: u64,
    /// The most snapshots in a manifest that were made by merging.
    pub merged: u64,
}

impl Promises {
    /// Takes note of the last boundary, and of the last archived entry.
    pub fn told(&mut self, boundary: u64, archived: u64) {
        let last = self.ranges.entry(boundary).or_default();
        *last = archived.max(*last);
    }

    /// Returns the token in the manifest.
    pub fn token(&self) -> u64 {
        self.seen.0
    }

    /// Compares the manifest with what it was before.
    pub fn seen(&mut self, manifest: &Manifest) -> Result<(), String> {
        let now = (manifest.token, manifest.generations_begun);
        if now.0 < self.seen.0 || now.1 < self.seen.1 {
            return Err(format!("the manifest's token and generations are {now:?}, and were {:?}", self.seen));
        }
        self.happened.changed += u64::from(self.seen.0 > 0 && self.seen.0 != now.0);
        self.happened.generations = u64::from(now.1.saturating_sub(1));
        let files = manifest.generations.iter().flat_map(|generation| &generation.files);
        let merged = files.filter(|file| file.min == 1 && file.max > 1).count() as u64;
        self.happened.merged = self.happened.merged.max(merged);
        self.seen = now;
        Ok(())
    }

    /// Returns the last entry that was told as archived; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.ranges.values().copied().max().unwrap_or(0)
    }

    /// Returns the ranges of entries, at least two of them, that can all be restored, from `begin` on.
    pub fn from(&self, begin: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ranges = self.ranges.iter().map(move |(boundary, last)| ((*boundary).max(begin), *last));
        ranges.filter(|(from, to)| from < to)
    }

    /// Returns a text that says which promise includes an entry.
    pub fn about(&self, index: u64) -> String {
        let of = self.ranges.iter().filter(|(boundary, last)| **boundary <= index && index <= **last);
        let told = of.map(|(boundary, last)| format!("{last} with a boundary at {boundary}"));
        format!("told as archived: {}", told.collect::<Vec<_>>().join(", "))
    }

    /// Checks that the archive has all entries after a boundary that it should have. `keys` are those of the store, and
    /// `begin` is the last entry in the first state that it keeps.
    pub fn check<'a>(&self, keys: impl Iterator<Item = &'a String>, begin: u64) -> Result<(), String> {
        let mut segments: Vec<(u64, u64)> = keys.filter_map(|key| segment(key)).collect();
        segments.sort_unstable();
        for (boundary, last) in self.from(begin) {
            let mut next = boundary.saturating_add(1);
            for (from, to) in &segments {
                if *from <= next && next <= *to {
                    next = to.saturating_add(1);
                }
            }
            if next <= last {
                let told = format!("all entries from the boundary at {boundary} to {last} were told as archived");
                return Err(format!("{told}, and entry {next} is not"));
            }
        }
        Ok(())
    }
}

/// Returns the first and the last entry of a segment by its key; `None` if the key is that of another object.
fn segment(key: &str) -> Option<(u64, u64)> {
    let (_, name) = key.strip_suffix(".entries")?.rsplit_once('/')?;
    let (first, last) = name.split_once('-')?;
    Some((u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(last, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_between_two_segments_is_missed() {
        let mut promises = Promises::default();
        promises.told(5, 9);
        promises.told(5, 20);
        promises.told(30, 30);
        let keys = |names: &[&str]| names.iter().map(|name| format!("c/entries/1/{name}.entries")).collect::<Vec<_>>();
        let check = |names: &[&str], begin| promises.check(keys(names).iter(), begin);
        assert_eq!(promises.last(), 30);
        assert_eq!(check(&["6-9", "8-c", "d-14"], 0), Ok(()));
        assert!(check(&["6-9", "b-14"], 0).is_err_and(|what| what.contains("entry 10")));
        assert_eq!(check(&["6-9", "b-14"], 10), Ok(()));
    }
}
