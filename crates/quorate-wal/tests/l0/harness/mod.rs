//! The model check of the log, L0: runs random programs on a simulated disk, stops them at every point, and compares
//! the log with a model.
//!
//! A program is a seed. It runs once to count its I/O operations, then once for each of them with the disk stopped at
//! that operation, then with faults and damage at random places. After each end the log is reopened and checked, and
//! the program continues.

#![allow(dead_code, reason = "the test and the example use different parts")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]
#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use quorate_env::Rng;
use quorate_env_sim::Fault;
use quorate_wal::WalOptions;

mod model;
mod program;
mod tally;
mod world;

pub use tally::Tally;
use world::{End, Failure, World};

/// What goes wrong in the first run of a case.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Nothing before the run ends.
    None,
    /// The disk stops at this I/O operation.
    Stop(u64),
    /// This I/O operation fails.
    Fail(u64, Fault),
    /// The sync after this I/O operation fails.
    Sync(u64),
    /// The disk is full until the run ends.
    Full,
    /// A bit is flipped after the run.
    Flip,
}

/// A failed case, and how to run it again.
#[derive(Debug)]
pub struct Broken {
    pub program: u64,
    pub number: u64,
    pub trouble: Trouble,
    pub failure: Failure,
}

/// Runs all cases of a program and returns their number.
pub fn run_program(program: u64, tally: &mut Tally) -> Result<u64, Broken> {
    let count = run_case(program, 0, Trouble::None, tally)?;
    let rng = Rng::from_seed(program ^ 0x7072_6f67);
    let mut troubles: Vec<Trouble> = (0..count).map(Trouble::Stop).collect();
    for _ in 0..count / 4 + 1 {
        troubles.push(Trouble::Fail(rng.below(count + 1), Fault::Io));
        troubles.push(Trouble::Fail(rng.below(count + 1), Fault::NoSpace));
        troubles.push(Trouble::Sync(rng.below(count + 1)));
        troubles.extend([Trouble::Flip, Trouble::Flip, Trouble::Full]);
    }
    for (number, trouble) in (1..).zip(&troubles) {
        run_case(program, number, *trouble, tally)?;
    }
    Ok(troubles.len() as u64 + 1)
}

/// Runs one case; returns the number of I/O operations of its first run.
pub fn run_case(program: u64, number: u64, trouble: Trouble, tally: &mut Tally) -> Result<u64, Broken> {
    let broken = |failure| Broken { program, number, trouble, failure };
    let fate = Rng::from_seed(program.wrapping_mul(1_000_003).wrapping_add(number));
    let mut world = World::new(fate.next_u64(), options(program)).map_err(broken)?;
    let result = live(&mut world, program, trouble, &fate);
    tally.merge(&world.tally);
    result.map_err(broken)
}

fn live(world: &mut World, program: u64, trouble: Trouble, fate: &Rng) -> Result<u64, Failure> {
    let start = world.disk.io_count();
    prepare(world, trouble, fate);
    program::run(world, &Rng::from_seed(program), 2 + program % 14)?;
    let count = world.disk.io_count() - start;
    world.disk.set_capacity(None);
    let flip = matches!(trouble, Trouble::Flip).then_some(fate);
    for life in 0..1 + fate.below(3) {
        let end = if fate.below(3) == 0 { End::Kill } else { End::Power };
        if !world.restart(end, flip.filter(|_| life == 0), fate)? {
            return Ok(count);
        }
        if fate.below(3) == 0 {
            world.disk.stop_after(fate.below(60));
        }
        program::run(world, &fate.fork(), fate.below(12))?;
    }
    Ok(count)
}

fn prepare(world: &mut World, trouble: Trouble, fate: &Rng) {
    match trouble {
        Trouble::None | Trouble::Flip => {}
        Trouble::Stop(n) => world.disk.stop_after(n),
        Trouble::Fail(n, fault) => {
            let class = if fault == Fault::Io { "fault: i/o error" } else { "fault: no space" };
            world.tally.count(class);
            world.disk.fail_after(n, fault);
        }
        Trouble::Sync(n) => {
            world.tally.count("fault: failed sync");
            world.disk.fail_sync_after(n);
        }
        Trouble::Full => world.disk.set_capacity(Some(16_384 + fate.below(60_000))),
    }
}

/// Small segments, so that the log rotates and recycles them often.
fn options(program: u64) -> WalOptions {
    WalOptions {
        segment_bytes: if program.is_multiple_of(3) { 32 << 10 } else { 16 << 10 },
        tail_bytes: if program.is_multiple_of(2) { 300 } else { 100_000 },
        batch_bytes: if program.is_multiple_of(5) { 600 } else { 100_000 },
        ..WalOptions::small(program)
    }
}
