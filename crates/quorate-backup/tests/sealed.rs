//! Objects that are encrypted.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests use the real file system and stop at the first surprise"
)]

use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use age::secrecy::ExposeSecret as _;
use bytes::Bytes;
use proptest::prelude::*;
use quorate_archive::Objects;
use quorate_archive::objects::{Memory, ObjectsError};
use quorate_backup::store::Sealed;
use quorate_backup::{Encryption, Keys};
use tempfile::TempDir;

/// An identity of age, and its recipient. They protect nothing.
const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

/// The plain bytes of a chunk of age.
const CHUNK: u64 = 64 << 10;

fn file(dir: &TempDir, identity: &str) -> PathBuf {
    let path = dir.path().join("identity");
    std::fs::write(&path, identity).unwrap();
    path
}

fn keys(identity: &str) -> Keys {
    Keys::none().with_identity_file(&file(&tempfile::tempdir().unwrap(), identity)).unwrap()
}

fn sealed(memory: &Memory) -> Sealed {
    Sealed::new(Arc::new(memory.clone()), Encryption::to([RECIPIENT]).unwrap(), keys(IDENTITY)).unwrap()
}

fn content(length: u64) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(future)
}

async fn stored(memory: &Memory, key: &str) -> Bytes {
    memory.read(key, None).await.unwrap().unwrap().bytes
}

async fn put(memory: &Memory, key: &str, bytes: Bytes) {
    memory.delete(key).await.unwrap();
    memory.create(key, bytes, None).await.unwrap().unwrap();
}

