//! Runs the target of `crates/quorate-fuzz` that the variable `QUORATE_FUZZ` names under libFuzzer. Without the
//! variable it lists all targets, each with the maximum length of its inputs. `cargo xtask fuzz` builds and runs this
//! program.
//!
//! Invariant: a target that allocates more than its limit fails, as one that panics.

#![no_main]

use std::alloc::System;
use std::sync::OnceLock;

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use quorate_fuzz::{TARGETS, Target, find};

/// The variable that names the target.
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

/// Finds the target, and lifts the memory limit when a panic is reported, because the report allocates memory too.
fn begin() {
    TARGET.get_or_init(chosen);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = MEMORY.set_limit(usize::MAX);
        report(panic);
    }));
}

fuzz_target!(init: begin(), |data: &[u8]| {
    let Some(target) = TARGET.get().filter(|target| data.len() <= target.input_max) else { return };
    // Raising a limit never fails.
    let _ = MEMORY.set_limit(MEMORY.allocated().saturating_add(target.memory_max));
    (target.run)(data);
    let _ = MEMORY.set_limit(usize::MAX);
});
