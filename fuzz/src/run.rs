//! libFuzzer around the target of `crates/quorate-fuzz` that the variable `QUORATE_FUZZ` names; without it, a list of
//! all, each with the length of its inputs. `cargo xtask fuzz` builds and runs this.
//!
//! Invariant: a target that allocates more than it may ends as one that panics.

#![no_main]

use std::alloc::System;
use std::sync::OnceLock;

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use quorate_fuzz::{TARGETS, Target, find};

/// Names the target.
const VARIABLE: &str = "QUORATE_FUZZ";

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

static TARGET: OnceLock<&Target> = OnceLock::new();

fn chosen() -> &'static Target {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    find(&name).unwrap_or_else(|| {
        TARGETS.iter().for_each(|target| println!("{} {}", target.name, target.input_max));
        std::process::exit(0)
    })
}

/// Finds the target. What tells of a panic may take what it needs.
fn begin() {
    TARGET.get_or_init(chosen);
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = MEMORY.set_limit(usize::MAX);
        tell(panic);
    }));
}

fuzz_target!(init: begin(), |data: &[u8]| {
    let Some(target) = TARGET.get().filter(|target| data.len() <= target.input_max) else { return };
    // Raising a limit never fails.
    let _ = MEMORY.set_limit(MEMORY.allocated().saturating_add(target.memory_max));
    (target.run)(data);
    let _ = MEMORY.set_limit(usize::MAX);
});