/// A place near the end of a chunk, or anywhere.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![(0_u64..4, -2_i64..3).prop_map(|(chunk, by)| (chunk * CHUNK).saturating_add_signed(by)), 0..4 * CHUNK,]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_range_is_what_was_written(length in offset(), ranges in prop::collection::vec((offset(), offset()), 1..6)) {
        block_on(async {
            let memory = Memory::new();
            let written = content(length);
            sealed(&memory).create("a", written.clone(), None).await.unwrap().unwrap();
            let sealed = sealed(&memory);
            for (one, other) in ranges {
                let range = one.min(other)..one.max(other);
                let read = sealed.read("a", Some(range.clone())).await.unwrap().unwrap();
                let at = |offset: u64| usize::try_from(offset.min(length)).unwrap();
                prop_assert_eq!(&read.bytes, &written.slice(at(range.start)..at(range.end)), "{:?}", range);
                prop_assert_eq!(read.length, length);
            }
            let whole = sealed.read("a", None).await.unwrap().unwrap();
            prop_assert_eq!((whole.bytes, whole.length), (written, length));
            Ok(())
        })?;
    }

    #[test]
    fn a_changed_byte_is_found(length in 1..3 * CHUNK, at in any::<prop::sample::Index>(), is_ranged in any::<bool>()) {
        block_on(async {
            let memory = Memory::new();
            let written = content(length);
            sealed(&memory).create("a", written.clone(), None).await.unwrap();
            let mut changed = stored(&memory, "a").await.to_vec();
            // If the first line changes, the object is no file of age: it is read as it is, not as it was written.
            let at = at.index(changed.len());
            changed[at] ^= 1;
            put(&memory, "a", changed.into()).await;
            match sealed(&memory).read("a", is_ranged.then_some(0..length)).await {
                Ok(read) => prop_assert_ne!(read.unwrap().bytes, written),
                Err(ObjectsError { is_retryable, .. }) => prop_assert!(!is_retryable),
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn an_upload_in_pieces_is_one_object() {
    let (memory, written) = (Memory::new(), content(3 * CHUNK + 17));
    let mut upload = sealed(&memory).upload("a", None).await.unwrap();
    for piece in written.chunks(50_000) {
        upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    upload.finish().await.unwrap();
    assert_eq!(sealed(&memory).read("a", None).await.unwrap().unwrap().bytes, written);
    assert_no_trace(&stored(&memory, "a").await, &written);
}

/// Checks that the stored bytes do not contain the first 32 plain bytes.
fn assert_no_trace(stored: &[u8], written: &[u8]) {
    let piece = &written[..32];
    assert!(!stored.windows(piece.len()).any(|window| window == piece));
}

#[tokio::test]
async fn a_shorter_object_is_no_object_of_age() {
    let memory = Memory::new();
    sealed(&memory).create("a", content(2 * CHUNK), None).await.unwrap();
    let whole = stored(&memory, "a").await;
    for cut in [1, 17, usize::try_from(CHUNK).unwrap() + 16] {
        put(&memory, "a", whole.slice(..whole.len() - cut)).await;
        let error = sealed(&memory).read("a", None).await.unwrap_err();
        assert!(error.source.to_string().contains("'a' is damaged"), "{error}");
    }
}

#[tokio::test]
async fn who_has_no_key_is_told() {
    let memory = Memory::new();
    sealed(&memory).create("a", content(10), None).await.unwrap();
    let other = age::x25519::Identity::generate().to_string();
    let cases = [
        (Keys::none(), "it needs an identity; give --identity"),
        (keys(other.expose_secret()), "it was encrypted to other recipients than these identities"),
    ];
    for (keys, why) in cases {
        let other = Sealed::new(Arc::new(memory.clone()), Encryption::None, keys).unwrap();
        for range in [None, Some(0..5)] {
            let error = other.read("a", range).await.unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}

#[tokio::test]
async fn what_was_stored_before_encryption_is_read() {
    let memory = Memory::new();
    memory.create("a", content(1_000), None).await.unwrap();
    let sealed = sealed(&memory);
    let plain = sealed.read("a", Some(5..10)).await.unwrap().unwrap();
    assert_eq!((plain.bytes, plain.length), (content(1_000).slice(5..10), 1_000));
    let version = sealed.read("a", None).await.unwrap().unwrap().version;
    assert!(sealed.replace("a", content(20), &version).await.unwrap().is_some());
    assert!(sealed.replace("a", content(30), &version).await.unwrap().is_none(), "it has another version");
    assert!(stored(&memory, "a").await.starts_with(b"age-encryption.org/v1"));
    let again = sealed.read("a", None).await.unwrap().unwrap();
    assert_eq!(again.bytes, content(20));
}

#[tokio::test]
async fn an_object_that_was_replaced_is_read_anew() {
    let memory = Memory::new();
    let (reader, writer) = (sealed(&memory), sealed(&memory));
    let version = writer.create("a", content(100), None).await.unwrap().unwrap();
    let range: Range<u64> = 0..50;
    assert_eq!(reader.read("a", Some(range.clone())).await.unwrap().unwrap().bytes, content(50));
    writer.replace("a", content(70), &version).await.unwrap().unwrap();
    assert!(reader.read("a", Some(range.clone())).await.unwrap_err().is_retryable);
    assert_eq!(reader.read("a", Some(range)).await.unwrap().unwrap().length, 70);
}

#[test]
fn what_could_not_be_read_again_is_not_written() {
    let memory: Arc<dyn Objects> = Arc::new(Memory::new());
    let to = || Encryption::to([RECIPIENT]).unwrap();
    assert!(Sealed::new(Arc::clone(&memory), to(), Keys::none()).is_err());
    let dir = tempfile::tempdir().unwrap();
    let passphrase = Encryption::with_passphrase_file(&file(&dir, "a passphrase")).unwrap();
    let error = Sealed::new(memory, passphrase, keys(IDENTITY)).unwrap_err().to_string();
    assert!(error.contains("to recipients, not with a passphrase"), "{error}");
}

/// Compares with the program `age`, if this machine has it.
#[tokio::test]
async fn the_program_age_decrypts_objects() {
    let (memory, dir) = (Memory::new(), tempfile::tempdir().unwrap());
    sealed(&memory).create("a", content(100_000), None).await.unwrap();
    let object = dir.path().join("object");
    std::fs::write(&object, stored(&memory, "a").await).unwrap();
    let ran = Command::new("age").arg("-d").arg("-i").arg(file(&dir, IDENTITY)).arg(&object).output();
    let Ok(output) = ran else { return eprintln!("not compared: this machine has no program age") };
    assert_eq!(output.stdout, content(100_000));
}
