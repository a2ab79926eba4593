//! `quorate serve`: one node in this process, until it is asked to stop.

use quorate::{Config, Node};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::ServeArgs;
use crate::error::{Error, Result, Told as _};
use crate::stop::Stop;

/// The variable with the level of what is told: `error`, `warn`, `info`, `debug`, `trace` or `off`.
const LEVEL_VARIABLE: &str = "QUORATE_LOG";

/// Runs the command.
pub async fn run(args: &ServeArgs) -> Result<()> {
    tell_on_standard_error()?;
    let mut stop = Stop::take(args.until_stdin_closes)?;
    let config = Config::load(&args.config).told(|| "the configuration")?;
    // The first start may wait for the other nodes.
    let node = tokio::select! {
        started = Node::start(config) => started.told(|| "the node can't start")?,
        () = stop.asked() => return Ok(()),
    };
    let ended = tokio::select! {
        ended = node.ended() => Err(Error::new(format!("the node has ended: {ended}"))),
        () = stop.asked() => Ok(()),
    };
    node.stop().await;
    ended
}

/// Events of our own at the level that is asked for, those of dependencies where they warn. openraft warns of every
/// heartbeat that a lost node does not answer.
fn tell_on_standard_error() -> Result<()> {
    let level = match std::env::var(LEVEL_VARIABLE) {
        Ok(level) => level.parse().told(|| LEVEL_VARIABLE)?,
        Err(_) => LevelFilter::INFO,
    };
    let events = Targets::new().with_default(LevelFilter::WARN.min(level)).with_target("quorate", level);
    let events = events.with_target("openraft", LevelFilter::ERROR.min(level));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines).with(events).try_init().told(|| "cannot log")
}
