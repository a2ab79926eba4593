//! What commands cost a store, with its checkpoints, to be measured by hand on a quiet machine:
//! `cargo test --release -p quorate-sql -- --ignored --nocapture what_commands_cost_a_store`.

use bytes::Bytes;
use quorate_model::keys::{AddOptions, End, HashCommand, ListCommand, SetCommand, SortedSetCommand, SpaceCommand};

use super::*;
use crate::machine::tests::START;
use crate::store::SqlStore;
use crate::store::tests::{Home, apply, entry_at, home, open, options};

/// The elements of each structure.
const ELEMENTS: u64 = 1_000_000;
/// The elements that are spread over several keys.
const KEYS: u64 = 10_000;
/// The commands of a measurement.
const COMMANDS: u64 = 200_000;
/// The entries that are applied together.
const BATCH: usize = 64;
/// Ticks of the processor time of a process in a second.
const TICKS: f64 = 100.0;

struct Measured {
    store: SqlStore,
    applied: u64,
    _home: Home,
}

impl Measured {
    fn new() -> Self {
        let home = home();
        Self { store: open(&home.dir, options()), applied: 0, _home: home }
    }

    /// Runs a command for each number of a range; returns the processor time of one in microseconds.
    fn run(&mut self, numbers: std::ops::Range<u64>, command: impl Fn(u64) -> KeysCommand) -> f64 {
        let count = numbers.end - numbers.start;
        let entries = (self.applied + 1..)
            .zip(numbers)
            .map(|(index, number)| entry_at(index, START + index, SpaceCommand { space: 0, command: command(number) }));
        let entries: Vec<_> = entries.collect();
        self.applied += count;
        let begun = ticks();
        for batch in entries.chunks(BATCH) {
            let done = apply(&self.store, batch.to_vec()).unwrap();
            assert!(done.into_iter().flatten().all(|outcome| outcome.is_ok()));
        }
        (ticks() - begun) / TICKS * 1e6 / count as f64
    }

    /// Prints what the last new elements cost, and then what random elements cost again.
    fn print(
        &mut self,
        what: &str,
        elements: u64,
        new: impl Fn(u64) -> KeysCommand,
        again: impl Fn(u64) -> KeysCommand,
    ) {
        let last = elements - COMMANDS.min(elements / 2);
        self.run(0..last, &new);
        let new = self.run(last..elements, new);
        let again = self.run(0..COMMANDS, |number| again(number * 7_919 % elements));
        println!("{what}: {new:.1} us new, {again:.1} us again");
    }
}

/// The processor time of this process.
fn ticks() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after) = stat.rsplit_once(") ").unwrap();
    after.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum()
}

/// Returns a name for each number, in no order.
fn key(name: &str, number: u64) -> Bytes {
    format!("{name} {:012}", number * 618_033_988_749 % 1_000_000_000_000).into()
}

fn string(number: u64, bytes: usize) -> KeysCommand {
    let (key, value) = (key("a key of 24 b", number), vec![number as u8; bytes].into());
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    KeysCommand::String(StringCommand::Set { key, value, condition, expiry, get: false })
}

fn field(hash: Bytes, number: u64, byte: u8) -> KeysCommand {
    let fields = vec![(key("field", number), vec![byte; 100].into())];
    KeysCommand::Hash(HashCommand::Set { key: hash, fields, condition: Condition::Always, expiry: Expiry::Never })
}

fn member(number: u64) -> KeysCommand {
    let members = vec![key("member", number)];
    KeysCommand::Set(SetCommand::Add { key: "set".into(), members, expiry: Expiry::Never })
}

fn scored(number: u64, score: f64) -> KeysCommand {
    let members = vec![(score, key("member", number))];
    let options = AddOptions::default();
    KeysCommand::SortedSet(SortedSetCommand::Add { key: "zset".into(), members, options, count_changed: false })
}

fn push(key: Bytes) -> KeysCommand {
    KeysCommand::List(ListCommand::Push { key, values: vec![vec![7; 100].into()], end: End::Right, existing: false })
}

fn pop(key: Bytes) -> KeysCommand {
    KeysCommand::List(ListCommand::Pop { key, count: 1, end: End::Left })
}

fn add(key: Bytes) -> KeysCommand {
    KeysCommand::String(StringCommand::Add { key, by: 1 })
}

#[test]
#[ignore = "measures"]
fn what_commands_cost_a_store() {
    let fresh = Measured::new;
    fresh().print("SET of 100 bytes, 100,000 keys", 100_000, |n| string(n, 100), |n| string(n, 100));
    fresh().print("SET of 100 bytes, 1,000,000 keys", ELEMENTS, |n| string(n, 100), |n| string(n, 100));
    fresh().print("SET of 1 KB, 100,000 keys", 100_000, |n| string(n, 1_000), |n| string(n, 1_000));
    fresh().print("INCR of 100,000 keys", 100_000, |n| add(key("n", n)), |n| add(key("n", n)));
    fresh().print("INCR of one key", 100_000, |_| add("n".into()), |_| add("n".into()));
    let spread = |n| key("hash", n % KEYS);
    fresh().print("HSET in 10,000 hashes", ELEMENTS, |n| field(spread(n), n, 1), |n| field(spread(n), n, 2));
    fresh().print("HSET in one hash", ELEMENTS, |n| field("hash".into(), n, 1), |n| field("hash".into(), n, 2));
    fresh().print("SADD", ELEMENTS, member, member);
    let score = |n: u64| (n * 7_919 % ELEMENTS) as f64;
    fresh().print("ZADD", ELEMENTS, |n| scored(n, score(n)), |n| scored(n, score(n) + 0.5));
    fresh().print("RPUSH, and LPOP, one list", ELEMENTS, |_| push("list".into()), |_| pop("list".into()));
    let spread = |n| key("list", n * 7_919 % KEYS);
    fresh().print("RPUSH, and LPOP, 10,000 lists", ELEMENTS, |n| push(spread(n)), |n| pop(spread(n)));
}
