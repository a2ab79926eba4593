//! Images of the store, and faults that only an image ends.

use super::*;
use crate::waits::Woken;

const ENTRIES: u64 = 30;

/// A store that has applied the whole program.
fn source() -> Arc<MemoryStore> {
    let store = open();
    apply(&store, &program(ENTRIES));
    store
}

/// The pieces of a store's image.
fn pieces(store: &MemoryStore) -> Vec<Bytes> {
    let mut source = store.send_image().unwrap();
    assert_eq!(source.begun_at(), store.applied());
    std::iter::from_fn(|| source.next().unwrap()).collect()
}

/// Hands over pieces, and returns how receiving them ends, without installing anything.
fn receive(store: &MemoryStore, pieces: &[Bytes]) -> Result<Box<dyn WholeImage>, StoreFault> {
    let mut sink = store.receive_image().unwrap();
    pieces.iter().try_for_each(|piece| sink.write(piece.clone()))?;
    sink.finish()
}

#[test]
fn an_image_replaces_the_state_durably_and_wakes_all_waiters() {
    let (source, entries, disk) = (source(), program(ENTRIES + 5), SimDisk::new(2));
    let store = open_on(&disk).unwrap();
    apply(&store, &entries[..4]);
    let mut waiter = store.waits().register(quorate_model::Topic(1)).unwrap();
    let image = receive(&store, &pieces(&source)).unwrap();
    assert_eq!(image.end(), source.applied().log_id);
    assert_eq!((applied(&store), store.waits().count()), (Some(3), 1), "it is not installed yet");
    assert_eq!(image.install().unwrap(), source.applied());
    assert_eq!(poll(&mut pin!(waiter.woken())), Poll::Ready(Woken::Replaced));
    assert_eq!((store.applied(), store.durable()), (source.applied(), source.applied()));
    assert_eq!((state(&store), store.hashes()), (state(&source), source.hashes()));
    assert_eq!((store.rejections(), store.rejections().is_empty()), (source.rejections(), false));
    // The entries up to its end may be handed over again. Retries of them are recognized.
    let outcomes = apply(&store, &entries);
    assert!(outcomes[..ENTRIES as usize].iter().all(Option::is_none));
    let expected = Expected::of(&entries);
    assert_eq!(outcomes.into_iter().flatten().collect::<Vec<_>>(), expected.outcomes[ENTRIES as usize..]);
    assert_eq!(state(&store), expected.states[ENTRIES as usize + 4]);
    let store = open_on(&disk.crash()).unwrap();
    assert_eq!((store.applied(), state(&store)), (source.applied(), state(&source)));
}

#[test]
fn pieces_are_bounded_and_may_be_empty() {
    let source = source();
    let pieces = pieces(&source);
    assert!(pieces.len() > 3 && pieces.iter().all(|piece| (1..=100).contains(&piece.len())));
    let store = open();
    let with_empty: Vec<_> = pieces.into_iter().flat_map(|piece| [Bytes::new(), piece]).collect();
    receive(&store, &with_empty).unwrap().install().unwrap();
    assert_eq!(state(&store), state(&source));
    // The size has limits of its own.
    let bytes = Bytes::from(vec![0; PIECE_BYTES_MAX + 1]);
    for (asked, given) in [(0, 1), (usize::MAX, PIECE_BYTES_MAX)] {
        let mut source = image::Source::new(Applied::default(), bytes.clone(), asked);
        assert_eq!(source.next().unwrap().map(|piece| piece.len()), Some(given));
    }
}

#[test]
fn a_wrong_image_is_given_up() {
    let (source, store) = (source(), open());
    let pieces = pieces(&source);
    let mut damaged = pieces.clone();
    damaged[1] = damaged[1].iter().map(|byte| byte ^ 1).collect();
    let mut swapped = pieces.clone();
    swapped.swap(1, 2);
    let other = StoreIdentity { group: GroupId(1), ..IDENTITY };
    let disk = Arc::new(SimDisk::new(3));
    let other = MemoryStore::open(disk, dir(), other, FORMAT_LEVEL, options()).unwrap();
    let wrong = [
        receive(&store, &pieces[1..]),
        receive(&store, &pieces[..pieces.len() - 1]),
        receive(&store, &[]),
        receive(&store, &damaged),
        receive(&store, &swapped),
        receive(&other, &pieces),
    ];
    for (case, image) in wrong.into_iter().enumerate() {
        let fault = image.map(|image| image.end()).unwrap_err();
        assert!(matches!(fault, StoreFault::ImageLost(_)), "{case}: {fault}");
    }
    let old = MemoryStore::open(Arc::new(SimDisk::new(4)), dir(), IDENTITY, FORMAT_LEVEL - 1, options()).unwrap();
    let fault = receive(&old, &pieces).map(|image| image.end()).unwrap_err();
    assert!(matches!(fault, StoreFault::Unsupported(_)), "{fault}");
    assert_eq!((applied(&store), store.fault()), (None, None));
}

