//! The content of a file: as programs see it and, per sector, as it was when last synced.
//!
//! Truncating a file changes its inode, which a file system does completely or not at all, and later writes go to new
//! places on the medium. A truncation that is lost therefore takes those writes with it, and one that survives never
//! shows the old content.
//!
//! Invariant: a sector that is neither in `unsynced` nor in `ghosts` is on the medium as programs see it.

use std::collections::BTreeMap;

use quorate_env::Rng;

/// The unit of writing. A disk writes a sector completely or not at all, but the simulation also tears sectors.
pub(super) const SECTOR: usize = 512;

/// The content of a sector, and the length of a sector as a file offset.
type Sector = [u8; SECTOR];
const STEP: u64 = SECTOR as u64;
/// The unit that a flash device rewrites.
const SECTORS_PER_PAGE: u64 = 8;
const ZERO: Sector = [0; SECTOR];

#[derive(Debug, Default)]
pub(super) struct Inode {
    len: u64,
    /// Sectors that are not all zero.
    sectors: BTreeMap<u64, Box<Sector>>,
    synced_len: u64,
    /// The medium's content of the sectors that were written since they were last synced.
    unsynced: BTreeMap<u64, Box<Sector>>,
    /// The medium's content of the sectors that the page cache wrongly takes for synced after a failed sync.
    ghosts: BTreeMap<u64, Box<Sector>>,
    /// The lowest length to which the file was truncated since it was last synced.
    cut: Option<u64>,
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let room = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let end = room.min(buf.len());
        let (mut at, mut rest) = (offset, buf.get_mut(..end).unwrap_or_default());
        while !rest.is_empty() {
            let (number, from, count) = place(at, rest.len());
            let (part, tail) = rest.split_at_mut(count);
            match self.sectors.get(&number).and_then(|sector| sector.get(from..)?.get(..count)) {
                Some(bytes) => part.copy_from_slice(bytes),
                None => part.fill(0),
            }
            (at, rest) = (at.saturating_add(count as u64), tail);
        }
        end
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let (number, from, count) = place(at, rest.len());
            let (part, tail) = rest.split_at(count);
            let mut sector = self.sector(number);
            if let Some(target) = sector.get_mut(from..).and_then(|s| s.get_mut(..count)) {
                target.copy_from_slice(part);
            }
            self.put(number, sector);
            (at, rest) = (at.saturating_add(count as u64), tail);
        }
        self.len = self.len.max(at);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.cut = Some(self.cut.map_or(len, |before| before.min(len)));
            let cut = usize::try_from(len % STEP).unwrap_or(0);
            let beyond: Vec<u64> = self.sectors.range(len / STEP..).map(|(number, _)| *number).collect();
            for number in beyond {
                let mut sector = self.sector(number);
                let keep = if number == len / STEP { cut } else { 0 };
                sector.get_mut(keep..).unwrap_or_default().fill(0);
                self.put(number, sector);
            }
        }
        self.len = len;
    }

    /// Returns whether a power failure may lose some of the content.
    pub(super) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty() || !self.ghosts.is_empty() || self.len != self.synced_len
    }

    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
        self.synced_len = self.len;
        self.cut = None;
    }

    /// Fails a sync: each sector that it was to write is on the medium, or still to be synced, or a ghost.
    pub(super) fn fail_sync(&mut self, rng: &Rng) {
        let mut covered = std::mem::take(&mut self.unsynced);
        // A truncation, and the writes that depend on it, are still to be synced.
        self.unsynced = self.cut.map(|cut| covered.split_off(&(cut / STEP))).unwrap_or_default();
        for (number, before) in covered {
            match rng.below(3) {
                0 => {}
                1 => drop(self.unsynced.insert(number, before)),
                _ => drop(self.ghosts.insert(number, before)),
            }
        }
    }

    /// Fails the power: unsynced sectors survive, are lost or are torn. With `scrambles`, an unsynced sector may also
    /// destroy the page that contains it, synced or not.
    pub(super) fn lose_power(&mut self, rng: &Rng, fate: Fate, scrambles: bool) {
        let mut lost = std::mem::take(&mut self.ghosts);
        lost.append(&mut self.unsynced);
        if let Some(cut) = self.cut.take() {
            let beyond = lost.split_off(&(cut / STEP));
            if fate.survives(rng) {
                // Sectors written after the truncation may be lost like any others. Where one is lost, zeros remain.
                lost.extend(beyond.into_iter().map(|(number, before)| (number, Self::cut_at(before, number, cut))));
                self.synced_len = self.synced_len.min(cut);
            } else {
                beyond.into_iter().for_each(|(number, before)| self.store(number, *before));
                self.len = self.synced_len;
            }
        }
        for (number, before) in lost {
            if scrambles && fate.scrambles(rng) {
                self.scramble_page(number, rng);
                continue;
            }
            let cut = fate.surviving_bytes(rng);
            let mut after = self.sector(number);
            if let (Some(target), Some(old)) = (after.get_mut(cut..), before.get(cut..)) {
                target.copy_from_slice(old);
            }
            self.store(number, after);
        }
        if self.len != self.synced_len && fate.surviving_bytes(rng) < SECTOR {
            self.len = self.synced_len;
        }
        self.zero_beyond_end();
        self.synced_len = self.len;
    }

    pub(super) fn flip(&mut self, offset: u64, bit: u32) {
        let (number, from, _) = place(offset, 1);
        let flip_in = |sector: &mut Sector| {
            if let Some(byte) = sector.get_mut(from) {
                *byte ^= 1_u8.rotate_left(bit);
            }
        };
        let mut sector = self.sector(number);
        flip_in(&mut sector);
        self.store(number, sector);
        if let Some(old) = self.unsynced.get_mut(&number) {
            flip_in(old);
        }
    }

    fn scramble_page(&mut self, number: u64, rng: &Rng) {
        let first = number - number % SECTORS_PER_PAGE;
        for number in first..first + SECTORS_PER_PAGE {
            let mut sector = ZERO;
            rng.fill(&mut sector);
            self.store(number, sector);
        }
    }

    /// Returns the medium's content of a sector after the file was truncated at `cut`.
    fn cut_at(mut before: Box<Sector>, number: u64, cut: u64) -> Box<Sector> {
        let keep = if number == cut / STEP { usize::try_from(cut % STEP).unwrap_or(0) } else { 0 };
        before.get_mut(keep..).unwrap_or_default().fill(0);
        before
    }

    fn sector(&self, number: u64) -> Sector {
        self.sectors.get(&number).map_or(ZERO, |sector| **sector)
    }

    /// Changes a sector and remembers the medium's content.
    fn put(&mut self, number: u64, sector: Sector) {
        let before = self.sector(number);
        // Writing a ghost makes it dirty again, even with the same bytes: the next sync writes it.
        if before == sector && !self.ghosts.contains_key(&number) {
            return;
        }
        if !self.unsynced.contains_key(&number) {
            let on_medium = self.ghosts.remove(&number).unwrap_or_else(|| Box::new(before));
            self.unsynced.insert(number, on_medium);
        }
        self.store(number, sector);
    }

    fn store(&mut self, number: u64, sector: Sector) {
        if sector == ZERO {
            self.sectors.remove(&number);
        } else {
            self.sectors.insert(number, Box::new(sector));
        }
    }

    fn zero_beyond_end(&mut self) {
        self.set_len(self.len.saturating_add(1));
        self.set_len(self.len.saturating_sub(1));
        self.unsynced.clear();
        self.cut = None;
    }
}

