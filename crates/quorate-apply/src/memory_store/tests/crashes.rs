//! The file of the store: kills, losses of power and errors at every disk operation, full disks, and damage.

use quorate_env::disk::read_file;
use quorate_env_sim::Fault;

use super::*;

const ENTRIES: u64 = 45;

/// Entries that are handed over together.
const BATCH: usize = 5;

/// Runs a program on a disk until its end, also while the disk fails, and asks for the durable position all the time.
/// Returns the last answer; `None` if the store can't be opened.
fn live(disk: &SimDisk, entries: &[Entry], expected: &Expected) -> Option<Applied> {
    let store = open_on(disk).ok()?;
    let first = applied(&store).map_or(0, |index| index as usize + 1);
    for batch in entries[first..].chunks(BATCH) {
        let from = batch[0].log_id.index as usize;
        let outcomes: Vec<_> = apply(&store, batch).into_iter().map(Option::unwrap).collect();
        assert_eq!(outcomes, expected.outcomes[from..from + batch.len()]);
        store.durable();
    }
    (0..5).for_each(|_| drop(store.durable()));
    assert_eq!(store.fault(), None, "a checkpoint that fails is no fault");
    Some(store.durable())
}

/// Ends the life of a disk. Checks that the store of the next life has everything that was durable, and that replaying
/// the other entries gives the same state.
fn check_next_life(disk: &SimDisk, durable: Option<&Applied>, entries: &[Entry], expected: &Expected) {
    let store = open_on(disk).unwrap();
    let found = applied(&store);
    assert!(found >= durable.and_then(index_of), "{found:?} after {durable:?} was durable");
    match found {
        Some(index) => assert_eq!(state(&store), expected.states[index as usize]),
        None => assert_eq!(state(&store), Memory::new(IDENTITY).encode().unwrap()),
    }
    assert_eq!(store.durable(), store.applied(), "the store has made durable what it has read");
    drop(store);
    let durable = live(disk, entries, expected).unwrap();
    assert_eq!(index_of(&durable), Some(ENTRIES - 1));
    let store = open_on(&disk.crash()).unwrap();
    assert_eq!((store.applied(), state(&store)), (durable, expected.states[ENTRIES as usize - 1].clone()));
    assert_eq!(store.rejections(), [12, 25, 38]);
}

/// Stops the disk at each of its operations in turn, and ends its life as `end` does.
fn stops_anywhere(end: impl Fn(&SimDisk) -> SimDisk) {
    let entries = program(ENTRIES);
    let expected = Expected::of(&entries);
    for seed in 0..16 {
        let mut found = 0;
        for stop in 0.. {
            let disk = SimDisk::new(seed);
            disk.stop_after(stop);
            let durable = live(&disk, &entries, &expected);
            let has_stopped = disk.has_stopped();
            let next = end(&disk);
            check_next_life(&next, durable.as_ref(), &entries, &expected);
            if !has_stopped {
                break;
            }
            found += 1;
        }
        assert!(found > 20, "only {found} operations");
    }
}

#[test]
fn a_kill_anywhere_leaves_the_state_at_an_entry() {
    stops_anywhere(SimDisk::kill);
}

#[test]
fn a_loss_of_power_anywhere_leaves_the_state_at_an_entry() {
    stops_anywhere(SimDisk::crash);
}

#[test]
fn an_error_anywhere_takes_nothing_back() {
    let entries = program(ENTRIES);
    let expected = Expected::of(&entries);
    for (seed, fault) in (0..16).flat_map(|seed| [(seed, Fault::Io), (seed, Fault::NoSpace)]) {
        for at in 0.. {
            let disk = SimDisk::new(seed);
            disk.fail_after(at, fault);
            let durable = live(&disk, &entries, &expected);
            let has_failed = disk.failures() > 0;
            assert!(durable.as_ref().is_none_or(|durable| index_of(durable) == Some(ENTRIES - 1)), "tried again");
            check_next_life(&disk.crash(), durable.as_ref(), &entries, &expected);
            if !has_failed {
                break;
            }
        }
    }
}

#[test]
fn a_name_that_an_earlier_process_has_not_synced_is_not_durable_yet() {
    let entries = program(ENTRIES);
    for seed in 0..16 {
        let disk = SimDisk::new(seed);
        let store = open_on(&disk).unwrap();
        apply(&store, &entries[..9]);
        let durable = store.durable();
        assert_eq!(index_of(&durable), Some(8));
        apply(&store, &entries[9..16]);
        // The next sync after that of the new file is that of its name.
        let written = disk.io_count();
        disk.stop_after(4);
        apply(&store, &entries[16..17]);
        assert_eq!((disk.io_count() - written, disk.has_stopped(), store.durable()), (5, true, durable));
        let disk = disk.kill();
        // The sync of the parent's names, then that of the directory's own.
        disk.fail_sync_after(1);
        let store = open_on(&disk).unwrap();
        assert_eq!((disk.failures(), applied(&store)), (1, Some(16)));
        assert_eq!(store.durable(), Applied::default());
        let found = applied(&open_on(&disk.crash()).unwrap());
        assert!([Some(8), Some(16)].contains(&found), "{found:?}");
    }
}

