//! Memory is counted by scope, and for all scopes of reads together.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use quorate_env::Env;

use super::*;

const MIB: usize = 1 << 20;

fn temp(dir: &tempfile::TempDir) -> Arc<Temp> {
    let vfs = crate::vfs::over(None).unwrap();
    Temp::of_reader(&TempSpace::make(Env::real().disk(), &vfs, dir.path()).unwrap())
}

#[test]
fn a_scope_has_so_much_memory_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let temp = temp(&dir);
    assert!(grow(10 * MIB), "outside of a scope nothing is counted");
    let scope = Scope::enter(10 * MIB, false, &temp);
    assert!(grow(6 * MIB) && !grow(5 * MIB) && grow(4 * MIB));
    shrink(5 * MIB);
    assert!(grow(5 * MIB) && !grow(1));
    assert_eq!(take().map(|refused| refused.refusal), Some(Refusal::Memory(10 * MIB)));
    drop(scope);
    let _scope = Scope::enter(10 * MIB, false, &temp);
    shrink(100 * MIB);
    assert!(grow(10 * MIB) && !grow(1), "what was there before gives nothing");
}

#[test]
fn an_entry_that_is_tried_again_has_twice_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let temp = temp(&dir);
    let cache = 256 * MIB as u32;
    let max = Bounds::get().writer + cache as usize;
    let _scope = Scope::write(cache, &temp);
    assert!(!grow(max + 1));
    be_generous(true);
    assert!(grow(max + 1) && grow(max - 1) && !grow(1));
    shrink(2 * max);
    be_generous(false);
    assert!(!grow(max + 1), "the next entry has what it always has");
}

#[test]
fn a_statement_that_asks_for_many_blocks_ends_when_its_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let temp = temp(&dir);
    let refusals = |time_max| {
        watch(u64::MAX, None, time_max);
        let refused = (0..LOOK_EVERY * 3).filter(|_| !ask(100)).count();
        unwatch();
        refused
    };
    let _scope = Scope::enter(10 * MIB, false, &temp);
    // The time runs from the first of three looks.
    assert_eq!(refusals(Duration::ZERO), 2);
    assert_eq!(take().map(|refused| refused.refusal), Some(Refusal::Time(Duration::ZERO)));
    assert_eq!(refusals(Duration::from_secs(3600)), 0);
    assert_eq!(refusals(Duration::MAX), 0);
    assert!(take().is_none());
    watch(u64::MAX, Some(Instant::now()), Duration::ZERO);
    assert!(!ask(LOOK_EVERY * LOOK_BYTES), "its beginning is known");
    unwatch();
    watch(u64::MAX, None, Duration::ZERO);
    let large = LOOK_EVERY * LOOK_BYTES;
    assert!(ask(large) && !ask(large) && !ask(large), "each large block is a look");
    unwatch();
}

#[test]
fn a_process_that_may_get_little_memory_gives_its_statements_a_part_of_that() {
    let figures = |room| {
        let Bounds { query, queries, writer } = Bounds::of(room);
        (query / MIB, queries / MIB, writer / MIB)
    };
    assert_eq!(figures(None), (256, 1024, 512));
    assert_eq!(figures(Some(256 << 20)), (32, 32, 32));
    assert_eq!(figures(Some(3 << 30)), (256, 384, 384));
    assert_eq!(figures(Some(0)), (0, 0, 0));
}

#[test]
fn a_statement_moves_so_many_bytes_while_it_is_watched() {
    let dir = tempfile::tempdir().unwrap();
    let temp = temp(&dir);
    let _scope = Scope::enter(10 * MIB, false, &temp);
    watch(20 << 20, None, Duration::MAX);
    assert!(grow(8 * MIB));
    shrink(8 * MIB);
    assert!(grow(8 * MIB));
    shrink(8 * MIB);
    assert!(!grow(8 * MIB));
    assert_eq!(take().map(|refused| refused.refusal), Some(Refusal::Moved(20 << 20)));
    unwatch();
    assert!(grow(8 * MIB));
}

#[test]
fn all_queries_together_have_so_much_memory() {
    let dir = tempfile::tempdir().unwrap();
    let temp = temp(&dir);
    let (ready, wait) = (std::sync::Barrier::new(5), std::sync::Barrier::new(5));
    let part = QUERIES_MEMORY_MAX / 4;
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let _scope = Scope::enter(part, true, &temp);
                // Other tests of this process have a little too.
                assert!(grow(part - 8 * MIB));
                ready.wait();
                wait.wait();
            });
        }
        ready.wait();
        {
            let _scope = Scope::enter(part, true, &temp);
            assert!(!grow(part));
            assert_eq!(take().map(|refused| refused.refusal), Some(Refusal::MemoryOfReads));
        }
        {
            let _scope = Scope::enter(part, false, &temp);
            assert!(grow(part), "the writer's is not of theirs");
        }
        wait.wait();
    });
    let _scope = Scope::enter(part, true, &temp);
    assert!(grow(part), "what they had is free again");
}

/// Set in the process that has not used SQLite before, whose allocator can be ours.
const CHILD: &str = "QUORATE_TEST_CHILD";

/// Runs the test of this name in a process of its own.
pub(crate) fn in_its_own_process(name: &str, test: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let done = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_text_that_finds_no_memory_for_its_end_fails_the_read_and_is_no_panic() {
    let name = "usage::tests::a_text_that_finds_no_memory_for_its_end_fails_the_read_and_is_no_panic";
    in_its_own_process(name, read_without_memory);
}

fn read_without_memory() {
    let dir = tempfile::tempdir().unwrap();
    let temp = temp(&dir);
    let vfs = crate::vfs::over(None).unwrap();
    let flags = rusqlite::OpenFlags::default();
    let conn = rusqlite::Connection::open_with_flags_and_vfs(dir.path().join("db"), flags, vfs.as_str()).unwrap();
    let mut statement = conn.prepare("SELECT CAST(randomblob(1000000) AS TEXT)").unwrap();
    let _scope = Scope::enter(10 * MIB, false, &temp);
    let mut rows = statement.raw_query();
    let row = rows.next().unwrap().unwrap();
    HERE.with(|here| here.memory_max.set(here.memory.get()));
    let read = contain(|| -> Result<usize, StoreFault> { Ok(row.get_ref(0).unwrap().as_bytes().unwrap().len()) });
    assert_eq!(read, Err(NoMemory.into()));
}
