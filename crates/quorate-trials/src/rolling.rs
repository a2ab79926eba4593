//! Measures how long writes wait during a rolling restart.
//!
//! There are three processes of `quorate serve`, and many writes in flight. In each round every server in turn is asked
//! to stop (SIGTERM) and started again. No request may fail, and no row may be lost or doubled. The program prints the
//! longest wait of a write.
//!
//! `cargo run --release -p quorate-trials -- rolling [--rounds 5] [--in-flight 64] [--dir DIR] [--quorate FILE]`

use std::time::Duration;

use clap::Args;

use crate::harness::Result;
use crate::harness::figures::ms;
use crate::harness::load::Load;
use crate::harness::options::Options;
use crate::harness::servers::Servers;
use crate::verdict::Verdict;

/// Options of `quorate-trials rolling`.
#[derive(Args, Debug)]
pub struct RollingArgs {
    /// How many times each server is restarted
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u64,
    /// How many writes are in flight
    #[arg(long, value_name = "N", default_value_t = 64)]
    in_flight: u64,
    #[command(flatten)]
    options: Options,
}

/// Runs the trial.
pub async fn run(args: RollingArgs) -> Result<Verdict> {
    let RollingArgs { rounds, in_flight, options } = args;
    let mut servers = Servers::start(&options).await?;

    let sql = servers.client().await?.sql();
    let load = Load::start(&sql, in_flight).await?;
    let mut longest = Duration::ZERO;
    for round in 1..=rounds {
        for name in servers.names() {
            load.take_longest();
            let (stopped, led) = servers.restart(&name).await?;
            let wait = load.take_longest();
            longest = longest.max(wait);
            let led = if led { ", led" } else { "" };
            println!(
                "round {round}, server {name}{led}: stopped in {}, longest wait of a write {}",
                ms(stopped),
                ms(wait)
            );
        }
    }
    let written = load.stop().await?;
    written.check(&sql).await?;
    if written.unknown > 0 {
        return Err(format!("{} writes failed: their outcome is not known", written.unknown).into());
    }
    let text = format!(
        "{rounds} rounds of restarts, {in_flight} writes in flight, fsync: {} writes, none failed, longest wait {}",
        written.acknowledged,
        ms(longest)
    );
    Ok(Verdict::new(text, true))
}
