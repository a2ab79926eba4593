//! `quorate users` on a real process: an operator adds, changes and removes users, beginning with the administrator of
//! `quorate init`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::servers::{Servers, free_ports};
use support::{failed, quorate, quorate_reads, succeeded, wait_until};

/// Runs a command for users, with this standard input.
fn users(config: &Path, args: &[&str], input: &str) -> Output {
    quorate_reads(&[&["users"], args, &["--config", config.to_str().unwrap()]].concat(), input)
}

fn listed(config: &Path) -> Value {
    serde_json::from_str(&succeeded(&users(config, &["list", "--json"], ""))).unwrap()
}

#[test]
fn an_operator_adds_changes_and_removes_users() {
    let mut servers = Servers::init(1);
    servers.serve("a");
    let config = servers.config("a");
    wait_until("the administrator of the configuration", || {
        let list = users(&config, &["list", "--json"], "");
        serde_json::from_slice::<Value>(&list.stdout).is_ok_and(|list| list[0]["name"] == "admin")
    });
    assert_eq!(listed(&config)[0]["role"], "admin");

    let last = failed(&users(&config, &["remove", "admin"], ""));
    assert!(last.contains("'admin' was not removed: no administrator who can log in would be left"), "{last}");
    let short = failed(&users(&config, &["add", "ann", "--role", "admin"], "short\n"));
    assert!(short.contains("from 8 to 1024 bytes, not 5; choose another one"), "{short}");
    let none = failed(&users(&config, &["add", "ann", "--role", "admin"], ""));
    assert!(none.contains("no password was given"), "{none}");
    succeeded(&users(&config, &["add", "ann", "--role", "admin"], "correct horse\n"));
    let token = succeeded(&users(&config, &["add", "app", "--role", "write", "--token"], ""));
    assert!(token.starts_with("quorate_") && token.lines().count() == 1, "only the token is printed: {token}");
    succeeded(&users(&config, &["remove", "admin"], ""));
    succeeded(&users(&config, &["role", "app", "read"], ""));
    succeeded(&users(&config, &["passwd", "app"], "another horse\n"));
    let first = listed(&config)[1]["tokens"][0]["id"].as_str().unwrap().to_owned();
    let made: Value = serde_json::from_str(&succeeded(&users(&config, &["token", "app", "--json"], ""))).unwrap();
    succeeded(&users(&config, &["token", "app", "--remove", &first], ""));
    let unknown = failed(&users(&config, &["token", "app", "--remove", &first], ""));
    assert!(unknown.contains(&format!("'app' has no token {first}; list the users")), "{unknown}");
    let all = listed(&config);
    assert_eq!((&all[0]["name"], &all[0]["password"]), (&"ann".into(), &true.into()));
    assert_eq!((&all[1]["name"], &all[1]["role"]), (&"app".into(), &"read".into()));
    assert_eq!((all[1]["tokens"].as_array().unwrap().len(), &all[1]["tokens"][0]["id"]), (1, &made["id"]));
    let shown = succeeded(&users(&config, &["list"], ""));
    assert!(shown.contains("app   read   yes"), "{shown}");
}

/// What `init` writes holds no token; what it prints holds one.
#[test]
fn init_shows_the_token_of_the_administrator_once() {
    let dir = tempfile::tempdir().unwrap();
    let members = format!("a=127.0.0.1:{}", free_ports(1)[0]);
    let printed = succeeded(&quorate(&["init", dir.path().to_str().unwrap(), "--members", &members]));
    let token = printed.lines().find_map(|line| line.trim().strip_prefix("quorate_")).unwrap();
    assert_eq!(token.len(), 64, "{printed}");
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains(token), "{text}");
    }
    let config = std::fs::read_to_string(dir.path().join("a.toml")).unwrap();
    assert!(config.lines().any(|line| line.starts_with("admin_token_hash = ")), "{config}");
}
