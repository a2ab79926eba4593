//! Checks a node's configuration: whether it loads, and whether its settings do what they should together.

use std::collections::BTreeMap;
use std::path::Path;

use quorate::{Config, SecretSource, config::ConfigError};

use super::finding::Finding;

const CHECK: &str = "configuration";

/// A configuration file.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its permission bits.
    pub mode: Option<u32>,
    /// The configuration in it, or why it does not load.
    pub loaded: Result<&'a Config, &'a ConfigError>,
}

/// Checks whether a node would start with the configuration, and find the others.
pub fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let path = facts.path.display();
    let config = match facts.loaded {
        Ok(config) => config,
        Err(error) => {
            return vec![Finding::problem(CHECK, error.to_string(), format!("No node can start with {path}."))];
        }
    };
    let mut findings = check_addresses(config);
    if matches!(config.secret, SecretSource::Inline(_)) && facts.mode.is_some_and(|mode| mode & 0o077 != 0) {
        let what = format!("{path} holds the secret and is open to other users");
        findings.push(Finding::problem(CHECK, what, "Run `chmod 600` on it, or keep the secret in a separate file."));
    }
    findings.extend(check_count(config.members.len()));
    if findings.is_empty() {
        let count = config.members.len().max(1);
        findings.push(Finding::ok(CHECK, format!("{path}: node '{}' of {count}", config.name), ""));
    }
    findings
}

fn check_addresses(config: &Config) -> Vec<Finding> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, addr) in &config.members {
        names.entry(addr).or_default().push(name);
    }
    let shared = names.iter().filter(|(_, names)| names.len() > 1).map(|(addr, names)| {
        let what = format!("{} have the address {addr}", names.join(" and "));
        Finding::problem(CHECK, what, "Each node needs its own address: the cluster would never be founded.")
    });
    let mut findings: Vec<Finding> = shared.collect();
    let own = config.advertise.as_deref().or(config.members.get(&config.name).map(String::as_str));
    let elsewhere = |addr: &str| !is_loopback(addr);
    if let (Some(listen), Some(own)) = (&config.listen, own)
        && is_loopback(listen)
        && elsewhere(own)
    {
        let what = format!("the node listens on {listen}, but the others connect to {own}");
        findings.push(Finding::problem(CHECK, what, "Only this machine reaches the loopback interface."));
    }
    let is_mixed =
        config.members.values().any(|addr| is_loopback(addr)) && config.members.values().any(|a| elsewhere(a));
    if is_mixed {
        let what = "some members have loopback addresses, and others do not";
        findings.push(Finding::problem(CHECK, what, "Other machines can't reach the former."));
    }
    findings
}

fn is_loopback(addr: &str) -> bool {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    host == "localhost" || host.starts_with("127.") || host == "[::1]"
}

/// Explains what an even number of voters means.
pub fn check_count(voters: usize) -> Option<Finding> {
    const CHECK: &str = "voters";
    match voters {
        0 | 1 => None,
        2 => Some(Finding::note(CHECK, "2 voters", "Neither may be lost: both are needed to write. Add a third.")),
        even if even % 2 == 0 => Some(Finding::note(
            CHECK,
            format!("{even} voters"),
            format!("They survive no more losses than {} voters, and each write waits for more nodes.", even - 1),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::super::finding::Level::{self, Note, Ok as Fine, Problem};
    use super::*;

    fn levels(members: &[(&str, &str)], listen: Option<&str>, secret: SecretSource, mode: u32) -> Vec<Level> {
        let config = Config::default().with_name("a").with_members(members.iter().copied()).with_secret(secret);
        let config = listen.map_or(config.clone(), |addr| config.with_listen(addr));
        let facts = Facts { path: Path::new("x.toml"), mode: Some(mode), loaded: Ok(&config) };
        check(&facts).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn settings_that_do_not_fit_together_are_reported() {
        let file = || SecretSource::File("secret".into());
        let three = [("a", "10.0.0.1:1"), ("b", "10.0.0.2:1"), ("c", "10.0.0.3:1")];
        assert_eq!(levels(&three, None, file(), 0o644), [Fine]);
        assert_eq!(levels(&three, Some("0.0.0.0:1"), file(), 0o644), [Fine]);
        assert_eq!(levels(&three, Some("127.0.0.1:1"), file(), 0o644), [Problem]);
        assert_eq!(levels(&three[..2], None, file(), 0o644), [Note]);
        let twice = [("a", "10.0.0.1:1"), ("b", "10.0.0.1:1"), ("c", "10.0.0.3:1")];
        assert_eq!(levels(&twice, None, file(), 0o644), [Problem]);
        let mixed = [("a", "127.0.0.1:1"), ("b", "10.0.0.1:1"), ("c", "10.0.0.3:1")];
        assert_eq!(levels(&mixed, None, file(), 0o644), [Problem]);
        let inline = || SecretSource::Inline("a secret of some length".to_owned());
        assert_eq!(levels(&three, None, inline(), 0o644), [Problem]);
        assert_eq!(levels(&three, None, inline(), 0o600), [Fine]);
    }

    #[test]
    fn a_configuration_that_does_not_load_says_why() {
        let error = Config::from_toml("data_dir = \"d\"\nlisen = 1").unwrap_err();
        let found = check(&Facts { path: Path::new("x.toml"), mode: None, loaded: Err(&error) });
        assert!(found[0].level == Problem && found[0].what.contains("lisen"), "{found:?}");
    }

    #[test]
    fn an_even_number_of_voters_is_noted() {
        let noted: Vec<usize> = (0..8).filter(|count| check_count(*count).is_some()).collect();
        assert_eq!(noted, [2, 4, 6]);
    }
}
