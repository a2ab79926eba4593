//! Runs real processes under faults, and checks the histories of their clients.
//!
//! The servers are processes of the released program. If the machine allows it (root, `unshare`, `nsenter`, `ip`,
//! `mount`), each runs in a network namespace with a small file system of its own. Otherwise all run on the loopback
//! interface without faults of networks and disks, and the program says so. Clients write and read registers, sets, a
//! bank and lists through all nodes. Meanwhile faults from a seed strike one after the other: processes are killed and
//! paused, networks are cut both ways and one way, links are slow, disks are full, syncs fail, all nodes are killed at
//! once. During each fault that leaves a majority, and after each fault, a write must be served within a time limit;
//! after each fault every node must serve reads. At the end all nodes must hold the same, and `quorate_history` must
//! find the histories right.
//!
//! The run fails if it finds something wrong, or if a requested kind of fault never struck. The exit code is 0 for
//! right, 1 for wrong, and 2 if a checker could not decide.
//!
//! `cargo run --release -p quorate-cli --example chaos -- [--minutes 60] [--seed N] [--nodes 3] [--rate 300]
//! [--kills N] [--stops N] [--partitions N] [--slows N] [--fulls N] [--sync-errors N] [--restarts N]
//! [--reads linearizable|local] [--world own|loopback] [--dir DIR] [--quorate FILE]`; the minutes determine how many
//! faults of each kind there are, unless an option does. `--reads local` must end as wrong, which shows that the
//! checkers can fail.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it runs real processes, and may panic"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod faults;
mod fleet;
mod load;
mod report;
mod run;
mod world;

use std::process::ExitCode;

use harness::cluster::build;
use harness::options::Options;
use harness::{Result, figures};
use quorate_history::Verdict;
use run::{Run, Settings};
use tokio::signal::unix::{SignalKind, signal};
use world::World;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match chaos().await {
        Ok(Verdict::Right) => ExitCode::SUCCESS,
        Ok(Verdict::Wrong(_)) => ExitCode::from(1),
        Ok(Verdict::Unknown(_)) => ExitCode::from(2),
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::from(1)
        }
    }
}

async fn chaos() -> Result<Verdict> {
    let mut options = Options::typed()?;
    let given = options.path("quorate");
    let program = match &given {
        Some(program) => program.clone(),
        None => build().await?,
    };
    let world = World::enter(&mut options, given.is_none().then_some(program.as_path()))?;
    let settings = Settings::typed(&mut options, world)?;
    let scratch = match options.path("dir") {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    options.finish()?;
    figures::print_conditions(scratch.path())?;
    settings.print(world);

    let mut run = Run::start(settings, world, program, scratch.path().to_owned()).await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = tokio::select! {
        ended = run.go() => Some(ended),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    let Some(ended) = ended else {
        run.stop(false).await?;
        return Err("interrupted".into());
    };
    let is_right = matches!(ended, Ok(Verdict::Right));
    run.stop(!is_right).await?;
    if !is_right {
        println!("logs and data directories are kept in {}", scratch.keep().display());
    }
    ended
}
