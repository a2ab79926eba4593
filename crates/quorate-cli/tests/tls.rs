//! TLS of real processes: what `quorate init` makes, what clients and operators see, and openssl as another client.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::servers::Servers;
use support::{failed, quorate, succeeded, until_said, wait_until};

/// Returns the value of a key in the configuration of a node.
fn configured(servers: &Servers, name: &str, key: &str) -> String {
    let text = std::fs::read_to_string(servers.config(name)).unwrap();
    if key == "addr" {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
        return line.split('"').nth(1).unwrap().to_owned();
    }
    let line = text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

fn file(servers: &Servers, name: &str) -> String {
    servers.dir.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn init_makes_private_certificates_or_none() {
    let servers = Servers::init(2);
    for name in ["ca.key", "a.key", "b.key", "secret"] {
        let mode = std::fs::metadata(servers.dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    for (node, key, expected) in
        [("a", "tls.certificate", "a.crt"), ("b", "tls.key", "b.key"), ("b", "tls.ca", "ca.crt")]
    {
        assert_eq!(configured(&servers, node, key), expected);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let named = failed(&quorate(&["init", path, "--members", "ca=10.0.0.1:7001"]));
    assert!(named.contains("can't be called 'ca'"), "{named}");

    let dir = tempfile::tempdir().unwrap();
    let said = succeeded(&quorate(&["init", dir.path().to_str().unwrap(), "--no-tls"]));
    assert!(!said.contains("ca.crt"), "{said}");
    let mut files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|item| item.unwrap().file_name()).collect();
    files.sort_unstable();
    assert_eq!(files, ["node-1.toml", "node-2.toml", "node-3.toml", "secret"]);
}

#[test]
fn operators_connect_with_the_ca_and_learn_what_is_wrong() {
    let servers = Servers::start(1);
    servers.value("SELECT 1");
    let (addr, secret) = (configured(&servers, "a", "addr"), file(&servers, "secret"));
    let status = |ca: &[&str]| quorate(&[&["status", "--node", &addr, "--secret-file", &secret], ca].concat());
    let found = succeeded(&until_said("node a leads", || status(&["--ca", &file(&servers, "ca.crt")])));
    assert!(found.contains(&addr), "{found}");

    failed(&until_said("speaks TLS only", || status(&[])));
    let other = Servers::init(1);
    failed(&until_said("issued by no CA that this end trusts", || status(&["--ca", &file(&other, "ca.crt")])));
    let missing = failed(&status(&["--ca", "no-such-file"]));
    assert!(missing.contains("no-such-file"), "{missing}");
    wait_until("the node to log why", || servers.said("a").contains("does not trust the CA"));

    let config = servers.config("a");
    // It reaches the cluster.
    let doctor = until_said("\"round trips\"", || quorate(&["doctor", "--config", config.to_str().unwrap(), "--json"]));
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let certificates: Vec<_> = findings.iter().filter(|finding| finding["check"] == "certificate").collect();
    assert_eq!(certificates.len(), 1, "{certificates:?}");
    assert!(certificates[0]["level"] == "ok" && certificates[0]["what"].as_str().unwrap().contains("expires in 3"));
    assert!(findings.iter().any(|finding| finding["check"] == "round trips"), "{findings:?}");
}

#[test]
fn a_node_without_tls_says_why_it_is_not_let_in() {
    let mut servers = Servers::init(2);
    for key in ["tls.certificate", "tls.key", "tls.ca"] {
        let text = std::fs::read_to_string(servers.config("b")).unwrap();
        std::fs::write(servers.config("b"), text.replace(&format!("\n{key}"), &format!("\n# {key}"))).unwrap();
    }
    ["a", "b"].into_iter().for_each(|name| servers.serve(name));
    wait_until("the plain node to say so", || servers.said("b").contains("speaks TLS only"));
    wait_until("the other node to say so", || servers.said("a").contains("does not speak TLS"));
    for name in ["a", "b"] {
        assert_eq!(servers.stop(name, Signal::TERM).code(), Some(0), "{}", servers.said(name));
    }
}

/// Runs openssl as a client that sends `text`; returns all that it prints.
fn openssl(addr: &str, ca: &Path, options: &[&str], text: &str) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", addr, "-verify_return_error", "-CAfile"]).arg(ca).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

#[test]
fn a_server_that_others_reach_needs_tls_or_an_order() {
    let mut servers = Servers::init(1);
    let text = std::fs::read_to_string(servers.config("a")).unwrap().replace("\ntls.", "\n# tls.");
    std::fs::write(servers.config("a"), text).unwrap();
    let port = configured(&servers, "a", "addr").split(':').next_back().unwrap().to_owned();
    servers.configure("a", "listen", &format!("\"0.0.0.0:{port}\""));
    servers.serve("a");
    let said = servers.failed("a");
    assert!(said.contains("in the clear") && said.contains("insecure = true"), "{said}");
    servers.configure("a", "insecure", "true");
    servers.serve("a");
    assert_eq!(servers.value("SELECT 6 * 7"), "42");

    let dir = tempfile::tempdir().unwrap();
    succeeded(&quorate(&["init", dir.path().to_str().unwrap(), "--no-tls", "--members", "a=10.0.0.1:7001"]));
    assert!(std::fs::read_to_string(dir.path().join("a.toml")).unwrap().contains("\ninsecure = true\n"));
}

#[test]
fn openssl_is_served() {
    if Command::new("openssl").arg("version").output().is_err() {
        return eprintln!("openssl is not installed: nothing was tested");
    }
    let servers = Servers::start(1);
    servers.value("SELECT 1");
    let (ca, node, http) =
        (file(&servers, "ca.crt"), configured(&servers, "a", "addr"), configured(&servers, "a", "http.listen"));
    for (option, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        for addr in [&node, &http] {
            let said = openssl(addr, Path::new(&ca), &[option, "-brief", "-verify_ip", "127.0.0.1"], "");
            assert!(said.contains("Verification: OK") && said.contains(version), "{said}");
        }
        let request = "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let said = openssl(&http, Path::new(&ca), &[option, "-quiet", "-ign_eof"], request);
        assert!(said.contains("HTTP/1.1 200") && said.contains("\r\n\r\nok\n"), "{said}");
    }
    let old = openssl(&node, Path::new(&ca), &["-tls1_1", "-brief"], "");
    assert!(!old.contains("Verification: OK"), "{old}");
    let other = Servers::init(1);
    let said = openssl(&node, &other.dir.path().join("ca.crt"), &["-brief"], "");
    assert!(said.contains("verify error") || said.contains("verify failed"), "{said}");
}
