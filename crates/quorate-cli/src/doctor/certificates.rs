//! Checks a node's certificate: whether a node can start with it, whether others accept it, and how long.

use std::net::SocketAddr;

use quorate::{Config, TlsConfig};
use quorate_env::Env;
use quorate_tls::{ENDS_SOON, Inspection, TlsError, inspect};

use super::finding::Finding;

const CHECK: &str = "certificate";

/// The seconds of a day.
const DAY: u64 = 86_400;

/// What is in the files of a node.
#[derive(Debug)]
pub struct Facts {
    /// The file with the certificate.
    pub path: String,
    /// What an inspection has found.
    pub found: Result<Inspection, TlsError>,
    /// The time, in seconds since 1970-01-01 UTC.
    pub now: u64,
}

impl Facts {
    /// Inspects the files of a node.
    pub fn gather(config: &Config, tls: &TlsConfig) -> Self {
        let (env, path) = (Env::real(), tls.certificate.display().to_string());
        let member = config.members.get(&config.name);
        let own = config.advertise.as_ref().or(member).or(config.listen.as_ref());
        let addrs: Vec<String> = own.filter(|addr| !is_unspecified(addr)).cloned().into_iter().collect();
        Self { path, found: inspect(&env, &tls.files(), &addrs), now: env.unix_nanos() / 1_000_000_000 }
    }
}

/// Returns whether an address is one to listen on only, by which nobody calls.
fn is_unspecified(addr: &str) -> bool {
    addr.parse::<SocketAddr>().is_ok_and(|addr| addr.ip().is_unspecified())
}

/// Checks whether a node can use its certificate, and whether other nodes and clients accept it.
pub fn check(facts: &Facts) -> Vec<Finding> {
    let path = &facts.path;
    let found = match &facts.found {
        Ok(found) => found,
        Err(error) => return vec![Finding::problem(CHECK, error.to_string(), "No node can start with these files.")],
    };
    if let Some(error) = &found.refused {
        let what = format!("others refuse {path}");
        return vec![Finding::problem(CHECK, what, format!("To them this node is the other end: {error}."))];
    }
    let mut findings = Vec::new();
    if let Some(error) = &found.refused_as_client {
        let what = format!("other nodes refuse {path} when this node calls them");
        findings.push(Finding::problem(CHECK, what, format!("To them this node is the other end: {error}.")));
    }
    findings.extend(found.uncovered.iter().map(|host| {
        let what = format!("{path} is not for {host}");
        Finding::problem(CHECK, what, "Others call the node there, and refuse it: issue a certificate for this host.")
    }));
    findings.extend(found.end.map(|end| check_end(path, end.saturating_sub(facts.now))));
    findings
}

fn check_end(path: &str, left: u64) -> Finding {
    let what = format!("{path} expires in {} days", left / DAY);
    if left > ENDS_SOON.as_secs() {
        return Finding::ok(CHECK, what, "");
    }
    let means =
        "After that nobody connects to this node any more. Replace the file: the node reads it again by itself.";
    Finding::note(CHECK, what, means)
}

#[cfg(test)]
mod tests {
    use quorate_tls::ChannelError;

    use super::super::finding::Level::{self, Note, Ok as Fine, Problem};
    use super::*;

    fn levels(found: Result<Inspection, TlsError>) -> Vec<Level> {
        let facts = Facts { path: "a.crt".to_owned(), found, now: 1000 * DAY };
        check(&facts).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn certificates_that_are_refused_or_end_soon_are_reported() {
        let fine = Inspection { refused: None, refused_as_client: None, uncovered: Vec::new(), end: Some(1031 * DAY) };
        assert_eq!(levels(Ok(fine.clone())), [Fine]);
        assert_eq!(levels(Ok(Inspection { end: Some(1029 * DAY), ..fine.clone() })), [Note]);
        assert_eq!(levels(Ok(Inspection { uncovered: vec!["b".to_owned()], ..fine.clone() })), [Problem, Fine]);
        let refused = || Some(ChannelError::UnknownIssuer);
        assert_eq!(levels(Ok(Inspection { refused_as_client: refused(), ..fine.clone() })), [Problem, Fine]);
        assert_eq!(levels(Ok(Inspection { refused: refused(), end: None, ..fine })), [Problem]);
        assert_eq!(levels(Err(TlsError::Roots("none".into()))), [Problem]);
    }
}
