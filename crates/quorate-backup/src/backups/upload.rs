//! Uploads a finished file: one thread reads, compresses and encrypts it, while this task sends the parts.
//!
//! Invariant: at most three parts are in memory: one that is sent, one that waits, and one that is being filled.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use quorate::backup::BackupInfo;
use quorate_env::Env;
use quorate_env::disk::OpenMode;
use tokio::sync::mpsc;

use super::name::Name;
use super::pack::{Parts, pack};
use crate::crypt::Encryption;
use crate::error::Error;
use crate::store::{PART_BYTES, PARTS_MAX, Store, Upload};

/// The number of parts that wait.
const WAITING_MAX: usize = 1;

/// Uploads a file as the object `name`; returns the size of the object.
pub(super) async fn upload(
    env: &Env,
    store: &Store,
    name: &Name,
    backup: &BackupInfo,
    encryption: &Encryption,
) -> Result<u64, Error> {
    encryption.check()?;
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let parts = Parts::new(sender, part_bytes(backup.bytes));
    let (disk, path, encryption) = (Arc::clone(env.disk()), backup.file.clone(), encryption.clone());
    let packing = env.blocking(move || -> io::Result<()> {
        let file = disk.open(&path, OpenMode::Read)?;
        pack(&*file, &encryption, parts)
    });
    let packed = async {
        let packed = packing.await.ok_or(Error::Closed)?;
        packed.map_err(Error::disk(&backup.file))
    };
    send(store, &name.to_string(), receiver, packed).await
}

/// Returns the size of parts, for a file of this size that may not get smaller.
fn part_bytes(file_bytes: u64) -> usize {
    let least = file_bytes.div_ceil(PARTS_MAX).saturating_add(file_bytes >> 16);
    usize::try_from(least.max(PART_BYTES)).unwrap_or(usize::MAX)
}

/// Sends the parts. The object is completed only if `packed` succeeds.
async fn send(
    store: &Store,
    name: &str,
    mut parts: mpsc::Receiver<Bytes>,
    packed: impl Future<Output = Result<(), Error>>,
) -> Result<u64, Error> {
    // If this fails, it drops the receiver, so that the thread ends.
    let sending = async move {
        let Some(first) = parts.recv().await else { return Ok((0, Sent::Nothing)) };
        let Some(second) = parts.recv().await else { return Ok((first.len() as u64, Sent::Whole(first))) };
        let mut upload = store.upload(name).await?;
        let mut bytes = 0;
        let (mut next, mut after) = (Some(first), Some(second));
        while let Some(part) = next {
            bytes += part.len() as u64;
            if let Err(error) = upload.part(part).await {
                give_up(upload).await;
                return Err(error);
            }
            next = match after.take() {
                Some(part) => Some(part),
                None => parts.recv().await,
            };
        }
        Ok((bytes, Sent::Parts(upload)))
    };
    let (sent, packed) = tokio::join!(sending, packed);
    let (bytes, sent) = sent?;
    match (packed, sent) {
        (Ok(()), Sent::Whole(whole)) => {
            let is_new = store.put_new(name, whole).await?;
            let exists = || Error::Exists { location: store.location().to_string(), name: name.to_owned() };
            if is_new { Ok(bytes) } else { Err(exists()) }
        }
        (Ok(()), Sent::Parts(upload)) => upload.finish().await.map(|()| bytes),
        (Ok(()), Sent::Nothing) => Err(Error::Closed),
        (Err(error), sent) => {
            if let Sent::Parts(upload) = sent {
                give_up(upload).await;
            }
            Err(error)
        }
    }
}

/// What was sent when the last part had come.
enum Sent {
    Nothing,
    /// Nothing: it is so small that one request creates it.
    Whole(Bytes),
    Parts(Upload),
}

/// Removes the parts of an upload, as far as the store can be reached. The error that led here counts.
async fn give_up(upload: Upload) {
    if let Err(error) = upload.abort().await {
        tracing::warn!(%error, "the parts of an upload that failed may still be at the store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_enough_for_any_database() {
        for bytes in [0, 1, PART_BYTES, 100 << 30, 5 << 40] {
            // What does not compress grows by the headers of blocks and chunks, by less than 1 in 1000.
            let stored = bytes + bytes / 1000 + 1024;
            assert!(stored.div_ceil(part_bytes(bytes) as u64) <= 10_000, "{bytes}");
        }
        assert_eq!(part_bytes(1 << 30) as u64, PART_BYTES);
    }
}
