//! Measurements of the machine: the time of an `fdatasync`, the resources that a process used, the size of a directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Result;
use crate::histogram::{Histogram, Summary};

/// The bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// How many syncs a probe does, and how many bytes it writes before each.
const SYNCS: usize = 200;
const SYNC_BYTES: usize = 4096;

/// The state of a disk right before a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// The times of writing and syncing (`fdatasync`) 4 KiB.
    pub sync: Summary,
    /// Whether its files are only in memory, where a sync costs nothing.
    pub in_memory: bool,
}

impl Disk {
    /// Writes pages over a preallocated file, as a log does, and syncs each.
    ///
    /// # Errors
    ///
    /// If a file can't be written.
    pub fn probe(dir: &Path) -> Result<Self> {
        /// The file system types tmpfs and ramfs.
        const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
        let path = dir.join("fdatasync.probe");
        let mut file = File::create(&path)?;
        file.write_all(&vec![0; SYNCS * SYNC_BYTES])?;
        file.sync_all()?;
        file.rewind()?;
        let mut times = Histogram::default();
        for _ in 0..SYNCS {
            let start = Instant::now();
            file.write_all(&[7; SYNC_BYTES])?;
            file.sync_data()?;
            times.record(start.elapsed());
        }
        fs::remove_file(path)?;
        let in_memory = IN_MEMORY.contains(&(rustix::fs::statfs(dir)?.f_type as i64));
        Ok(Self { sync: times.summary(), in_memory })
    }
}

/// The resources that processes have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time, in user mode and in the kernel.
    pub cpu: Duration,
    /// Processor time of everything else on the machine since it started.
    pub others_cpu: Duration,
    /// The sum of the largest resident sizes in bytes, including pages of mapped files.
    pub peak_memory: u64,
    /// The bytes of pages that the processes made dirty, which shows whether they are idle. The disk may have to write
    /// less: on file systems with large pages, one written byte counts as a whole page.
    pub written: u64,
}

/// Returns the bytes that all processes have written to the disk below a directory so far, or `None` if the kernel does
/// not report it. The file system is synced first, so that the difference of two results is everything that was written
/// between them.
pub(crate) fn written_to_disk(dir: &Path) -> Result<Option<u64>> {
    /// The unit of the kernel's counts, whatever the sector size of the disk is.
    const SECTOR: u64 = 512;
    let dir = File::open(dir)?;
    rustix::fs::syncfs(&dir)?;
    let device = dir.metadata()?.dev();
    let device = [rustix::fs::major(device), rustix::fs::minor(device)].map(|number| number.to_string());
    // The fields of a line are: major, minor, name, four figures of reads, writes, merged writes, sectors written.
    let disks = fs::read_to_string("/proc/diskstats")?;
    let mut lines = disks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|fields| fields.iter().zip(&device).filter(|(a, b)| a == b).count() == 2);
    let sectors = line.as_ref().and_then(|fields| fields.get(9)?.parse::<u64>().ok());
    Ok(sectors.map(|sectors| sectors * SECTOR))
}

/// The unit in which the kernel counts processor time, on every machine that Linux runs on today.
const TICK: Duration = Duration::from_millis(10);

/// Returns the processor time that all processes on this machine have used so far.
fn cpu_of_all() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    // The fields of the first line are: cpu, user, nice, system, idle, iowait, irq, softirq, steal.
    let line = stat.lines().next().unwrap_or_default();
    let fields = line.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = fields.as_slice() else {
        return Err("/proc/stat has an unexpected format".into());
    };
    Ok(TICK * u32::try_from(user + nice + system + irq + softirq + steal)?)
}

impl Usage {
    /// Returns the usage of a running process.
    fn of(pid: u32) -> Result<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
        let stat = read("stat")?;
        // The name of the process, in parentheses, may contain spaces; user and system time are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(')').ok_or("/proc/PID/stat has an unexpected format")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>).sum::<Result<u32, _>>()?;
        let (status, io) = (read("status")?, read("io")?);
        let peak_memory = field(&status, "VmHWM:")? * 1024;
        let written = field(&io, "write_bytes:")?;
        Ok(Self { cpu: TICK * ticks, others_cpu: Duration::ZERO, peak_memory, written })
    }

    /// Returns the usage of all these processes.
    ///
    /// # Errors
    ///
    /// If one of them has ended.
    pub fn of_all(pids: impl Iterator<Item = Result<u32>>) -> Result<Self> {
        let sum =
            pids.map(|pid| Self::of(pid?)).try_fold(Self::default(), |sum, usage| usage.map(|one| sum.plus(one)))?;
        Ok(Self { others_cpu: cpu_of_all()?.saturating_sub(sum.cpu), ..sum })
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            others_cpu: Duration::ZERO,
            peak_memory: self.peak_memory + other.peak_memory,
            written: self.written + other.written,
        }
    }
}

/// Returns the number after a name, in a file whose lines each begin with a name.
fn field(text: &str, name: &str) -> Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name} in /proc"))?;
    let number = value.split_whitespace().next().ok_or_else(|| format!("{name} is empty in /proc"))?;
    Ok(number.parse()?)
}

/// Returns the bytes on disk below a directory, by the first component of the path. Files that are removed in the
/// meantime do not count.
pub(crate) fn bytes_by_part(dir: &Path) -> BTreeMap<String, u64> {
    let items = fs::read_dir(dir).into_iter().flatten().flatten();
    items.map(|item| (item.file_name().to_string_lossy().into_owned(), bytes_on_disk(&item.path()))).collect()
}

fn bytes_on_disk(path: &Path) -> u64 {
    /// The unit of `st_blocks`.
    const BLOCK: u64 = 512;
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let below = match metadata.is_dir() {
        true => bytes_by_part(path).values().sum(),
        false => 0,
    };
    below + metadata.blocks() * BLOCK
}

/// Creates a new directory on the disk to be measured: below `dir`, or beside this program.
///
/// # Errors
///
/// If it can't be created.
pub fn data_dir(dir: Option<&Path>) -> Result<tempfile::TempDir> {
    let beside = || -> Result<PathBuf> { Ok(std::env::current_exe()?.with_file_name("quorate-bench-data")) };
    let base = dir.map_or_else(beside, |dir| Ok(dir.to_owned()))?;
    fs::create_dir_all(&base)?;
    Ok(tempfile::tempdir_in(base)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_this_process_is_not_zero() -> Result<()> {
        let usage = Usage::of_all([Ok(std::process::id())].into_iter())?;
        assert!(usage.peak_memory > MIB && usage.others_cpu > Duration::ZERO);
        Ok(())
    }

    #[test]
    fn a_probe_leaves_no_file() -> Result<()> {
        let dir = data_dir(None)?;
        fs::create_dir(dir.path().join("node"))?;
        fs::write(dir.path().join("node/file"), [1; 10_000])?;
        let disk = Disk::probe(dir.path())?;
        assert_eq!(disk.sync.count, SYNCS as u64);
        let parts = bytes_by_part(dir.path());
        assert_eq!(parts.keys().collect::<Vec<_>>(), ["node"]);
        assert!(parts.values().sum::<u64>() >= 10_000);
        Ok(())
    }

    #[test]
    fn written_to_disk_counts_written_bytes() -> Result<()> {
        let dir = data_dir(None)?;
        let Some(before) = written_to_disk(dir.path())? else { return Ok(()) };
        fs::write(dir.path().join("file"), [1; 1 << 20])?;
        assert!(written_to_disk(dir.path())?.is_some_and(|after| after >= before + MIB));
        Ok(())
    }
}
