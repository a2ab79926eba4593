//! Backups of a real node in a directory: what was stored comes back, or an error does.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "tests of real files, which stop at the first surprise"
)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Place, names};
use quorate_backup::Error;
use quorate_backup::backups::{self, Keep, Made, Options};
use quorate_backup::store::Store;
use quorate_backup::{Encryption, Keys};

/// An identity of age, and its recipient. They protect nothing.
const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

fn options(place: &Place, encryption: Encryption) -> Options {
    let scratch = place.path("scratch");
    fs::create_dir_all(&scratch).unwrap();
    Options { encryption, scratch, ..Options::default() }
}

async fn make(place: &Place, encryption: Encryption) -> Made {
    let made = backups::make(&place.node.admin(), &place.store(), &options(place, encryption)).await.unwrap();
    assert_eq!(fs::read_dir(place.path("scratch")).unwrap().count(), 0, "the copy is removed");
    made
}

fn identity(place: &Place) -> Keys {
    fs::write(place.path("identity"), format!("# created: today\n{IDENTITY}\n")).unwrap();
    Keys::none().with_identity_file(&place.path("identity")).unwrap()
}

#[tokio::test]
async fn a_backup_comes_back() {
    let place = Place::start(20).await;
    let (store, file) = (place.store(), place.path("copy.db"));
    let made = make(&place, Encryption::None).await;
    assert!(made.bytes > 2_000_000 && made.database_bytes > 2_000_000, "{made:?}");
    assert_eq!(names(&store), [made.name.to_string()]);
    let latest = backups::latest(&store).await.unwrap();
    assert_eq!((latest.name, latest.bytes), (made.name, made.bytes));
    let fetched = backups::fetch(&store, &latest.name, Keys::none(), &file).await.unwrap();
    assert_eq!((fetched.position, fetched.bytes), (made.position(), made.database_bytes));
    assert_eq!(fs::metadata(&file).unwrap().len(), fetched.bytes);
    let exists = backups::fetch(&store, &latest.name, Keys::none(), &file).await.unwrap_err().to_string();
    assert!(exists.contains("exists"), "{exists}");
}

#[tokio::test]
async fn only_those_who_may_can_read_an_encrypted_backup() {
    let place = Place::start(3).await;
    let store = place.store();
    let made = make(&place, Encryption::to([RECIPIENT]).unwrap()).await;
    assert!(made.name.to_string().ends_with(".db.zst.age"));
    let fetch = async |keys, name: &str| backups::fetch(&store, &made.name, keys, place.path(name)).await;
    let locked = fetch(Keys::none(), "a.db").await.unwrap_err().to_string();
    assert!(locked.contains("give --identity"), "{locked}");
    fs::write(place.path("passphrase"), "open sesame\n").unwrap();
    let passphrase = || Keys::none().with_passphrase_file(&place.path("passphrase")).unwrap();
    let locked = fetch(passphrase(), "a.db").await.unwrap_err().to_string();
    assert!(locked.contains("other recipients"), "{locked}");
    assert!(!place.path("a.db").exists() && !place.path("a.db.partial").exists());
    let fetched = fetch(identity(&place), "a.db").await.unwrap();
    assert_eq!(fetched.position, made.position());
    oracle(&store, &made, &place);
}

