//! Direct writes, which bypass the page cache.
//!
//! A frame of the log is written once, synced at once and seldom read again. In the page cache it costs a copy, a page
//! lookup, and a search for dirty pages when it is synced; docs/decisions/0017 has the figures.
//!
//! Invariants:
//! - Any descriptor of the file reads back what was written here; the kernel invalidates the cached pages.
//! - If a file system rejects direct writes, the caller must write the bytes; the attempt does no harm.

#![expect(clippy::disallowed_methods, reason = "the second way to a file that the disk of this machine has opened")]

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::OnceLock;

/// The alignment of offsets, lengths and memory of direct writes: the largest block size that disks are known to have.
const BLOCK: usize = 4096;

/// The maximum length of a direct write. Each thread that makes them keeps a buffer of the largest length used. For
/// longer writes the copy through the page cache is negligible next to the disk's time.
const LEN_MAX: usize = 256 << 10;

/// The flag that opens a file for direct writes.
#[cfg(target_os = "linux")]
const FLAG: Option<i32> = Some(rustix::fs::OFlags::DIRECT.bits().cast_signed());
#[cfg(not(target_os = "linux"))]
const FLAG: Option<i32> = None;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A second descriptor of a file, used only for direct writes and opened at the first one.
#[derive(Debug, Default)]
pub(super) struct Direct(OnceLock<Option<fs::File>>);

impl Direct {
    /// Writes whole blocks. Returns whether they were written; if not, the file may hold some of them.
    pub(super) fn write(&self, file: &fs::File, buf: &[u8], offset: u64) -> io::Result<bool> {
        let are_blocks = buf.len().is_multiple_of(BLOCK) && offset.is_multiple_of(BLOCK as u64);
        if !are_blocks || buf.len() > LEN_MAX {
            return Ok(false);
        }
        let Some(direct) = self.0.get_or_init(|| reopen(file)) else { return Ok(false) };
        BUFFER.with_borrow_mut(|buffer| {
            let Some(bytes) = aligned(buffer, buf) else { return Ok(false) };
            match direct.write_all_at(bytes, offset) {
                Ok(()) => Ok(true),
                // The kernel's error for memory, an offset or a length whose alignment does not suit the file.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
                Err(error) => Err(error),
            }
        })
    }
}

/// Opens the same file again, even if it was renamed.
fn reopen(file: &fs::File) -> Option<fs::File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::OpenOptions::new().write(true).custom_flags(FLAG?).open(path).ok()
}

/// A copy of the bytes at an address that is a multiple of [`BLOCK`].
fn aligned<'a>(buffer: &'a mut Vec<u8>, bytes: &[u8]) -> Option<&'a [u8]> {
    let len = bytes.len().saturating_add(BLOCK);
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    let begin = buffer.as_ptr().align_offset(BLOCK);
    let place = buffer.get_mut(begin..begin.checked_add(bytes.len())?)?;
    place.copy_from_slice(bytes);
    Some(place)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::disk::{Disk, OpenMode, RealDisk};

    /// The first block of a write, its length in blocks, extra bytes that make the length unaligned, and the byte to
    /// write.
    fn writes() -> impl Strategy<Value = Vec<(usize, usize, usize, u8)>> {
        let off = prop_oneof![4 => Just(0), 1 => 1..BLOCK];
        prop::collection::vec((0..80_usize, 1..80_usize, off, any::<u8>()), 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn direct_and_cached_writes_read_back_the_same(writes in writes()) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("before");
            let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
            // A file may be renamed while it is open.
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
        fn an_aligned_copy_has_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..3 * BLOCK)) {
            let mut buffer = Vec::new();
            for _ in 0..2 {
                let copy = aligned(&mut buffer, &bytes).unwrap();
                prop_assert_eq!(copy, &bytes[..]);
                prop_assert!(copy.as_ptr().addr().is_multiple_of(BLOCK));
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn rejected_direct_writes_are_left_to_the_caller() {
        let file = tempfile::tempfile().unwrap();
        // Writing anything but a number to this file fails with an invalid argument.
        let refusing = fs::OpenOptions::new().write(true).open("/proc/self/oom_score_adj").unwrap();
        for descriptor in [None, Some(refusing)] {
            let direct = Direct(OnceLock::from(descriptor));
            assert!(!direct.write(&file, &[0; BLOCK], 0).unwrap());
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
