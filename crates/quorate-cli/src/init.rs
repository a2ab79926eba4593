//! `quorate init`: commented configurations, certificates and a secret for the nodes of a new cluster, and the token of
//! its first administrator, of which only the hash is written.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use quorate::users::{FIRST_ADMIN, NewToken};
use quorate_env::Env;

use crate::error::{Error, Result};
use crate::output::print;
use crate::settings::{self, CA_CERTIFICATE, CA_KEY, NewNode, Protection};

/// The default port of the first node. The other nodes get the ports above it.
const PORT: u16 = 7001;
/// The same for HTTP.
const HTTP_PORT: u16 = 8001;
/// The default number of nodes.
const NODES: u16 = 3;
/// The maximum number of nodes.
const NODES_MAX: i64 = 99;

/// Options of `quorate init`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate init cluster                 # three nodes on this machine
  quorate init cluster --members a=10.0.0.1:7001,b=10.0.0.2:7001,c=10.0.0.3:7001
  quorate serve --config cluster/a.toml")]
pub struct InitArgs {
    /// The directory to write the files to
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Number of nodes, all on this machine [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub nodes: Option<u16>,
    /// The nodes as name=host:port, separated by commas
    #[arg(long, value_name = "MEMBERS", value_delimiter = ',', conflicts_with = "nodes", value_parser = member)]
    pub members: Vec<(String, String)>,
    /// Make no certificates: the nodes and their clients connect in the clear (insecure = true beyond this machine)
    #[arg(long)]
    pub no_tls: bool,
}

fn member(text: &str) -> Result<(String, String), String> {
    let (name, addr) = text.split_once('=').ok_or("expected name=host:port")?;
    let port = addr.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>()));
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match port {
        Some(Ok(1..)) if !name.is_empty() && name.chars().all(is_name) => Ok((name.to_owned(), addr.to_owned())),
        Some(Ok(1..)) => Err("a name consists of letters, digits, '-', '_' and '.'".to_owned()),
        _ => Err(format!("'{addr}' is not of the form host:port")),
    }
}

/// Runs the command.
pub fn run(args: &InitArgs) -> Result<()> {
    let nodes = nodes(args)?;
    if let Some(name) = duplicate(nodes.iter().map(|node| node.name.clone())) {
        return Err(Error::new(format!("two members are called '{name}': give each a name of its own")));
    }
    if let Some((machine, port)) = duplicate(nodes.iter().map(|node| place(&node.addr))) {
        return Err(Error::new(format!("two members have the address {machine}:{port}: give each a port of its own")));
    }
    let token = NewToken::draw(&Env::real());
    let protection = Protection { tls: !args.no_tls, admin: Some(token.hash()) };
    let files = settings::found(&args.dir, &nodes, protection, str::to_owned)?;
    let secret = settings::secret_file(&args.dir);
    let ca = args.dir.join(CA_CERTIFICATE);
    let mut text = match args.no_tls {
        true => format!("wrote {} and:\n", secret.display()),
        false => format!("wrote {}, {} and:\n", secret.display(), ca.display()),
    };
    for (node, file) in nodes.iter().zip(&files) {
        let _ = writeln!(text, "  {}  node {} at {}, HTTP at {}", file.display(), node.name, node.addr, node.http);
    }
    text.push_str(&match args.no_tls {
        true => "Each node needs its own file and the secret.".to_owned(),
        false => of_certificates(&args.dir, &nodes),
    });
    text.push_str(" Start each node: quorate serve --config FILE\n");
    let _ = writeln!(text, "The cluster's first user is '{FIRST_ADMIN}', with this token, which is not shown again:");
    let _ = writeln!(text, "  {}", token.text());
    print(&text)
}

