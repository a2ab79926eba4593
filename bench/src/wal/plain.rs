//! Plain writes: one write and one `fdatasync` for all pending entries, over a preallocated file. This is the limit
//! that the disk sets.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use quorate_bench_harness::{Histogram, MIB, Result};

use super::{Figures, Options};

/// The size of the file in bytes. When its end is reached, writing continues at its start.
const FILE_BYTES: u64 = 64 * MIB;
/// The size of each write is a multiple of this.
const PAGE: u64 = 4096;

pub fn measure(dir: &Path, pending: u32, options: &Options) -> Result<Figures> {
    let mut file = File::create(dir.join("plain"))?;
    for _ in 0..FILE_BYTES / MIB {
        file.write_all(&[0; MIB as usize])?;
    }
    file.sync_all()?;
    let bytes = (u64::from(pending) * u64::from(options.entry_bytes)).next_multiple_of(PAGE).min(FILE_BYTES);
    let batch = vec![7; usize::try_from(bytes)?];
    let (begin, mut at) = (Instant::now(), 0);
    let mut times = Histogram::default();
    while begin.elapsed() < Duration::from_secs(options.seconds) {
        let start = Instant::now();
        file.write_all_at(&batch, at)?;
        file.sync_data()?;
        times.record(start.elapsed());
        at = if at + 2 * bytes > FILE_BYTES { 0 } else { at + bytes };
    }
    let syncs_per_s = times.summary().count as f64 / begin.elapsed().as_secs_f64();
    let appends_per_s = syncs_per_s * f64::from(pending);
    Ok(Figures { appends_per_s, syncs_per_s: Some(syncs_per_s), times: times.summary() })
}
