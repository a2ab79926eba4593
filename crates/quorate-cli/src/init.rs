//! `quorate init`: commented configurations and a secret for the nodes of a new cluster.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use crate::error::{Error, Result};
use crate::output::print;
use crate::settings::{self, NewNode};

/// Where nodes listen where nobody says otherwise: the first of them, the others above it.
const PORT: u16 = 7001;
/// The same for HTTP.
const HTTP_PORT: u16 = 8001;
/// Nodes where nobody says how many.
const NODES: u16 = 3;
/// Nodes at most.
const NODES_MAX: i64 = 99;

/// Options of `quorate init`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate init cluster                 # three nodes on this machine
  quorate init cluster --members a=10.0.0.1:7001,b=10.0.0.2:7001,c=10.0.0.3:7001
  quorate serve --config cluster/a.toml")]
pub struct InitArgs {
    /// Where to write the files
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// How many nodes, all on this machine [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub nodes: Option<u16>,
    /// The nodes: name=host:port for each, with commas between
    #[arg(long, value_name = "MEMBERS", value_delimiter = ',', conflicts_with = "nodes", value_parser = member)]
    pub members: Vec<(String, String)>,
}

fn member(text: &str) -> Result<(String, String), String> {
    let (name, addr) = text.split_once('=').ok_or("write name=host:port")?;
    let port = addr.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>()));
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match port {
        Some(Ok(1..)) if !name.is_empty() && name.chars().all(is_name) => Ok((name.to_owned(), addr.to_owned())),
        Some(Ok(1..)) => Err("a name is made of letters, digits, '-', '_' and '.'".to_owned()),
        _ => Err(format!("'{addr}' is no host:port")),
    }
}

/// Runs the command.
pub fn run(args: &InitArgs) -> Result<()> {
    let nodes = nodes(args);
    if let Some(name) = nodes
        .iter()
        .enumerate()
        .find_map(|(at, node)| nodes.iter().take(at).any(|other| other.name == node.name).then_some(&node.name))
    {
        return Err(Error::new(format!("two members are called '{name}': give each a name of its own")));
    }
    let files = settings::found(&args.dir, &nodes, str::to_owned)?;
    let mut text = format!("wrote {} and:\n", settings::secret_file(&args.dir).display());
    for (node, file) in nodes.iter().zip(&files) {
        let _ = writeln!(text, "  {}  node {} at {}, HTTP at {}", file.display(), node.name, node.addr, node.http);
    }
    let _ = writeln!(text, "Every node needs its file and the secret. Start each: quorate serve --config FILE");
    print(&text)
}

fn nodes(args: &InitArgs) -> Vec<NewNode> {
    if args.members.is_empty() {
        let numbers = 0..args.nodes.unwrap_or(NODES);
        return numbers
            .map(|number| NewNode {
                name: format!("node-{}", number.saturating_add(1)),
                addr: format!("127.0.0.1:{}", PORT.saturating_add(number)),
                http: format!("127.0.0.1:{}", HTTP_PORT.saturating_add(number)),
                data_dir: format!("node-{}", number.saturating_add(1)).into(),
            })
            .collect();
    }
    let new = |(name, addr): &(String, String)| NewNode {
        name: name.clone(),
        addr: addr.clone(),
        http: format!("127.0.0.1:{HTTP_PORT}"),
        data_dir: name.into(),
    };
    args.members.iter().map(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_checked() {
        assert_eq!(member("a=10.0.0.1:7001"), Ok(("a".to_owned(), "10.0.0.1:7001".to_owned())));
        assert_eq!(member("a=[::1]:7001"), Ok(("a".to_owned(), "[::1]:7001".to_owned())));
        for wrong in ["a", "a=", "a=host", "a=host:0", "a=host:port", "a=:1", "=host:1", "a b=host:1", "../a=host:1"] {
            assert!(member(wrong).is_err(), "{wrong}");
        }
    }
}
