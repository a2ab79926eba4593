//! Checks the disk of a data directory: the cost of an fsync, and the free space.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quorate::config::Timing;
use quorate_shell::format::size;

use super::finding::Finding;

/// The longest duration of the measurement.
const MEASURE_MAX: Duration = Duration::from_secs(1);

/// How many pages are written, each once.
const PAGES: u64 = 1_024;

/// The size of a page in bytes: what the log writes and syncs for a small write.
const PAGE: usize = 4096;

/// An fdatasync that takes less than this did not reach a disk.
const TOO_FAST: Duration = Duration::from_micros(20);

/// An fdatasync that takes more than this is slow for a disk without moving parts.
const SLOW: Duration = Duration::from_millis(10);

/// The least free space, in bytes: room for two segments of the log, and some more.
const LEAST_SPACE: u64 = 256 << 20;

/// The durations of the fdatasyncs, sorted.
pub type Measured = io::Result<Vec<Duration>>;

/// The file that is written. Dropping this removes it.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that stays has 4 MiB and a name that says where it came from.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes pages of a preallocated file as the log does, and syncs each.
pub fn measure(dir: &Path) -> Measured {
    let path = dir.join(format!(".quorate-doctor-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let scratch = Scratch { path, file };
    for page in 0..PAGES {
        scratch.file.write_all_at(&[0; PAGE], page * PAGE as u64)?;
    }
    scratch.file.sync_all()?;
    let (begun, mut took) = (Instant::now(), Vec::new());
    for page in 0..PAGES {
        let sent = Instant::now();
        scratch.file.write_all_at(&[0x5a; PAGE], page * PAGE as u64)?;
        scratch.file.sync_data()?;
        took.push(sent.elapsed());
        if begun.elapsed() >= MEASURE_MAX {
            break;
        }
    }
    took.sort_unstable();
    Ok(took)
}

/// Returns a percentile of sorted durations; zero if there are none.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// Formats a duration in milliseconds.
pub fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

/// Explains what an fsync costs, and what that means for writes.
pub fn check_fsync(measured: &Measured, timing: Timing) -> Vec<Finding> {
    const CHECK: &str = "fsync";
    let sorted = match measured {
        Ok(sorted) => sorted,
        Err(error) => {
            return vec![Finding::problem(
                CHECK,
                format!("can't be measured: {error}"),
                "A node could not write its log.",
            )];
        }
    };
    let (p50, p99) = (percentile(sorted, 50), percentile(sorted, 99));
    let what = format!(
        "fdatasync of 4 KiB takes {} (p50), {} (p99); {} were measured",
        millis(p50),
        millis(p99),
        sorted.len()
    );
    let rate = 1.0 / p50.as_secs_f64().max(1e-6);
    let rates = format!(
        "One client that waits for each write gets at most about {rate:.0} writes a second from this disk. Writes that \
         wait at the same time share one fdatasync, so 64 clients get up to 64 times that, until the database is the \
         limit."
    );
    let finding = if p99 >= timing.election_min / 2 {
        let means = format!(
            "Votes wait for the disk, and elections begin after {:?}: leadership will move when the disk stalls. Use \
             another disk, or raise the times in [timing]. {rates}",
            timing.election_min
        );
        Finding::problem(CHECK, what, means)
    } else if p50 < TOO_FAST {
        let means = format!(
            "No disk is that fast: synced data is only in the memory of this machine or of its disk. If that memory \
             does not survive a power failure, acknowledged writes may be lost. {rates}"
        );
        Finding::note(CHECK, what, means)
    } else if p50 > SLOW {
        Finding::note(CHECK, what, format!("That is slow: the disk may be spinning or remote. {rates}"))
    } else {
        Finding::ok(CHECK, what, rates)
    };
    vec![finding]
}

/// The free space of a file system, and what a data directory uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    available: Option<u64>,
    log: u64,
    database: u64,
}

impl Space {
    /// Gathers the facts about a data directory.
    pub fn gather(dir: &Path) -> Self {
        let stat = rustix::fs::statvfs(dir).ok();
        Self {
            available: stat.map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize)),
            log: bytes_below(&dir.join("log")),
            database: bytes_below(&dir.join("db")),
        }
    }
}

/// Returns the total size of the files below a directory. Files that can't be read count as empty.
fn bytes_below(dir: &Path) -> u64 {
    let items = std::fs::read_dir(dir).into_iter().flatten().flatten();
    items
        .map(|item| match item.metadata() {
            Ok(meta) if meta.is_dir() => bytes_below(&item.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Checks whether there is room for what a node may have to write.
pub fn check_space(space: &Space) -> Vec<Finding> {
    const CHECK: &str = "space";
    let Space { available, log, database } = *space;
    let Some(available) = available else {
        return vec![Finding::note(CHECK, "the free space can't be read", "")];
    };
    let what = format!("{} are free; the log takes {}, the database {}", size(available), size(log), size(database));
    let needed = database.saturating_add(LEAST_SPACE);
    let finding = if available < LEAST_SPACE {
        let means = format!(
            "With less than {} the log may have no room for its next segment: this node would stop taking writes until \
             there is space.",
            size(LEAST_SPACE)
        );
        Finding::problem(CHECK, what, means)
    } else if available < needed {
        let means = format!(
            "If this node falls far behind, it receives a copy of the database, which needs {} next to the old one: it \
             would not fit.",
            size(needed)
        );
        Finding::note(CHECK, what, means)
    } else {
        Finding::ok(CHECK, what, "Enough for a second copy of the database, and for the log.")
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::super::finding::Level;
    use super::*;

    fn fsync(micros: &[u64]) -> Finding {
        let sorted = micros.iter().map(|micros| Duration::from_micros(*micros)).collect();
        check_fsync(&Ok(sorted), Timing::default()).remove(0)
    }

    #[test]
    fn the_cost_of_an_fsync_is_explained() {
        let good = fsync(&[200; 100]);
        assert!(good.level == Level::Ok && good.means.contains("about 5000 writes a second"), "{good:?}");
        assert!(fsync(&[3; 100]).means.contains("No disk is that fast"));
        assert!(fsync(&[15_000; 100]).level == Level::Note);
        let stalls: Vec<u64> = [vec![200; 97], vec![400_000; 3]].concat();
        assert!(fsync(&stalls).level == Level::Problem && fsync(&stalls).means.contains("300ms"));
        let failed = check_fsync(&Err(io::Error::other("no")), Timing::default());
        assert_eq!(failed[0].level, Level::Problem);
    }

    #[test]
    fn a_directory_is_measured_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let measured = measure(dir.path()).unwrap();
        assert!(!measured.is_empty() && measured.is_sorted());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(measure(&dir.path().join("none")).is_err());
    }

    #[test]
    fn space_is_compared_with_what_an_image_needs() {
        let level = |available, database| check_space(&Space { available, log: 1, database })[0].level;
        assert_eq!(level(Some(10 << 30), 1 << 30), Level::Ok);
        assert_eq!(level(Some(1 << 30), 1 << 30), Level::Note);
        assert_eq!(level(Some(100 << 20), 0), Level::Problem);
        assert_eq!(level(None, 0), Level::Note);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("db/1")).unwrap();
        std::fs::write(dir.path().join("db/1/file"), [0; 1000]).unwrap();
        let space = Space::gather(dir.path());
        assert!((space.log, space.database) == (0, 1000) && space.available.is_some());
    }
}
