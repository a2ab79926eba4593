//! The file `CLUSTER` next to the log: it names the cluster that a data directory belongs to, in case the log is lost.
//!
//! The file has five lines of text: `quorate cluster 1` (the format), `cluster`, `epoch` and `durability` with their
//! values, and the CRC-32C of the previous lines in hexadecimal. It is replaced atomically.
//!
//! Invariants:
//! - The file is durable before the store is opened, so before this node acknowledges anything or has anything to lose.
//! - A node whose directory belonged to a cluster never founds another. If it gets a new identity, that belongs to the
//!   cluster in the file. If the file is missing or damaged, but the directory has other traces of a cluster, the node
//!   joins a living cluster or waits.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use quorate_env::disk::{read_file, replace_file};
use quorate_env::mutant::Mutant;
use quorate_env::{Cause, Env};
use quorate_wal::OpenError;

use crate::error::StartError;
use crate::identity::{ClusterId, Identity};

/// The name of the file.
pub const CLUSTER_FILE: &str = "CLUSTER";

const FORMAT: &str = "quorate cluster 1";

const BYTES_MAX: u64 = 1024;

/// The suffixes of a log that was put aside; a number follows.
pub(crate) const DAMAGED: &str = ".damaged-";
pub(crate) const REBOOTED: &str = ".rebooted-";

/// Returns the path of the file, next to the log.
fn path(log: &Path) -> PathBuf {
    log.with_file_name(CLUSTER_FILE)
}

/// Writes the cluster of an identity into the file, unless the file already has it.
pub(crate) fn keep(env: &Env, log: &Path, identity: &Identity) -> Result<(), StartError> {
    let (path, text) = (path(log), encode(identity));
    let present = match read_file(&**env.disk(), &path, BYTES_MAX) {
        Ok(present) => Some(present),
        Err(error) if is_absent(&error) => None,
        Err(source) => return Err(failed("read", &path, source)),
    };
    if present.as_deref() == Some(text.as_bytes()) {
        return Ok(());
    }
    replace_file(&**env.disk(), &path, text.as_bytes()).map_err(|source| failed("write", &path, source))
}

/// Completes an identity without a cluster from the directory's traces of one. `had_store` says whether the directory
/// has files of a store, in use or put aside. Returns whether the identity was changed.
pub(crate) fn inherit(env: &Env, log: &Path, had_store: bool, identity: &mut Identity) -> Result<bool, StartError> {
    if !identity.cluster.is_empty() || identity.belonged || Mutant::FoundedFromDamaged.is_on() {
        return Ok(false);
    }
    let path = path(log);
    match read_file(&**env.disk(), &path, BYTES_MAX) {
        Ok(bytes) => match decode(&bytes) {
            Some((cluster, epoch, durability)) => {
                identity.cluster = cluster.to_bytes();
                (identity.epoch, identity.durability) = (epoch, durability);
            }
            None => identity.belonged = true,
        },
        Err(error) if is_absent(&error) => identity.belonged = had_store || had_log(env, log)?,
        Err(source) => return Err(failed("read", &path, source)),
    }
    Ok(!identity.cluster.is_empty() || identity.belonged)
}

/// Whether the directory has a log that was put aside.
fn had_log(env: &Env, log: &Path) -> Result<bool, StartError> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name()) else { return Ok(false) };
    let items = match env.disk().list(dir) {
        Ok(items) => items,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(failed("list", dir, source)),
    };
    let name = name.to_string_lossy();
    let is_aside = |item: &str| {
        item.strip_prefix(&*name).is_some_and(|rest| [DAMAGED, REBOOTED].iter().any(|mark| rest.starts_with(mark)))
    };
    Ok(items.iter().any(|item| is_aside(&item.name)))
}

/// Returns the path to which a log that can't be reused is moved.
pub(crate) fn aside(log: &Path, mark: &str, now: u64) -> PathBuf {
    let mut aside: OsString = log.as_os_str().to_owned();
    aside.push(format!("{mark}{now}"));
    aside.into()
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn failed(action: &'static str, path: &Path, error: io::Error) -> StartError {
    StartError::Log(OpenError::Io { action, path: path.to_path_buf(), source: Cause::of(error) })
}

fn encode(identity: &Identity) -> String {
    let Identity { epoch, durability, .. } = identity;
    text(identity.cluster(), *epoch, *durability)
}

fn text(cluster: ClusterId, epoch: u64, durability: u32) -> String {
    let text = format!("{FORMAT}\ncluster {cluster}\nepoch {epoch}\ndurability {durability}\n");
    let sum = crc32c::crc32c(text.as_bytes());
    format!("{text}{sum:08x}\n")
}

fn decode(bytes: &[u8]) -> Option<(ClusterId, u64, u32)> {
    let found = std::str::from_utf8(bytes).ok()?;
    let mut lines = found.lines().skip(1);
    let cluster = u128::from_str_radix(lines.next()?.strip_prefix("cluster ")?, 16).ok().map(ClusterId)?;
    let epoch = lines.next()?.strip_prefix("epoch ")?.parse().ok()?;
    let durability = lines.next()?.strip_prefix("durability ")?.parse().ok()?;
    (cluster != ClusterId::NONE && text(cluster, epoch, durability) == found).then_some((cluster, epoch, durability))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn only_an_undamaged_file_is_read() {
        let written = text(ClusterId(0xab), 3, 1);
        let lines = "quorate cluster 1\ncluster 000000000000000000000000000000ab\nepoch 3\ndurability 1\n";
        assert_eq!(written, format!("{lines}{:08x}\n", crc32c::crc32c(lines.as_bytes())));
        assert_eq!(decode(written.as_bytes()), Some((ClusterId(0xab), 3, 1)));
        for at in 0..written.len() {
            let mut damaged = written.clone().into_bytes();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None);
            assert_eq!(decode(&written.as_bytes()[..at]), None);
        }
    }
}
