//! The log of a running server: events, on standard error.

use quorate_server::{LogConfig, LogFormat, LogLevel};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::error::{Context as _, Result};

/// Logs Quorate's own events at the configured level, and the warnings and errors of dependencies. Events of openraft
/// are dropped: it logs an error for each attempt to reach a node that is down, and the node itself logs what ends
/// openraft.
pub fn begin(config: LogConfig) -> Result<()> {
    let level = match config.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
    };
    let events = Targets::new().with_default(LevelFilter::WARN.min(level)).with_target("quorate", level);
    let events = events.with_target("openraft", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines).with(events).try_init().context(|| "cannot log")
}
