//! Measured times, and the cost of an fdatasync on the disk.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use super::Result;

const SYNCS: usize = 200;
const SYNC_BYTES: usize = 4096;

/// Times, sorted.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn push(&mut self, time: Duration) {
        let at = self.0.partition_point(|known| *known <= time);
        self.0.insert(at, time);
    }

    /// Returns the smallest time that `percent` of all times do not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    pub fn longest(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }
}

/// Formats a time in milliseconds.
pub fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Prints the conditions of the measurement: how durable the writes are, and what that costs on this disk.
pub fn print_conditions(dir: &Path) -> Result<()> {
    let syncs = fdatasync_times(dir)?;
    println!("durability: fsync on a majority before each acknowledgment");
    println!(
        "fdatasync of {SYNC_BYTES} bytes here: p50 {} us, p99 {} us ({SYNCS} times, before the nodes start)",
        syncs.percentile(50).as_micros(),
        syncs.percentile(99).as_micros()
    );
    Ok(())
}

fn fdatasync_times(dir: &Path) -> Result<Times> {
    let path = dir.join("fdatasync.probe");
    let mut file = File::create(&path)?;
    // Overwrite a file of full length, as the preallocated log does.
    file.write_all(&vec![0; SYNCS * SYNC_BYTES])?;
    file.sync_all()?;
    file.rewind()?;
    let mut times = Times::default();
    for _ in 0..SYNCS {
        let start = Instant::now();
        file.write_all(&[7; SYNC_BYTES])?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(times)
}
