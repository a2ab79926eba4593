//! Writes past the page cache.
//!
//! A frame of the log is written once, synced at once and seldom read again. In the page cache it costs a copy, a page
//! to find, and a search for dirty pages when it is synced; docs/decisions/0017 has the figures.
//!
//! Invariants:
//! - What is written here is read back by any descriptor of the file; the kernel drops what its cache had of it.
//! - Where a file system does not take such writes they are left to the caller, and nothing is lost by the attempt.

#![expect(clippy::disallowed_methods, reason = "the second way to a file that the disk of this machine has opened")]

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::OnceLock;

/// What positions, lengths and memory of such writes are multiples of: the largest block that disks are known to have.
const BLOCK: usize = 4096;

/// Bytes of one such write at most: each thread that makes them keeps memory for the largest. A copy through the page
/// cache does not matter beside the disk's time for more.
const LEN_MAX: usize = 256 << 10;

/// The flag that opens a file for them.
#[cfg(target_os = "linux")]
const FLAG: Option<i32> = Some(rustix::fs::OFlags::DIRECT.bits().cast_signed());
#[cfg(not(target_os = "linux"))]
const FLAG: Option<i32> = None;

thread_local! {
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A second descriptor of a file, for these writes alone; opened when the first is made.
#[derive(Debug, Default)]
pub(super) struct Direct(OnceLock<Option<fs::File>>);

impl Direct {
    /// Writes whole blocks. Returns whether they were taken; if not, they may stand in the file in part.
    pub(super) fn write(&self, file: &fs::File, buf: &[u8], offset: u64) -> io::Result<bool> {
        let are_blocks = buf.len().is_multiple_of(BLOCK) && offset.is_multiple_of(BLOCK as u64);
        if !are_blocks || buf.len() > LEN_MAX {
            return Ok(false);
        }
        let Some(direct) = self.0.get_or_init(|| reopen(file)) else { return Ok(false) };
        ROOM.with_borrow_mut(|room| {
            let Some(bytes) = aligned(room, buf) else { return Ok(false) };
            match direct.write_all_at(bytes, offset) {
                Ok(()) => Ok(true),
                // The kernel's word for memory, position or length that do not suit the file.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
                Err(error) => Err(error),
            }
        })
    }
}

/// The same file once more, whatever its name is by now.
fn reopen(file: &fs::File) -> Option<fs::File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::OpenOptions::new().write(true).custom_flags(FLAG?).open(path).ok()
}

/// A copy of the bytes that begins at a multiple of [`BLOCK`].
fn aligned<'a>(room: &'a mut Vec<u8>, bytes: &[u8]) -> Option<&'a [u8]> {
    let len = bytes.len().saturating_add(BLOCK);
    if room.len() < len {
        room.resize(len, 0);
    }
    let begin = room.as_ptr().align_offset(BLOCK);
    let place = room.get_mut(begin..begin.checked_add(bytes.len())?)?;
    place.copy_from_slice(bytes);
    Some(place)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::disk::{Disk, OpenMode, RealDisk};

    /// Where a write begins, how long it is, and how far from multiples of [`BLOCK`] both are.
    fn writes() -> impl Strategy<Value = Vec<(usize, usize, usize, u8)>> {
        let off = prop_oneof![4 => Just(0), 1 => 1..BLOCK];
        prop::collection::vec((0..80_usize, 1..80_usize, off, any::<u8>()), 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_written_either_way_is_what_is_read(writes in writes()) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("before");
            let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
            // Its name may change while it is open.
            RealDisk.rename(&path, &dir.path().join("after")).unwrap();
            let mut model = Vec::new();
            for (place, (block, blocks, off, byte)) in writes.into_iter().enumerate() {
                let (begin, end) = (block * BLOCK, (block + blocks) * BLOCK + off);
                model.resize(end.max(model.len()), 0);
                model[begin..end].fill(byte);
                let write = if place % 3 == 2 { file.write_at(&model[begin..end], begin as u64) } else {
                    file.write_direct(&model[begin..end], begin as u64)
                };
                write.unwrap();
                let mut found = vec![0; model.len() + 1];
                prop_assert_eq!(file.read_at(&mut found, 0).unwrap(), model.len());
                prop_assert!(found[..model.len()] == model);
            }
            file.sync_data().unwrap();
        }

        #[test]
        fn a_copy_is_the_same_and_begins_at_a_block(bytes in prop::collection::vec(any::<u8>(), 0..3 * BLOCK)) {
            let mut room = Vec::new();
            for _ in 0..2 {
                let copy = aligned(&mut room, &bytes).unwrap();
                prop_assert_eq!(copy, &bytes[..]);
                prop_assert!(copy.as_ptr().addr().is_multiple_of(BLOCK));
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_refused_is_left_to_the_caller() {
        let file = tempfile::tempfile().unwrap();
        // Text that is no number is an invalid argument for this one.
        let refusing = fs::OpenOptions::new().write(true).open("/proc/self/oom_score_adj").unwrap();
        for descriptor in [None, Some(refusing)] {
            let direct = Direct(OnceLock::from(descriptor));
            assert!(!direct.write(&file, &[0; BLOCK], 0).unwrap());
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
