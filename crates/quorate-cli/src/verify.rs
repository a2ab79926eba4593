//! `quorate verify`: do all nodes hold the same?

use std::time::Instant;

use clap::Args;
use quorate::{RemoteConfig, Verification};

use crate::access::Access;
use crate::args::AccessArgs;
use crate::error::{Error, Result};
use crate::output;

const EXAMPLE: &str = "\
Example:
  quorate verify

Each node hashes its whole database as it stands at one position, while work goes on. The exit code is 0 only if all
members answered and hold the same.";

/// Options of `quorate verify`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct VerifyArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Runs the command.
pub async fn run(args: &VerifyArgs) -> Result<()> {
    let begun = Instant::now();
    let access = Access::find(&args.access)?;
    let config = RemoteConfig { pinned: access.pinned, ..RemoteConfig::new(access.addrs, access.secret) };
    let verification = quorate::verify(config).await.map_err(|error| Error::new(error.to_string()))?;
    output::print(&text(&verification, begun.elapsed().as_secs_f64()))?;
    if verification.is_sound() { Ok(()) } else { Err(Error::new("not all members hold the same, as far as they told")) }
}

fn text(verification: &Verification, seconds: f64) -> String {
    let mut text = format!("at position {}, in {seconds:.1} s:\n", verification.position);
    for node in &verification.nodes {
        let told = match &node.tables {
            Ok(tables) => format!("{} tables", tables.len()),
            Err(why) => format!("no answer: {why}"),
        };
        text.push_str(&format!("  node {}  {}  {told}\n", node.name, node.addr));
    }
    let differences = verification.differences();
    for difference in &differences {
        let versions: Vec<String> = difference.versions.iter().map(|names| names.join(", ")).collect();
        text.push_str(&format!("{} differs: {}\n", difference.table, versions.join(" against ")));
    }
    if differences.is_empty() {
        text.push_str("all that answered hold the same\n");
    }
    text
}