#[test]
fn a_full_disk_delays_checkpoints_only() {
    let entries = program(ENTRIES);
    let disk = SimDisk::new(1);
    let store = open_on(&disk).unwrap();
    apply(&store, &entries[..10]);
    let durable = store.durable();
    assert_eq!(index_of(&durable), Some(9));
    disk.set_capacity(Some(disk.used()));
    for entry in &entries[10..26] {
        let before = disk.io_count();
        apply(&store, std::slice::from_ref(entry));
        let tries = disk.io_count() > before;
        assert_eq!(tries, [17, 25].contains(&entry.log_id.index), "entry {}", entry.log_id.index);
    }
    assert!(matches!(store.checkpoint(), Err(StoreFault::Full(_))));
    assert_eq!((store.durable(), store.fault(), applied(&store)), (durable, None, Some(25)));
    let names: Vec<_> = disk.list(dir()).unwrap().into_iter().map(|item| item.name).collect();
    assert_eq!(names, ["state"], "what could not be completed takes no space");
    disk.set_capacity(None);
    store.checkpoint().unwrap();
    assert_eq!(store.durable(), store.applied());
}

#[test]
fn a_store_that_rests_becomes_durable() {
    let entries = program(ENTRIES);
    let disk = SimDisk::new(1);
    let store = open_on(&disk).unwrap();
    for entry in &entries[..6] {
        apply(&store, std::slice::from_ref(entry));
        (0..3).for_each(|_| assert_eq!(store.durable(), Applied::default(), "it does not rest"));
    }
    assert_eq!(store.durable(), store.applied());
    let before = disk.io_count();
    (0..10).for_each(|_| drop(store.durable()));
    store.checkpoint().unwrap();
    assert_eq!(disk.io_count(), before, "there is nothing to write");
}

/// A disk with the state after a few entries, and its bytes.
fn saved() -> (SimDisk, Vec<u8>) {
    let disk = SimDisk::new(1);
    let store = open_on(&disk).unwrap();
    apply(&store, &program(20));
    store.checkpoint().unwrap();
    let disk = disk.kill();
    let bytes = read_file(&disk, &dir().join("state"), STATE_BYTES_MAX).unwrap();
    (disk, bytes)
}

#[test]
fn a_damaged_file_is_not_opened() {
    let (disk, bytes) = saved();
    let open = |bytes: &[u8]| {
        disk.plant(&dir().join("state"), bytes).unwrap();
        open_on(&disk).map(|store| applied(&store))
    };
    assert_eq!(open(&bytes), Ok(Some(19)));
    let is_damage = |found: Result<Option<u64>, StoreFault>| match found {
        Err(StoreFault::Damaged(text)) => text.contains("/second/state"),
        _ => false,
    };
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        assert!(is_damage(open(&other)), "{at}");
        assert!(is_damage(open(&bytes[..at])), "{at}");
    }
    assert!(is_damage(open(&[&bytes[..], &[0]].concat())));
}

#[test]
fn a_file_that_cannot_be_read_is_not_taken_for_a_missing_one() {
    let (disk, _) = saved();
    disk.fail_read_after(0);
    assert!(matches!(open_on(&disk), Err(StoreFault::Io(_))));
    assert_eq!(applied(&open_on(&disk).unwrap()), Some(19));
}

#[test]
fn a_file_of_another_group_or_level_is_not_opened() {
    let (disk, _) = saved();
    let open = |identity, level| MemoryStore::open(Arc::new(disk.clone()), dir(), identity, level, options());
    let others = [
        StoreIdentity { cluster: 8, ..IDENTITY },
        StoreIdentity { epoch: Epoch(2), ..IDENTITY },
        StoreIdentity { group: GroupId(1), ..IDENTITY },
    ];
    for other in others {
        let fault = open(other, FORMAT_LEVEL).unwrap_err();
        assert!(matches!(&fault, StoreFault::Io(text) if text.contains("belong to")), "{fault}");
    }
    let fault = open(IDENTITY, FORMAT_LEVEL - 1).unwrap_err();
    assert!(matches!(fault, StoreFault::Unsupported(_)), "{fault}");
    assert_eq!(applied(&open(IDENTITY, FORMAT_LEVEL).unwrap()), Some(19));
}

#[test]
fn what_an_attempt_left_behind_is_removed() {
    let (disk, _) = saved();
    disk.plant(&dir().join("state.new"), b"torn").unwrap();
    let store = open_on(&disk).unwrap();
    let names: Vec<_> = disk.list(dir()).unwrap().into_iter().map(|item| item.name).collect();
    assert_eq!(names, ["state"]);
    assert_eq!(applied(&store), Some(19));
}