/// Says who needs which certificate.
fn of_certificates(dir: &Path, nodes: &[NewNode]) -> String {
    let name = nodes.first().map_or("NAME", |node| &node.name);
    let ca_key = dir.join(CA_KEY);
    format!(
        "\
Clients connect with --secret-file and --ca {CA_CERTIFICATE}, or with the --config of a node.
{} can issue certificates for more nodes: keep it away from the nodes. To use certificates of your own, replace
the files that 'tls' names, or name others there; `quorate doctor` checks them.
Each node needs its own file, the secret, {CA_CERTIFICATE}, and its own certificate and key ({name}.crt, {name}.key).",
        ca_key.display()
    )
}

fn nodes(args: &InitArgs) -> Result<Vec<NewNode>> {
    if args.members.is_empty() {
        let numbers = 0..args.nodes.unwrap_or(NODES);
        let node = |number: u16| NewNode {
            name: format!("node-{}", number.saturating_add(1)),
            addr: format!("127.0.0.1:{}", PORT.saturating_add(number)),
            http: format!("127.0.0.1:{}", HTTP_PORT.saturating_add(number)),
            sql: false,
            redis: None,
            data_dir: format!("node-{}", number.saturating_add(1)).into(),
        };
        return Ok(numbers.map(node).collect());
    }
    // Nodes on one machine must not use the same port.
    let mut taken: BTreeSet<(String, u16)> = args.members.iter().map(|(_, addr)| place(addr)).collect();
    let node = |(name, addr): &(String, String)| {
        let (machine, _) = place(addr);
        let free = (HTTP_PORT..).find(|port| taken.insert((machine.clone(), *port)));
        let port = free.ok_or_else(|| Error::new(format!("{machine} has no port left for HTTP")))?;
        let (name, addr, data_dir) = (name.clone(), addr.clone(), name.into());
        Ok(NewNode { name, addr, http: format!("127.0.0.1:{port}"), sql: false, redis: None, data_dir })
    };
    args.members.iter().map(node).collect()
}

/// Returns the machine and the port of an address. All names of this machine count as one.
fn place(addr: &str) -> (String, u16) {
    let (host, port) = addr.rsplit_once(':').unwrap_or((addr, ""));
    let host = host.to_ascii_lowercase();
    let is_here = host == "localhost" || host == "[::1]" || host.starts_with("127.");
    (if is_here { "127.0.0.1".to_owned() } else { host }, port.parse().unwrap_or(0))
}

/// Returns an item that occurs twice.
fn duplicate<T: Ord + Clone>(all: impl Iterator<Item = T>) -> Option<T> {
    let mut seen = BTreeSet::new();
    all.into_iter().find(|one| !seen.insert(one.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn members_are_checked() {
        assert_eq!(member("a=10.0.0.1:7001"), Ok(("a".to_owned(), "10.0.0.1:7001".to_owned())));
        assert_eq!(member("a=[::1]:7001"), Ok(("a".to_owned(), "[::1]:7001".to_owned())));
        for wrong in ["a", "a=", "a=host", "a=host:0", "a=host:port", "a=:1", "=host:1", "a b=host:1", "../a=host:1"] {
            assert!(member(wrong).is_err(), "{wrong}");
        }
    }

    /// The HTTP ports that members with these addresses get.
    fn http(members: &[&str]) -> Vec<String> {
        let members = members.iter().enumerate().map(|(at, addr)| (at.to_string(), (*addr).to_owned())).collect();
        let nodes = nodes(&InitArgs { dir: PathBuf::new(), nodes: None, members, no_tls: true });
        nodes.unwrap().into_iter().map(|node| node.http).collect()
    }

    #[test]
    fn nodes_of_one_machine_get_different_http_ports() {
        let at = |ports: &[u16]| ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>();
        assert_eq!(http(&["x:7001", "y:7001", "X:7002"]), at(&[8001, 8001, 8002]));
        assert_eq!(http(&["127.0.0.1:8001", "localhost:8003", "[::1]:7001"]), at(&[8002, 8004, 8005]));
    }
}