#[test]
fn an_image_that_is_too_long_is_given_up() {
    let store = open();
    let mut sink = store.receive_image().unwrap();
    let piece = Bytes::from(vec![0; STATE_BYTES_MAX as usize]);
    sink.write(piece.slice(1..)).unwrap();
    sink.write(piece.slice(..1)).unwrap();
    assert!(matches!(sink.write(piece.slice(..1)), Err(StoreFault::ImageLost(_))));
}

#[test]
fn the_state_never_goes_back() {
    let (source, entries) = (source(), program(ENTRIES + 1));
    let store = open();
    apply(&store, &entries[..5]);
    let image = receive(&store, &pieces(&source)).unwrap();
    let same = receive(&store, &pieces(&source)).unwrap();
    apply(&store, &entries[5..ENTRIES as usize]);
    // An image of the same entry may replace a state that was condemned.
    assert_eq!(same.install().unwrap(), source.applied());
    apply(&store, &entries[ENTRIES as usize..]);
    let before = (store.applied(), state(&store), store.durable());
    let fault = image.install().unwrap_err();
    assert!(matches!(fault, StoreFault::ImageLost(_)), "{fault}");
    assert_eq!((store.applied(), state(&store), store.durable()), before);
}

#[test]
fn an_image_is_durable_before_it_is_served() {
    let (source, entries) = (source(), program(ENTRIES));
    let pieces = pieces(&source);
    for (seed, stop) in (0..8).flat_map(|seed| (0..6).map(move |stop| (seed, stop))) {
        let disk = SimDisk::new(seed);
        let store = open_on(&disk).unwrap();
        apply(&store, &entries[..9]);
        let (old, new) = ((store.applied(), state(&store)), (source.applied(), state(&source)));
        let image = receive(&store, &pieces).unwrap();
        disk.stop_after(stop);
        let installed = image.install();
        // Creating, writing, syncing and renaming the file, and syncing its name.
        assert_eq!((installed.is_ok(), disk.has_stopped()), (stop > 4, stop <= 4));
        let served = (store.applied(), state(&store));
        assert_eq!(served, if installed.is_ok() { new.clone() } else { old.clone() });
        assert_eq!(store.durable(), served.0);
        let store = open_on(&disk.crash()).unwrap();
        let found = (store.applied(), state(&store));
        assert!(found == new || (found == old && installed.is_err()), "seed {seed}, stop {stop}");
    }
}

#[test]
fn a_condemned_store_waits_for_an_image() {
    let (source, entries, disk) = (source(), program(ENTRIES + 1), SimDisk::new(5));
    let store = open_on(&disk).unwrap();
    apply(&store, &entries[..5]);
    let diverged = StoreFault::Diverged("by a test".to_owned());
    store.condemn(&diverged);
    assert_eq!(store.fault(), Some(diverged.clone()));
    assert_eq!(hand_over(&store, &entries[5..8]), [Err(diverged.clone())]);
    assert_eq!((applied(&store), store.checkpoint()), (Some(4), Err(diverged.clone())));
    assert_eq!(store.send_image().map(|source| source.begun_at()), Err(diverged));
    // A later fault does not hide one that is final.
    let broken = StoreFault::Io("by a test".to_owned());
    store.condemn(&broken);
    store.condemn(&StoreFault::Diverged("again".to_owned()));
    assert_eq!(store.fault(), Some(broken));
    (0..9).for_each(|_| assert_eq!(store.durable(), Applied::default(), "a state that may be wrong is not kept"));
    copy(&source, &store).unwrap();
    assert_eq!((store.fault(), store.applied()), (None, source.applied()));
    apply(&store, &entries[ENTRIES as usize..]);
    assert_eq!(applied(&store), Some(ENTRIES));
}