/// How much a power failure destroys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// Everything unsynced is lost.
    Lost,
    /// Everything unsynced survives.
    Kept,
    /// Each sector and each name is decided separately.
    Mixed,
}

impl Fate {
    pub(super) fn draw(rng: &Rng) -> Self {
        match rng.below(6) {
            0 => Self::Lost,
            1 => Self::Kept,
            _ => Self::Mixed,
        }
    }

    /// Draws whether an indivisible change survives.
    pub(super) fn survives(self, rng: &Rng) -> bool {
        match self {
            Self::Lost => false,
            Self::Kept => true,
            Self::Mixed => rng.below(2) == 0,
        }
    }

    /// Draws whether a page is destroyed while it is written.
    fn scrambles(self, rng: &Rng) -> bool {
        matches!(self, Self::Mixed) && rng.below(32) == 0
    }

    /// Draws how many bytes of a sector, from its start, survive.
    fn surviving_bytes(self, rng: &Rng) -> usize {
        match self {
            Self::Mixed if rng.below(8) == 0 => usize::try_from(rng.below(STEP)).unwrap_or(0),
            _ if self.survives(rng) => SECTOR,
            _ => 0,
        }
    }
}

/// Returns the sector of an offset, the offset in the sector, and how many of `len` bytes fit into it from there.
fn place(offset: u64, len: usize) -> (u64, usize, usize) {
    let from = usize::try_from(offset % STEP).unwrap_or(0);
    (offset / STEP, from, len.min(SECTOR.saturating_sub(from)))
}
