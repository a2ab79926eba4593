//! Random programs: the operations that a node may submit to its log, in any order, with steps of the writer and the
//! keeper in between.

use bytes::Bytes;
use quorate_env::Rng;
use quorate_env::worker::Worker;
use quorate_model::{GroupId, LogId, NodeId};
use quorate_wal::Durability;

use super::model::Op;
use super::world::{Failure, GROUPS, World};

/// The maximum length of most entries.
const LARGE: u64 = 2000;

/// Runs `length` operations, each followed by some steps of the writer and the keeper.
pub fn run(world: &mut World, rng: &Rng, length: u64) -> Result<(), Failure> {
    for _ in 0..length {
        // A stopped log rejects everything.
        if world.log.wal.stopped().is_none() {
            operation(world, rng);
        }
        for _ in 0..rng.below(4) {
            match rng.below(3) {
                0 => drop(world.log.keeper.run_once()),
                _ => drop(world.write()),
            }
        }
        if rng.below(8) == 0 {
            world.compare()?;
        }
    }
    if rng.below(3) == 0 {
        world.settle();
        world.compare()?;
    }
    if rng.below(10) == 0 {
        world.tally.count("end: clean close");
        world.close();
    }
    Ok(())
}

fn operation(world: &mut World, rng: &Rng) {
    let (group, durability) = GROUPS[rng.below(5).saturating_sub(3) as usize];
    match rng.below(24) {
        0..=11 => append(world, rng, group, durability),
        12..=13 => save_vote(world, rng, group),
        14 => save_identity(world, rng),
        15..=16 => save_committed(world, rng, group),
        17..=18 => truncate(world, rng, group),
        19..=21 => purge(world, rng, group),
        22 => drop(world.log.wal.cut_active(world.done(true))),
        _ => accept_reboot(world),
    }
}

fn append(world: &mut World, rng: &Rng, group: GroupId, durability: Durability) {
    let next = world.model.now.group(group).next();
    let term = 1 + world.model.len() as u64 / 5;
    let count = if rng.below(30) == 0 { 0 } else { 1 + rng.below(4) };
    let entries: Vec<(LogId, Bytes)> = (next..next + count)
        .map(|index| (LogId { term, node: NodeId(term % 3), index }, payload(world, rng)))
        .collect();
    // The model is updated first, so that the completion covers these entries.
    for (id, bytes) in &entries {
        world.model.push(Op::Entry(group, *id, bytes.clone()));
    }
    let done = world.done(durability == Durability::Fsync);
    world.log.wal.append(group, entries, done).expect("the log works and nothing is missing");
}

fn payload(world: &mut World, rng: &Rng) -> Bytes {
    let len = match rng.below(120) {
        0 => 17_000 + rng.below(4_000),
        1..=9 => rng.below(LARGE),
        _ => rng.below(100),
    };
    if len > 16_384 {
        world.tally.count("log: frame larger than a segment");
    }
    let mut bytes = vec![b'x'; len as usize];
    if rng.below(2) == 0 {
        rng.fill(&mut bytes);
    }
    bytes.into()
}

fn save_vote(world: &mut World, rng: &Rng, group: GroupId) {
    let vote = Bytes::from(rng.next_u64().to_le_bytes().to_vec());
    world.model.push(Op::Vote(group, vote.clone()));
    world.log.wal.save_vote(group, vote, world.done(true)).expect("the log works");
}

fn save_identity(world: &mut World, rng: &Rng) {
    let identity = Bytes::from(rng.next_u64().to_le_bytes().to_vec());
    world.model.push(Op::Identity(identity.clone()));
    world.log.wal.save_identity(identity, world.done(true)).expect("the log works");
}

fn save_committed(world: &mut World, rng: &Rng, group: GroupId) {
    let entries: Vec<LogId> = world.model.now.group(group).entries.values().map(|(id, _)| *id).collect();
    if let Some(id) = entries.get(rng.below(entries.len() as u64) as usize)
        && world.log.wal.save_committed(group, *id).is_ok()
    {
        let highest = world.model.committed.entry(group).or_insert(*id);
        *highest = if highest.index < id.index { *id } else { *highest };
    }
}

fn truncate(world: &mut World, rng: &Rng, group: GroupId) {
    let known = world.model.now.group(group);
    let floor = known.floor.map(|floor| floor.index);
    let to = match (rng.below(4), floor) {
        (0, floor) => floor,
        (_, floor) => {
            let low = floor.unwrap_or(0);
            Some(low + rng.below((known.next() - low).max(1)))
        }
    };
    let (is_cut, had) = (to.is_none_or(|to| to + 1 < known.next()), !known.entries.is_empty());
    if to.is_none_or(|to| Some(to) == floor || known.entries.contains_key(&to))
        && world.log.wal.truncate_after(group, to).is_ok()
    {
        if is_cut && had {
            world.tally.count("log: entries replaced after truncation");
        }
        world.model.push(Op::Truncate(group, to));
    }
}

fn purge(world: &mut World, rng: &Rng, group: GroupId) {
    let known = world.model.now.group(group);
    let ids: Vec<LogId> = known.entries.values().map(|(id, _)| *id).collect();
    let upto = match (rng.below(5), ids.last()) {
        (0, _) => {
            world.tally.count("log: purged beyond the end");
            LogId { term: 99, node: NodeId(1), index: known.next() + rng.below(5) }
        }
        (1, Some(last)) => *last,
        _ => match ids.get(rng.below(ids.len() as u64) as usize) {
            Some(id) => *id,
            None => return,
        },
    };
    if world.log.wal.purge(group, upto).is_ok() {
        world.model.push(Op::Purge(group, upto));
    }
}

fn accept_reboot(world: &mut World) {
    let acknowledged = std::sync::Arc::new(std::sync::Mutex::new(false));
    let (flag, complete) = (std::sync::Arc::clone(&acknowledged), world.done(true));
    let done = Box::new(move |result: Result<(), _>| {
        *flag.lock().unwrap() = result.is_ok();
        complete(result);
    });
    if world.log.wal.accept_reboot(done).is_ok() {
        world.settle();
        // Without an acknowledgement, the next opening may report the restart or not.
        world.accept(*acknowledged.lock().unwrap());
    }
}
