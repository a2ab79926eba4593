//! Runs real processes under faults, and checks the histories of their clients.
//!
//! The servers are processes of the released program. If the machine allows it (root, `unshare`, `nsenter`, `ip`,
//! `mount`), each runs in a network namespace with a small file system of its own. Otherwise all run on the loopback
//! interface without faults of networks and disks, and the program says so. Clients write and read registers, sets, a
//! bank and lists through all nodes, by SQL, and as keys by Redis' protocol. Meanwhile faults from a seed strike one
//! after the other: processes are killed and paused, networks are cut both ways and one way, links are slow, disks are
//! full, syncs fail, all nodes are killed at once. During each fault that leaves a majority, and after each fault, a
//! write must be served within a time limit; after each fault every node must serve reads. At the end all nodes must
//! hold the same, and `quorate_history` must find the histories right.
//!
//! The run fails if it finds something wrong, if a requested kind of fault never struck, or if a checker could not
//! decide.
//!
//! `cargo run --release -p quorate-trials -- chaos [--minutes 60] [--seed N] [--nodes 3] [--rate 300]
//! [--kills N] [--stops N] [--partitions N] [--slows N] [--fulls N] [--sync-errors N] [--restarts N]
//! [--reads linearizable|local] [--world own|loopback] [--dir DIR] [--quorate FILE]`; the minutes determine how many
//! faults of each kind there are, unless an option does. `--reads local` must end as wrong, which shows that the
//! checkers can fail.

mod faults;
mod fleet;
mod load;
mod report;
mod run;
mod world;

use clap::{Args, ValueEnum};
use quorate::Level;
use tokio::signal::unix::{SignalKind, signal};

use crate::harness::options::Options;
use crate::harness::{Result, figures};
use crate::verdict::Verdict;
use run::{Run, Settings};
use world::{Place, World};

/// Options of `quorate-trials chaos`.
#[derive(Args, Debug)]
pub struct ChaosArgs {
    /// How long faults strike
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    minutes: u64,
    /// The seed of the faults and the operations [default: a random one]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many nodes there are
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: usize,
    /// How many operations the clients try in a second
    #[arg(long, value_name = "N", default_value_t = 300)]
    rate: u64,
    /// How many nodes are killed [default: 100 in an hour]
    #[arg(long, value_name = "N")]
    kills: Option<u64>,
    /// How many nodes are paused [default: 30 in an hour]
    #[arg(long, value_name = "N")]
    stops: Option<u64>,
    /// How many times the network is cut [default: 40 in an hour]
    #[arg(long, value_name = "N")]
    partitions: Option<u64>,
    /// How many times the packets of a node are late [default: 10 in an hour]
    #[arg(long, value_name = "N")]
    slows: Option<u64>,
    /// How many file systems are filled [default: 15 in an hour]
    #[arg(long, value_name = "N")]
    fulls: Option<u64>,
    /// How many times the syncs of a node fail [default: 15 in an hour]
    #[arg(long, value_name = "N")]
    sync_errors: Option<u64>,
    /// How many times all nodes are killed at once [default: 8 in an hour]
    #[arg(long, value_name = "N")]
    restarts: Option<u64>,
    /// The level of the clients' reads; the checkers must find `local` wrong
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "linearizable")]
    reads: Reads,
    /// Where the nodes run [default: own, or loopback if the machine does not allow that]
    #[arg(long, value_enum, value_name = "PLACE")]
    world: Option<Place>,
    #[command(flatten)]
    options: Options,
    /// This process runs in namespaces of its own.
    #[arg(long, hide = true)]
    entered: bool,
}

/// The level of reads.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reads {
    /// Reads show everything that was acknowledged before
    Linearizable,
    /// Reads show what the node has applied
    Local,
}

impl From<Reads> for Level {
    fn from(reads: Reads) -> Self {
        match reads {
            Reads::Linearizable => Self::Linearizable,
            Reads::Local => Self::Local,
        }
    }
}

/// Runs the trial.
pub async fn run(args: ChaosArgs) -> Result<Verdict> {
    let program = args.options.program()?;
    let world = World::enter(args.world, args.entered)?;
    let settings = Settings::of(&args, world);
    let scratch = args.options.scratch()?;
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
    let is_right = ended.as_ref().is_ok_and(Verdict::holds);
    run.stop(!is_right).await?;
    if !is_right {
        println!("logs and data directories are kept in {}", scratch.keep().display());
    }
    ended
}
