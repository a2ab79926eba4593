//! A directory is a store for archives as good as the one in memory: both keep the same promises.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use quorate_archive::Objects;
use quorate_archive::objects::{Listed, Memory};
use quorate_backup::store::{Location, PART_BYTES, Store};

/// How many replace an object at once.
const RIVALS: usize = 16;

/// What every store promises.
async fn keeps_its_promises(store: Arc<dyn Objects>) {
    let key = "0c/archive.json";
    assert_eq!(store.read(key, None).await.unwrap(), None);
    let first = store.create(key, Bytes::from_static(b"one"), None).await.unwrap().unwrap();
    assert_eq!(store.create(key, Bytes::from_static(b"two"), None).await.unwrap(), None);
    let read = store.read(key, None).await.unwrap().unwrap();
    assert_eq!((&*read.bytes, read.length, &read.version), (&b"one"[..], 3, &first));

    // Of those who replace a version, one succeeds.
    let mut rivals = tokio::task::JoinSet::new();
    for number in 0..RIVALS {
        let (store, first) = (Arc::clone(&store), first.clone());
        rivals.spawn(async move {
            loop {
                match store.replace(key, Bytes::from(number.to_string()), &first).await {
                    Ok(replaced) => return replaced.map(|version| (number, version)),
                    // A directory answers so while another one is at it.
                    Err(error) => assert!(error.is_retryable, "{error}"),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let winners: Vec<_> = rivals.join_all().await.into_iter().flatten().collect();
    let [(number, version)] = winners.as_slice() else { panic!("{winners:?}") };
    let read = store.read(key, None).await.unwrap().unwrap();
    assert_eq!((&*read.bytes, &read.version), (number.to_string().as_bytes(), version));
    assert_eq!(store.replace("0c/none", Bytes::new(), version).await.unwrap(), None);

    // An object in pieces appears at its end, however long it is.
    for (key, pieces) in [("0c/00000001/0009/short", 1), ("0c/00000001/0009/long", 5)] {
        let piece = Bytes::from(vec![7; usize::try_from(PART_BYTES / 2).unwrap() + 1]);
        let mut upload = store.upload(key, Some(1_764_200_000_000)).await.unwrap();
        for _ in 0..pieces {
            upload.write(piece.clone()).await.unwrap();
        }
        assert_eq!(store.read(key, None).await.unwrap(), None);
        upload.finish().await.unwrap();
        let length = piece.len() as u64 * pieces;
        let end = store.read(key, Some(length - 5..length + 5)).await.unwrap().unwrap();
        assert_eq!((&*end.bytes, end.length), (&[7; 5][..], length));
    }

    store.create("0d/other", Bytes::new(), None).await.unwrap().unwrap();
    let listed = store.list("0c/00000001/").await.unwrap();
    let keys: Vec<_> = listed.iter().map(|Listed { key, .. }| key.as_str()).collect();
    assert_eq!(keys, ["0c/00000001/0009/long", "0c/00000001/0009/short"]);
    assert_eq!(store.list_folders("").await.unwrap(), ["0c", "0d"]);
    assert_eq!(store.list("0e/").await.unwrap(), []);
    store.delete(keys[0]).await.unwrap();
    store.delete(keys[0]).await.unwrap();
    assert_eq!(store.list("0c/00000001/").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_keeps_the_promises_of_a_store() {
    let dir = tempfile::tempdir().unwrap();
    keeps_its_promises(Arc::new(Store::open(&Location::dir(dir.path()).unwrap(), None).unwrap())).await;
}

/// What a caller has given up is done before the next one gets its turn, or not at all.
#[tokio::test]
async fn a_replacement_that_was_given_up_does_not_undo_a_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&Location::dir(dir.path()).unwrap(), None).unwrap();
    let mut version = store.create("0c/a", Bytes::from_static(b"first"), None).await.unwrap().unwrap();
    for round in 0..50 {
        let _ = store.replace("0c/a", Bytes::from_static(b"given up"), &version).now_or_never();
        let last = Bytes::from(format!("last {round}"));
        version = loop {
            let found = store.read("0c/a", None).await.unwrap().unwrap().version;
            match store.replace("0c/a", last.clone(), &found).await {
                Ok(Some(version)) => break version,
                Ok(None) => {}
                Err(error) => assert!(error.is_retryable, "{error}"),
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(store.read("0c/a", None).await.unwrap().unwrap().bytes, last);
    }
}

/// Where a disk is not mounted any more, an archive must not begin anew on the disk below.
#[tokio::test]
async fn a_directory_that_was_replaced_takes_nothing_until_it_is_back() {
    let (dir, bytes) = (tempfile::tempdir().unwrap(), Bytes::from_static(b"one"));
    let (mounted, away) = (dir.path().join("mounted"), dir.path().join("away"));
    std::fs::create_dir(&mounted).unwrap();
    let store = Store::open(&Location::dir(&mounted).unwrap(), None).unwrap();
    let objects: &dyn Objects = &store;
    let version = objects.create("0c/archive.json", bytes.clone(), None).await.unwrap().unwrap();

    std::fs::rename(&mounted, &away).unwrap();
    for is_replaced in [false, true] {
        if is_replaced {
            std::fs::create_dir(&mounted).unwrap();
        }
        let created = objects.create("0c/entries/1", bytes.clone(), None).await.unwrap_err();
        let told = if is_replaced { "see whether its disk is mounted" } else { "the directory is gone" };
        assert!(created.is_retryable && created.to_string().contains(told), "{created}");
        assert!(objects.replace("0c/archive.json", bytes.clone(), &version).await.unwrap_err().is_retryable);
        assert!(objects.read("0c/archive.json", None).await.unwrap_err().is_retryable, "it is not missing");
        let mut upload = objects.upload("0c/long", None).await.unwrap();
        upload.write(bytes.clone()).await.unwrap();
        assert!(upload.finish().await.is_err());
        assert!(store.put("backup", bytes.clone()).await.is_err());
    }
    assert_eq!(std::fs::read_dir(&mounted).unwrap().count(), 0);

    std::fs::remove_dir(&mounted).unwrap();
    std::fs::rename(&away, &mounted).unwrap();
    objects.create("0c/entries/1", bytes.clone(), None).await.unwrap().unwrap();
    assert_eq!(objects.read("0c/archive.json", None).await.unwrap().unwrap().bytes, bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_memory_keeps_the_promises_of_a_store() {
    keeps_its_promises(Arc::new(Memory::new())).await;
}
