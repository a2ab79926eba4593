//! What commands of pipelines cost, to be measured by hand:
//! `cargo test --release -p quorate-sql -- --ignored --nocapture what_a_pipeline_costs`.

use quorate_env::Instant;

use super::*;

const ENTRIES: u64 = 2_000;
const COMMANDS: u64 = 16;

/// The time for each command, applied in batches of 50 entries.
fn nanos(command: impl Fn(u64) -> KeysCommand, mode: Mode) -> u128 {
    let mut node = Node::new();
    let proposal = |entry: u64| {
        let commands = (0..COMMANDS).map(|number| keys(command(entry * COMMANDS + number))).collect();
        Proposal { mode, ..Proposal::new(None, commands) }
    };
    let entries: Vec<_> = (1..=ENTRIES).map(|index| stamped(index, START + index, &proposal(index))).collect();
    let begun = Instant::now();
    for batch in entries.chunks(50) {
        node.apply(batch);
    }
    begun.elapsed().as_nanos() / u128::from(ENTRIES * COMMANDS)
}

#[test]
#[ignore = "measures"]
fn what_a_pipeline_costs() {
    let set = |number: u64| {
        let (key, value) = (format!("key {}", number * 7_919 % 10_000).into(), vec![7; 100].into());
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        KeysCommand::String(StringCommand::Set { key, value, condition, expiry, get: false })
    };
    // Needs a savepoint in a pipeline, because of its reply.
    let swap = |number: u64| match set(number) {
        KeysCommand::String(StringCommand::Set { key, value, condition, expiry, .. }) => {
            KeysCommand::String(StringCommand::Set { key, value, condition, expiry, get: true })
        }
        other => other,
    };
    let add = |_| KeysCommand::String(StringCommand::Add { key: "n".into(), by: 1 });
    for mode in [Mode::Atomic, Mode::Pipeline, Mode::Atomic, Mode::Pipeline] {
        let [set, swap, add] = [nanos(set, mode), nanos(swap, mode), nanos(add, mode)];
        println!("{mode:?}: SET {set} ns, SET with GET {swap} ns, INCR {add} ns");
    }
}
