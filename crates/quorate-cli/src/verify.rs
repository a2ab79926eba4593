//! `quorate verify`: compares the databases of all nodes.

use std::time::Instant;

use clap::Args;
use quorate::admin::Verification;
use quorate::types::NodeId;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::options::AccessArgs;
use crate::output;

const EXAMPLE: &str = "\
Example:
  quorate verify

Each node hashes its whole database at one position, while the cluster serves. The exit code is 0 only if all members
answered and hold the same.";

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
    let verification = quorate::verify(Access::find(&args.access)?.remote()).await.map_err(Error::of)?;
    show(&verification, begun)
}

/// Prints what was found since `begun`, and fails unless all hold the same.
pub fn show(verification: &Verification, begun: Instant) -> Result<()> {
    output::print(&text(verification, begun.elapsed().as_secs_f64()))?;
    verdict(verification)
}

/// Fails, and says what to do, unless all members hold the same.
fn verdict(verification: &Verification) -> Result<()> {
    if verification.is_sound() {
        return Ok(());
    }
    Err(Error::new(if verification.differences().is_empty() {
        "not all members could be verified: see the reasons above, and verify again"
    } else {
        "not all members hold the same: one that differs from a majority replaces its data with a copy of theirs; \
         verify again, and check the logs"
    }))
}

fn text(verification: &Verification, seconds: f64) -> String {
    let mut text = format!("at position {}, in {seconds:.1} s:\n", verification.position);
    for node in &verification.nodes {
        let answer = match &node.tables {
            Ok(tables) => format!("{} tables", tables.len()),
            Err(why) => format!("no answer: {why}"),
        };
        let kind = if node.id == NodeId(0) { "" } else { "node " };
        text.push_str(&format!("  {kind}{}  {}  {answer}\n", node.name, node.addr));
    }
    let differences = verification.differences();
    for difference in &differences {
        let versions: Vec<String> = difference.versions.iter().map(|names| names.join(", ")).collect();
        text.push_str(&format!("{} differs: {}\n", difference.table, versions.join(" against ")));
    }
    for table in verification.unread() {
        text.push_str(&format!("not compared: {table}\n"));
    }
    if differences.is_empty() {
        text.push_str("all that answered hold the same\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quorate::types::ClusterId;
    use quorate::{Position, admin::VerifiedNode};

    use super::*;

    /// Returns what is printed for nodes that hold a table with these hashes; `None` is a node that does not answer.
    fn printed(nodes: &[Option<u128>]) -> String {
        let tables = |hash: &Option<u128>| {
            hash.map(|hash| BTreeMap::from([("t".to_owned(), hash)])).ok_or_else(|| "it is away".to_owned())
        };
        let nodes = (1..).zip(nodes).map(|(number, hash)| VerifiedNode {
            id: NodeId(number),
            name: number.to_string(),
            addr: format!("h:{number}"),
            tables: tables(hash),
        });
        let verification =
            Verification { cluster: ClusterId(1), position: Position::default(), nodes: nodes.collect() };
        verdict(&verification).map_or_else(|error| error.to_string(), |()| text(&verification, 0.25))
    }

    #[test]
    fn a_failed_verification_says_what_to_do() {
        let sound = "at position 0.0.0, in 0.2 s:\n  node 1  h:1  1 tables\n  node 2  h:2  1 tables\n\
                     all that answered hold the same\n";
        assert_eq!(printed(&[Some(1), Some(1)]), sound);
        let away = "not all members could be verified: see the reasons above, and verify again";
        assert_eq!(printed(&[Some(1), None, Some(1)]), away);
        let differ = "not all members hold the same: one that differs from a majority replaces its data with a copy \
                      of theirs; verify again, and check the logs";
        assert_eq!(printed(&[Some(1), Some(2), None]), differ);
    }
}
