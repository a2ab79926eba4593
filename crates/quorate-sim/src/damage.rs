//! What a disk may do to the files of a node that is down, and the node must notice.
//!
//! Invariant: only frames of the log are damaged of which later ones tell that they were synced. Damage of the last
//! frames can't be told from a torn end (docs/wal-format.md), so nobody could be asked to notice.

use std::io;
use std::path::{Path, PathBuf};

use quorate_consensus::CLUSTER_FILE;
use quorate_env::Rng;
use quorate_env::disk::{Disk as _, OpenMode};
use quorate_env_sim::SimDisk;

/// Bytes of the headers of a database file and of a `-wal`.
const HEADER_BYTES: usize = 100;
const WAL_HEADER_BYTES: usize = 32;

/// What is written over what is to be lost.
const BAD: u8 = 0xa5;

/// The deepest tree of a small database.
const DEPTH_MAX: u32 = 8;

/// Bytes of text that are taken for one.
const TEXT_BYTES: usize = 16;

/// Flips a bit in a segment of the log that has a later one, if there is such a segment.
pub fn flip_log_bit(disk: &SimDisk, log: &Path, rng: &Rng) -> io::Result<()> {
    let mut used = Vec::new();
    for item in disk.list(log)?.iter().filter(|item| item.name.ends_with(".wal")) {
        let path = log.join(&item.name);
        let mut bytes = vec![0; usize::try_from(item.len).unwrap_or(0)];
        disk.open(&path, OpenMode::Read)?.read_exact_at(&mut bytes, 0)?;
        let written: Vec<u64> = (0..).zip(&bytes).filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
        used.push((path, written));
    }
    used.retain(|(_, written)| !written.is_empty());
    used.pop();
    if let Some((path, written)) = used.get(below(rng, used.len()))
        && let Some(at) = written.get(below(rng, written.len()))
    {
        disk.flip_bit(path, *at, below_u32(rng, 8))?;
    }
    Ok(())
}

/// Overwrites the header of the database, and that of its `-wal`, which may hold the first page too.
pub fn overwrite_database_header(disk: &SimDisk, data_dir: &Path) -> io::Result<()> {
    for path in databases(disk, data_dir, |generation| !generation.ends_with(".new"))? {
        let wal = path.with_extension("db-wal");
        for (path, bytes) in [(path, HEADER_BYTES), (wal, WAL_HEADER_BYTES)] {
            if disk.exists(&path)? {
                let file = disk.open(&path, OpenMode::ReadWrite)?;
                file.write_at(&vec![BAD; bytes], 0)?;
                file.sync_data()?;
            }
        }
    }
    Ok(())
}

/// Overwrites a page of rows below the page `root` of the database in force. Says whether the file holds one.
pub fn overwrite_page(disk: &SimDisk, data_dir: &Path, root: u32, rng: &Rng) -> io::Result<bool> {
    for path in databases(disk, data_dir, |generation| !generation.ends_with(".new"))? {
        let file = disk.open(&path, OpenMode::ReadWrite)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        if let Some(page) = leaf(&bytes, root, rng) {
            let size = page_bytes(&bytes);
            file.write_at(&vec![BAD; size], page as u64 * size as u64)?;
            file.sync_data()?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a whole page of a database is overwritten.
pub fn has_bad_page(disk: &SimDisk, data_dir: &Path) -> io::Result<bool> {
    for path in databases(disk, data_dir, |_| true)? {
        let file = disk.open(&path, OpenMode::Read)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        let size = page_bytes(&bytes);
        if size > 0 && bytes.chunks(size).any(|page| page.iter().all(|byte| *byte == BAD)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The number, from 0, of any page of rows below a root, whose number SQLite counts from 1
/// (<https://sqlite.org/fileformat2.html#b_tree_pages>).
fn leaf(database: &[u8], root: u32, rng: &Rng) -> Option<usize> {
    let (size, mut page) = (page_bytes(database), usize::try_from(root).ok()?.checked_sub(1)?);
    for _ in 0..DEPTH_MAX {
        let at = page * size;
        match database.get(at)? {
            13 => return Some(page),
            5 => {}
            _ => return None,
        }
        let cells = be_u16(database, at + 3)?;
        let child = match below(rng, cells + 1) {
            0 => at + 8,
            cell => at + be_u16(database, at + 10 + 2 * cell)?,
        };
        page = ((be_u16(database, child)? << 16) + be_u16(database, child + 2)?).checked_sub(1)?;
    }
    None
}

/// Bytes of a page of a database; 0 where there is no header.
fn page_bytes(database: &[u8]) -> usize {
    be_u16(database, 16).map_or(0, |size| if size == 1 { 64 << 10 } else { size })
}

fn be_u16(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(u16::from_be_bytes(bytes).into())
}

/// Removes the file that names the cluster.
pub fn remove_cluster_file(disk: &SimDisk, data_dir: &Path) -> io::Result<()> {
    let path = data_dir.join(CLUSTER_FILE);
    if disk.exists(&path)? { disk.remove_file(&path) } else { Ok(()) }
}

/// Flips a bit of an image that is being received, if one is: in a text if there is any, where SQLite sees no harm.
pub fn flip_image_bit(disk: &SimDisk, data_dir: &Path, rng: &Rng) -> io::Result<()> {
    for path in databases(disk, data_dir, |generation| generation.ends_with(".new"))? {
        let file = disk.open(&path, OpenMode::Read)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        let is_text = |window: &[u8]| window.iter().all(u8::is_ascii_lowercase);
        let texts: Vec<u64> =
            (0..).zip(bytes.windows(TEXT_BYTES)).filter(|(_, w)| is_text(w)).map(|(at, _)| at).collect();
        let anywhere = rng.below(file.len()?.max(1));
        disk.flip_bit(&path, texts.get(below(rng, texts.len())).copied().unwrap_or(anywhere), 0)?;
    }
    Ok(())
}

/// The database files of some generations; a store or one of these that was just begun may have none yet.
fn databases(disk: &SimDisk, data_dir: &Path, takes: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let generations = data_dir.join("db");
    let items = if disk.exists(&generations)? { disk.list(&generations)? } else { Vec::new() };
    for item in items.iter().filter(|item| item.is_dir && takes(&item.name)) {
        let path = generations.join(&item.name).join("quorate.db");
        if disk.exists(&path)? {
            found.push(path);
        }
    }
    Ok(found)
}

/// Flips a bit of `CURRENT` where it names the only generation there is: then nothing is lost.
pub fn flip_pointer_bit(disk: &SimDisk, data_dir: &Path, rng: &Rng) -> io::Result<()> {
    let generations = disk.list(&data_dir.join("db"))?;
    let pointer = disk.list(data_dir)?.into_iter().find(|item| item.name == "CURRENT");
    match pointer.filter(|_| generations.iter().filter(|item| item.is_dir).count() == 1) {
        Some(item) => disk.flip_bit(&data_dir.join(&item.name), rng.below(item.len.max(1)), below_u32(rng, 8)),
        None => Ok(()),
    }
}

fn below(rng: &Rng, bound: usize) -> usize {
    usize::try_from(rng.below(u64::try_from(bound).unwrap_or(0))).unwrap_or(0)
}

fn below_u32(rng: &Rng, bound: u32) -> u32 {
    u32::try_from(rng.below(u64::from(bound))).unwrap_or(0)
}
