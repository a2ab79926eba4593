//! Tests of the limits: memory is counted by scope, and for all scopes of reads together.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use quorate_env::Env;

use super::*;

const MIB: usize = 1 << 20;

fn temp(dir: &tempfile::TempDir) -> Arc<Temp> {
    let vfs = crate::vfs::over(None).unwrap();
    Temp::of_reader(&TempSpace::make(Env::real().disk(), &vfs, dir.path()).unwrap())
}

#[test]
fn a_scope_limits_memory() {
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
    assert!(grow(10 * MIB) && !grow(1), "memory from before the scope frees nothing");
}

#[test]
fn a_retried_entry_gets_twice_the_memory() {
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
    assert!(!grow(max + 1), "the next entry has the usual limit");
}

#[test]
fn a_statement_that_allocates_ends_at_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let temp = temp(&dir);
    let refusals = |time_max| {
        watch(u64::MAX, None, time_max);
        let refused = (0..LOOK_EVERY * 3).filter(|_| !ask(100)).count();
        unwatch();
        refused
    };
    let _scope = Scope::enter(10 * MIB, false, &temp);
    // The time counts from the first of three checks.
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
    assert!(ask(large) && !ask(large) && !ask(large), "each large block is a check");
    unwatch();
}

#[test]
fn statement_limits_are_a_part_of_the_available_memory() {
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
fn moved_bytes_are_limited_while_watched() {
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
fn all_queries_share_a_memory_limit() {
    let dir = tempfile::tempdir().unwrap();
    let temp = temp(&dir);
    let (ready, wait) = (std::sync::Barrier::new(5), std::sync::Barrier::new(5));
    let part = QUERIES_MEMORY_MAX / 4;
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let _scope = Scope::enter(part, true, &temp);
                // Other tests of this process use a little memory too.
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
            assert!(grow(part), "the writer's memory is not the queries'");
        }
        wait.wait();
    });
    let _scope = Scope::enter(part, true, &temp);
    assert!(grow(part), "their memory is free again");
}

/// The environment variable that marks a child process. Only a process that has not used SQLite before can install the
/// store's allocator.
const CHILD: &str = "QUORATE_TEST_CHILD";

/// Runs the test with this name in a separate process.
pub(crate) fn in_its_own_process(name: &str, test: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let done = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn no_memory_for_the_nul_of_a_text_is_an_error() {
    let name = "usage::tests::no_memory_for_the_nul_of_a_text_is_an_error";
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
