//! Real clients, unmodified, on a cluster of three processes with TLS and users: at the port of a node, and at that of
//! a proxy. `.ci/clients` installs them; one that is not installed is skipped, with a message.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

#[path = "../../quorate-http/tests/clients/runs.rs"]
mod runs;
mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use runs::{PASSWORD, RUNS, TABLES, Target};
use support::servers::{Servers, free_ports};
use support::{QUORATE, quorate, quorate_reads, succeeded, wait_until};

/// Ends the proxy with the test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the directory of the clients: the one that `.ci/clients` uses.
fn installed() -> PathBuf {
    if let Some(directory) = std::env::var_os("QUORATE_CLIENTS") {
        return directory.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("clients")
}

fn http_of(servers: &Servers, name: &str) -> String {
    let text = std::fs::read_to_string(servers.config(name)).unwrap();
    let line = text.lines().find(|line| line.starts_with("http.listen = ")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

#[test]
fn clients_work_over_tls_with_users_at_a_node_and_at_a_proxy() {
    let (installed, nowhere) = (installed(), Target { addr: "", ca: None, token: None });
    if RUNS.iter().all(|run| run.command(&installed, nowhere).is_none()) {
        eprintln!("skipped: no client is installed; .ci/clients installs them");
        return;
    }
    let mut servers = Servers::init(3);
    for name in ["a", "b", "c"] {
        servers.configure(name, "http.sql", "true");
        servers.serve(name);
    }
    let config = servers.config("a");
    let config = config.to_str().unwrap();
    let list = ["users", "list", "--config", config];
    wait_until("the administrator", || String::from_utf8_lossy(&quorate(&list).stdout).contains("admin  admin"));
    let app = ["users", "add", "app", "--role", "write", "--config", config];
    succeeded(&quorate_reads(&app, &format!("{PASSWORD}\n")));
    let token = succeeded(&quorate(&["users", "token", "app", "--config", config]));
    // The clients log in at this node, which may apply the token later than others.
    servers.has_caught_up("b");
    let path = |name: &str| servers.dir.path().join(name).to_str().unwrap().to_owned();

    let listen = format!("127.0.0.1:{}", free_ports(1)[0]);
    let mut proxy = Command::new(QUORATE);
    proxy.args(["proxy", "--listen", &listen, "--config", config, "--until-stdin-closes"]);
    proxy.args(["--certificate", &path("b.crt"), "--key", &path("b.key")]).stdin(Stdio::piped());
    let _proxy = Proxy(proxy.stderr(Stdio::null()).spawn().unwrap());

    let ca = servers.dir.path().join("ca.crt");
    for door in [http_of(&servers, "b"), listen] {
        for run in RUNS {
            let target = Target { addr: &door, ca: Some(&ca), token: Some(token.trim()) };
            let Some(mut client) = run.command(&installed, target) else {
                eprintln!("skipped: {} is not installed", run.name);
                continue;
            };
            for table in TABLES {
                servers.value(&format!("DROP TABLE IF EXISTS {table}"));
            }
            let mut output = None;
            wait_until("the door", || {
                let ran = client.output().unwrap();
                // Until the proxy has connected, it answers 503.
                let is_early = String::from_utf8_lossy(&ran.stderr).contains("has not answered the proxy yet");
                output = Some(ran);
                !is_early
            });
            let output = output.unwrap();
            let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let has_passed = output.status.success() && said.0.trim_end() == "passed";
            assert!(has_passed, "{} at {}: {}{}", run.name, run.url(target), said.0, said.1);
        }
    }
}