/// Compares with the program `age`, if this machine has it.
fn oracle(store: &Store, made: &Made, place: &Place) {
    let object = store.location().as_dir().unwrap().join(made.name.to_string());
    let ran = Command::new("age").arg("-d").arg("-i").arg(place.path("identity")).arg(&object).output();
    let Ok(output) = ran else { return eprintln!("not compared: this machine has no program age") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(place.path("a.zst"), output.stdout).unwrap();
    let ran =
        Command::new("zstd").args(["-q", "-d"]).arg(place.path("a.zst")).arg("-o").arg(place.path("b.db")).output();
    let Ok(output) = ran else { return eprintln!("not compared: this machine has no program zstd") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read(place.path("a.db")).unwrap(), fs::read(place.path("b.db")).unwrap());
}

#[tokio::test]
async fn a_passphrase_opens_a_backup() {
    let place = Place::start(1).await;
    let (right, wrong) = (place.path("right"), place.path("wrong"));
    fs::write(&right, "open sesame\n").unwrap();
    fs::write(&wrong, "open barley\n").unwrap();
    let made = make(&place, Encryption::with_passphrase_file(&right).unwrap()).await;
    let fetch = async |keys: &Path| {
        let keys = Keys::none().with_passphrase_file(keys).unwrap();
        backups::fetch(&place.store(), &made.name, keys, place.path("a.db")).await
    };
    let locked = fetch(&wrong).await.unwrap_err().to_string();
    assert!(locked.contains("passphrase is wrong"), "{locked}");
    assert_eq!(fetch(&right).await.unwrap().position, made.position());
    let needs = backups::fetch(&place.store(), &made.name, identity(&place), place.path("b.db")).await.unwrap_err();
    assert!(needs.to_string().contains("--passphrase-file"), "{needs}");
}

#[tokio::test]
async fn what_cannot_encrypt_uploads_nothing() {
    let place = Place::start(1).await;
    assert!(Encryption::to([""; 0]).is_err() && Encryption::to([RECIPIENT, "age1wrong"]).is_err());
    let shown = Encryption::to([IDENTITY]).unwrap_err().to_string();
    assert!(!shown.contains("SECRET"), "{shown}");
    fs::write(place.path("empty"), "\n").unwrap();
    assert!(Encryption::with_passphrase_file(&place.path("empty")).is_err());
    let nobody = options(&place, Encryption::Recipients(Vec::new()));
    assert!(matches!(backups::make(&place.node.admin(), &place.store(), &nobody).await, Err(Error::Key(_))));
    assert_eq!(names(&place.store()), [""; 0]);
}

/// Changes each of some bytes by one bit, and cuts the object at each of some places: none of it is read as a backup.
#[tokio::test]
async fn every_change_of_a_stored_backup_is_an_error() {
    let place = Place::start(0).await;
    let store = place.store();
    for encryption in [Encryption::None, Encryption::to([RECIPIENT]).unwrap()] {
        let made = make(&place, encryption).await;
        let object = store.location().as_dir().unwrap().join(made.name.to_string());
        let whole = fs::read(&object).unwrap();
        let refused = async |bytes: &[u8], what: String| {
            fs::write(&object, bytes).unwrap();
            let fetched = backups::fetch(&store, &made.name, identity(&place), place.path("a.db")).await;
            assert!(fetched.is_err(), "{what}");
            assert!(!place.path("a.db").exists() && !place.path("a.db.partial").exists());
        };
        let some: Vec<usize> =
            (0..whole.len()).filter(|at| *at < 200 || whole.len() - at < 80 || at % 61 == 0).collect();
        for at in some {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            refused(&changed, format!("bit {} of byte {at} of {}", at % 8, whole.len())).await;
            if at % 3 == 0 {
                refused(&whole[..at], format!("cut to {at} of {}", whole.len())).await;
            }
        }
        refused(&[whole.as_slice(), &[0]].concat(), "a byte more".to_owned()).await;
        refused(&[whole.as_slice(), &whole].concat(), "twice".to_owned()).await;
        fs::write(&object, &whole).unwrap();
        backups::fetch(&store, &made.name, identity(&place), place.path("a.db")).await.unwrap();
        fs::remove_file(place.path("a.db")).unwrap();
        fs::remove_file(&object).unwrap();
    }
}

#[tokio::test]
async fn prune_deletes_only_backups() {
    let place = Place::start(1).await;
    let store = place.store();
    let at = async |time| {
        let options = Options { time: Some(time), ..options(&place, Encryption::None) };
        backups::make(&place.node.admin(), &store, &options).await.unwrap().name.to_string()
    };
    let (old, newer) = (at(86_400).await, at(2 * 86_400).await);
    for other in ["notes.txt", "20010101T000000Z-mine.db.zst", "20261127T020000Z.claim"] {
        store.put(other, "kept".into()).await.unwrap();
    }
    let others = names(&store).len() - 2;
    let gone = backups::prune(&store, Keep { lasting: None, at_least: 2 }).await.unwrap();
    assert_eq!((gone.len(), names(&store).len()), (0, others + 2));
    let gone = backups::prune(&store, Keep { lasting: Some(std::time::Duration::ZERO), at_least: 0 }).await.unwrap();
    assert_eq!(gone.iter().map(ToString::to_string).collect::<Vec<_>>(), [old]);
    assert_eq!(names(&store).len(), others + 1);
    assert!(names(&store).contains(&newer));
}

#[tokio::test]
async fn objects_are_put_once_and_read_in_pieces() {
    let place = Place::start(0).await;
    let store = place.store();
    assert!(store.put_new("a", "first".into()).await.unwrap());
    assert!(!store.put_new("a", "second".into()).await.unwrap());
    let mut upload = store.upload("b").await.unwrap();
    let part = vec![7; 6 << 20];
    upload.part(part.clone().into()).await.unwrap();
    upload.part(part.into()).await.unwrap();
    assert_eq!(store.list().await.unwrap().len(), 1, "it appears when it is complete");
    upload.finish().await.unwrap();
    let mut download = store.download("b").await.unwrap();
    let (mut pieces, mut bytes) = (0, 0);
    while let Some(piece) = download.next().await.unwrap() {
        (pieces, bytes) = (pieces + 1, bytes + piece.len());
    }
    assert_eq!((pieces, bytes), (2, 12 << 20));
    let mut deleted = store.download("a").await.unwrap();
    store.delete("a").await.unwrap();
    store.delete("a").await.unwrap();
    assert!(matches!(deleted.next().await, Err(Error::Missing { .. })));
    assert!(matches!(store.download("a").await, Err(Error::Missing { .. })));
    store.upload("c").await.unwrap().abort().await.unwrap();
    assert_eq!(store.list().await.unwrap().len(), 1);
}
