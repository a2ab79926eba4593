//! How far the pages of a plan were written, in a file beside the database, so that a restore that was killed goes on
//! where it was. `docs/archive-format.md` has the format.
//!
//! Invariants:
//! - What a state counts as written was synced before the state was saved.
//! - A state of another plan, or one that is damaged, is never used. A database that was made of a state is compared
//!   with the checksums of all of its pages, even if other programs changed the files meanwhile.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BufMut};
use quorate_env::disk::{Disk, File, read_file, replace_file};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::Plan;
use crate::ltx::{Checksum, HEADER_BYTES, Header, Stand};
use crate::sums::Sums;

const MAGIC: [u8; 8] = *b"QRTREST1";

/// What the name of the file has after that of the database.
const SUFFIX: &str = ".state";

/// The longest state that is read: that of a database of more than 200 million pages.
const STATE_BYTES_MAX: u64 = 4 << 30;

/// A state is saved about so often in a restore,
const SAVES: u64 = 32;

/// and not before so many bytes were read since the last one.
const SAVE_BYTES_MIN: u64 = 4 << 20;

/// How far a restore is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The digest of the plan up to the file that is being read.
    plan: u128,
    /// The number of that file in the plan, from 0 on.
    pub file: u32,
    /// Where the reader of that file is.
    pub stand: Stand,
    /// The checksums of the pages so far.
    pub sums: Sums,
}

impl State {
    pub fn of(plan: &Plan, file: u32, stand: Stand, sums: Sums) -> Self {
        Self { plan: digest(plan, file), file, stand, sums }
    }

    fn encode(&self) -> Vec<u8> {
        let (index, sums) = (&self.stand.index, self.sums.encode());
        let mut out = Vec::with_capacity(HEADER_BYTES.saturating_add(index.len()).saturating_add(sums.len()));
        out.put_slice(&MAGIC);
        out.put_u128(self.plan);
        out.put_u32(self.file);
        out.put_u64(self.stand.crc);
        out.put_slice(&self.stand.header.encode());
        out.put_u64(index.len() as u64);
        out.put_slice(index);
        out.put_slice(&sums);
        out.put_u64(xxh3_64(&out));
        out
    }

    /// Decodes a state; `None` if it is damaged.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, mut sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        if sum.try_get_u64().ok()? != xxh3_64(body) {
            return None;
        }
        let mut rest = body.strip_prefix(&MAGIC)?;
        let (plan, file, crc) = (rest.try_get_u128().ok()?, rest.try_get_u32().ok()?, rest.try_get_u64().ok()?);
        let header = Header::decode(rest.split_off(..HEADER_BYTES)?.first_chunk()?).ok()?;
        let length = usize::try_from(rest.try_get_u64().ok()?).ok()?;
        let index = rest.split_off(..length)?.to_vec();
        Some(Self { plan, file, stand: Stand { header, crc, index }, sums: Sums::decode(rest).ok()? })
    }
}

/// Returns a digest of what a plan reads up to one of its files: it may go on in another way.
fn digest(plan: &Plan, file: u32) -> u128 {
    let mut bytes = Vec::new();
    bytes.put_u128(plan.cluster);
    bytes.put_u64(plan.epoch);
    bytes.put_u32(plan.generation);
    for (key, described) in plan.files.iter().take((file as usize).saturating_add(1)) {
        bytes.put_u64(key.len() as u64);
        bytes.put_slice(key.as_bytes());
        bytes.put_u64(described.length);
    }
    xxh3_128(&bytes)
}

/// The file with the state of a restore.
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl StateFile {
    /// Returns the file beside a database.
    pub fn beside(disk: &Arc<dyn Disk>, database: &Path) -> Self {
        Self { disk: Arc::clone(disk), path: with_suffix(database, SUFFIX) }
    }

    pub fn exists(&self) -> io::Result<bool> {
        self.disk.exists(&self.path)
    }

    /// Reads the state; `None` if it is of another plan, or damaged.
    pub fn read(&self, plan: &Plan) -> io::Result<Option<State>> {
        let bytes = match read_file(&*self.disk, &self.path, STATE_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
            read => read?,
        };
        let is_of = |state: &State| (state.file as usize) < plan.files.len() && state.plan == digest(plan, state.file);
        Ok(State::decode(&bytes).filter(is_of))
    }

    /// Replaces the state.
    pub fn save(&self, state: &State) -> io::Result<()> {
        replace_file(&*self.disk, &self.path, &state.encode())
    }

    pub fn remove(&self) -> io::Result<()> {
        if self.exists()? { self.disk.remove_file(&self.path) } else { Ok(()) }
    }
}

