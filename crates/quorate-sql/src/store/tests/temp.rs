//! Limits of the temporary files that entries use.

use super::*;
use crate::usage::TempOptions;

/// Sorts about 20 MB, and keeps none of it.
const SORT: &str = "INSERT INTO t SELECT NULL, x FROM (WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL
    SELECT i + 1 FROM n WHERE i < 20000) SELECT hex(zeroblob(500)) || i AS x FROM n ORDER BY x DESC LIMIT -1 OFFSET 1)
    WHERE x = ''";

fn small(all: u64) -> (Home, SqlStore) {
    let home = home();
    let temp = TempOptions { per_query: 1, all };
    let store = open(&home.dir, StoreOptions { temp, writer_cache_bytes: 1 << 20, ..options() });
    apply(&store, vec![create_table()]).unwrap();
    (home, store)
}

#[test]
fn an_entry_beyond_its_temporary_space_is_a_fault() {
    let (_home, store) = small(4 << 20);
    let fault = apply(&store, vec![entry(2, SORT, Vec::new())]).unwrap_err();
    assert!(matches!(&fault, StoreFault::TooMuch(what) if what.contains("'sql.temp_bytes'")), "{fault}");
    let (_home, store) = small(256 << 20);
    assert!(apply(&store, vec![entry(2, SORT, Vec::new())]).unwrap()[0].as_ref().unwrap().is_ok());
}

#[test]
fn an_entry_that_moves_too_many_bytes_can_be_retried() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table()]).unwrap();
    let Entry { payload: Payload::Proposal(stamp, bytes), log_id } = entry(2, SORT, Vec::new()) else { panic!() };
    let proposal = Proposal { budget: 1 << 20, ..codec::decode_proposal(&bytes).unwrap() };
    let bytes = codec::encode_proposal(&proposal).unwrap();
    let small = Entry { payload: Payload::Proposal(stamp, bytes), log_id };
    let fault = apply(&store, vec![small.clone()]).unwrap_err();
    let moves = "moves more than 16777216 bytes";
    let is_refused = matches!(&fault, StoreFault::TooMuch(what) if what.contains(moves));
    // On a busy machine the time of such a small budget may end it first.
    assert!(is_refused || matches!(fault, StoreFault::Slow(_)), "{fault}");
    // With each attempt, it may move four times as many bytes.
    let done = (0..3).find_map(|_| apply(&store, vec![small.clone()]).ok()).unwrap();
    assert!(done[0].as_ref().unwrap().is_ok());
}

#[test]
fn stored_data_of_any_size_can_be_sorted_and_vacuumed() {
    let home = home();
    let temp = TempOptions { per_query: 1, all: 1 };
    let options = StoreOptions { temp, writer_cache_bytes: 1 << 20, checkpoint_bytes: 1 << 20, ..options() };
    let store = open(&home.dir, options);
    apply(&store, vec![create_table()]).unwrap();
    apply(&store, (2..=4000).map(|index| insert(index, 2000)).collect()).unwrap();
    until("most of it is in the main file", || store.sizes().database > 7 << 20);
    let done = apply(&store, vec![entry(4001, "CREATE INDEX i ON t (v)", Vec::new())]).unwrap();
    assert!(done[0].as_ref().unwrap().is_ok(), "{done:?}");
    let bytes = codec::encode_proposal(&Proposal::new(None, vec![SqlCommand::Vacuum.into()])).unwrap();
    let vacuum = Entry { payload: Payload::Proposal(Stamp::default(), bytes), ..insert(4002, 0) };
    let done = apply(&store, vec![vacuum]).unwrap();
    assert!(done[0].as_ref().unwrap().is_ok(), "{done:?}");
}
