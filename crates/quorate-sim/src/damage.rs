//! Damage to the files of a node, which the node must detect.
//!
//! Invariant: only log frames that a later frame declares synced are damaged. Damage to the last frames can't be
//! distinguished from a torn tail (docs/wal-format.md), so no node could detect it.

use std::io;
use std::path::{Path, PathBuf};

use quorate_consensus::CLUSTER_FILE;
use quorate_env::Rng;
use quorate_env::disk::{Disk as _, OpenMode};
use quorate_env_sim::SimDisk;

/// The sizes of the headers of a database file and of a `-wal`.
const HEADER_BYTES: usize = 100;
const WAL_HEADER_BYTES: usize = 32;

/// The byte with which data are overwritten.
const BAD: u8 = 0xa5;

/// The maximum depth of a B-tree in a small database.
const DEPTH_MAX: u32 = 8;

/// This many lowercase letters in a row are considered text.
const TEXT_BYTES: usize = 16;

/// Flips a bit in any used log segment except the last, if there is one.
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

/// Overwrites the headers of the database and of its `-wal`. The `-wal` may hold a copy of the first page, with which
/// SQLite would read the database in spite of the damage.
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

/// Overwrites a leaf page of the table B-tree with the page `root`, in the current database. Returns whether the file
/// holds such a page.
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

/// Whether a page of a database has been overwritten and still is.
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

/// Returns the number of a random leaf page of a table B-tree, counted from 0; `root` is the root page's number, which
/// SQLite counts from 1 (<https://sqlite.org/fileformat2.html#b_tree_pages>).
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

/// Returns the page size of a database, or 0 if the file has no header.
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

/// Flips a bit of the image that the node is receiving, if any. It prefers a bit in a text, because SQLite can't detect
/// a change there.
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

/// Returns the database files of the selected generations. A store or a generation that has just been created may have
/// no file yet.
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

/// Flips a bit of `CURRENT` if there is only one generation: the node can then tell which one `CURRENT` named, and
/// loses nothing.
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
