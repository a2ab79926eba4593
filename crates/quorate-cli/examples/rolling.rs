//! Measures how long writes wait during a rolling restart.
//!
//! There are three processes of `quorate serve`, and many writes in flight. In each round every server in turn is asked
//! to stop (SIGTERM) and started again. No request may fail, and no row may be lost or doubled. The program prints the
//! longest wait of a write.
//!
//! `cargo run --release -p quorate-cli --example rolling -- [--rounds 5] [--in-flight 64] [--dir DIR] [--quorate FILE]`

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement of real processes")]

mod harness;

use std::time::Duration;

use harness::figures::ms;
use harness::load::Load;
use harness::options::Options;
use harness::servers::Servers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> harness::Result<()> {
    let mut options = Options::typed()?;
    let rounds = options.number("rounds", 5)?;
    let in_flight = options.number("in-flight", 64)?;
    let mut servers = Servers::start(&mut options).await?;
    options.finish()?;

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
    println!(
        "{rounds} rounds of restarts, {in_flight} writes in flight, fsync: {} writes, none failed, longest wait {}",
        written.acknowledged,
        ms(longest)
    );
    Ok(())
}
