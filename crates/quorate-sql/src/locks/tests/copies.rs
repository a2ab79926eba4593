//! Locks in what a store makes of its database, and reads of them.

use quorate_env::{Env, Instant};
use quorate_locks::{LocksCommand, LocksReply};
use quorate_model::{Command, ControlCommand, Entry};

use super::*;
use crate::logical_hash;
use crate::machine::tests::SECOND;
use crate::readers::ReadLimits;
use crate::store::tests::copies::{Backup, block_on, send_image};
use crate::store::tests::{Home, PATIENCE, apply, entry_at, home, open, options};
use crate::store::{SqlStore, Verification};

/// The time of the first entry; the others follow within a microsecond.
const START: u64 = 1_700_000_000 * SECOND;

/// How long leases and waits last.
const TTL: u64 = 3600 * SECOND;

fn entry(index: u64, command: impl Into<Command>) -> Entry {
    entry_at(index, START + index, command)
}

fn acquire(name: u64, holder: &'static str) -> LocksCommand {
    let (name, wait) = (format!("lock {name}").into(), Some(TTL));
    LocksCommand::Acquire { name, holder: holder.into(), ttl: TTL, permits: 1, wait, note: "".into() }
}

/// A store with locks that are held and waited for.
fn with_locks() -> (Home, SqlStore) {
    let home = home();
    let store = open(&home.dir, options());
    let commands = (0..200).flat_map(|name| ["ann", "bob"].map(|holder| acquire(name, holder)));
    let entries = (1..).zip(commands).map(|(index, command)| entry(index, command)).collect();
    assert!(apply(&store, entries).unwrap().into_iter().flatten().all(|outcome| outcome.is_ok()));
    (home, store)
}

fn hash(store: &SqlStore) -> u128 {
    let conn = connection::open_reader(&store.generation(), 1 << 20).unwrap();
    assert_eq!(conn.query_row("SELECT count(*) FROM _quorate_locks_claims", [], |row| row.get(0)), Ok(400));
    logical_hash::user(&conn).unwrap()
}

#[test]
fn an_image_has_the_locks_and_goes_on_with_them() {
    let (_home, store) = with_locks();
    let other_home = home();
    let other = open(&other_home.dir, options());
    send_image(&store, &other);
    assert_eq!(hash(&other), hash(&store));
    let again = entry(401, acquire(7, "bob"));
    for store in [&store, &other] {
        apply(store, vec![again.clone()]).unwrap();
    }
    assert_eq!(hash(&other), hash(&store));
}

#[test]
fn a_backup_has_the_locks_for_a_restore() {
    let (_home, store) = with_locks();
    let backup = Backup::of(&store);
    assert_eq!(hash(&backup.restored(options())), hash(&store));
}

#[test]
fn a_verification_compares_the_locks() {
    let (_home, store) = with_locks();
    apply(&store, vec![entry(401, ControlCommand::Verify)]).unwrap();
    let verified = block_on(store.verification(401, Instant::now() + PATIENCE));
    let Some(Verification::Done(hashes)) = verified else { panic!("{verified:?}") };
    let tables = ["", "_claims", "_tokens"].map(|name| format!("_quorate_locks{name}"));
    assert!(tables.iter().eq(hashes.keys().filter(|name| name.starts_with("_quorate_locks"))), "{hashes:?}");
}

/// All have ended by the clock of this machine, and none by the stamps.
#[test]
fn reads_judge_by_the_stamps_and_the_time_since_and_not_by_a_wall_clock() {
    let (_home, store) = with_locks();
    let read = || {
        let inspect = LocksCommand::Inspect { name: "lock 7".into() };
        block_on(store.readers().locks(&Env::real(), &inspect, &ReadLimits::default())).unwrap()
    };
    let LocksReply::Lock(lock) = read() else { panic!("no lock") };
    let names = |claims: &[quorate_locks::Claim]| claims.iter().map(|claim| claim.holder.clone()).collect::<Vec<_>>();
    assert_eq!((names(&lock.holders), names(&lock.waiters)), (vec!["ann".into()], vec!["bob".into()]));
    assert!(lock.holders.iter().all(|holder| (TTL / 2..=TTL).contains(&holder.left)));
    // Time passes without an entry.
    let nothing = LocksCommand::Release { name: "no lock".into(), holder: "ann".into() };
    apply(&store, vec![entry_at(401, START + TTL - SECOND / 1000, nothing)]).unwrap();
    let end = Instant::now() + PATIENCE;
    while read() != LocksReply::Missing {
        assert!(Instant::now() < end);
    }
    hash(&store);
}