/// Whether a restore into `database` can go on where an earlier one was.
pub fn has_state(disk: &dyn Disk, database: &Path) -> io::Result<bool> {
    disk.exists(&with_suffix(database, SUFFIX))
}

/// Returns how many bytes of a plan are read between two states.
pub(super) fn save_bytes(plan: &Plan) -> u64 {
    (plan.bytes() / SAVES).max(SAVE_BYTES_MIN)
}

/// Whether a database has the pages with these checksums, and no others.
pub(super) fn is_database(file: &dyn File, sums: &Sums) -> io::Result<bool> {
    let size = sums.page_size();
    let mut page = vec![0; size.len()];
    for number in 1..=sums.pages() {
        let at = u64::from(number.saturating_sub(1)).saturating_mul(page.len() as u64);
        file.read_exact_at(&mut page, at)?;
        // The lock page has no content.
        if number != size.lock_page() && !sums.is(number, Checksum::of_page(number, &page)) {
            return Ok(false);
        }
    }
    Ok(file.len()? == u64::from(sums.pages()).saturating_mul(page.len() as u64))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from([path.as_os_str(), suffix.as_ref()].join("".as_ref()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "tests")]

    use std::num::NonZeroU32;

    use super::super::Target;
    use super::*;
    use crate::ltx::{PageSize, Txids};
    use crate::manifest;

    fn plan(lengths: &[u64]) -> Plan {
        let file = |(number, length): (u64, &u64)| {
            let file = manifest::File {
                level: 1,
                min: number,
                max: number,
                index: number,
                time: 0,
                pages: 3,
                checksum: None,
                length: *length,
            };
            (format!("key {number}"), file)
        };
        Plan {
            cluster: 7,
            epoch: 1,
            generation: 2,
            target: Target::Latest,
            files: (1..).zip(lengths).map(file).collect(),
            segments: Vec::new(),
            outage_max: std::time::Duration::ZERO,
        }
    }

    fn state(plan: &Plan, file: u32) -> State {
        let size = PageSize::new(512).unwrap();
        let mut sums = Sums::new(size);
        sums.resize(3);
        sums.set(1, Checksum::of_page(1, &[1; 512]));
        let header = Header {
            page_size: size,
            commit: NonZeroU32::new(3).unwrap(),
            txids: Txids::new(1, 17).unwrap(),
            timestamp: 1_764_200_000_000,
            node: 7,
            note: [9; 20],
        };
        State::of(plan, file, Stand { header, crc: 0x0123_4567_89AB_CDEF, index: vec![1, 100, 77] }, sums)
    }

    /// To rewrite the golden file after a deliberate change, run this with `QUORATE_BLESS=1`.
    #[test]
    fn a_state_has_the_same_bytes_as_ever() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/restore-state");
        let state = state(&plan(&[1_000, 500]), 0);
        if std::env::var_os("QUORATE_BLESS").is_some() {
            std::fs::write(&path, state.encode()).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == state.encode());
        assert_eq!(State::decode(&state.encode()), Some(state.clone()));
        assert_eq!(state.stand.offset(), 177);
    }

    #[test]
    fn a_state_that_is_cut_or_changed_is_none() {
        let bytes = state(&plan(&[1_000]), 0).encode();
        for cut in 0..bytes.len() {
            assert_eq!(State::decode(&bytes[..cut]), None, "{cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(State::decode(&changed), None, "{at}");
        }
    }

    #[test]
    fn a_state_counts_for_plans_that_begin_as_its_own() {
        let of_first = digest(&plan(&[1_000, 500]), 0);
        assert_eq!(of_first, digest(&plan(&[1_000, 600, 700]), 0));
        assert_ne!(of_first, digest(&plan(&[1_001, 500]), 0));
        assert_ne!(digest(&plan(&[1_000, 500]), 1), digest(&plan(&[1_000, 600]), 1));
        assert_ne!(of_first, digest(&Plan { generation: 3, ..plan(&[1_000]) }, 0));
    }
}
