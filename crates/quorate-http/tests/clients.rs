//! Real clients, unmodified, on a real node. `.ci/clients` installs them; one that is not installed is skipped, with a
//! message.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "a test that starts other programs")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Server;

/// Returns the directory of the clients: the one that `.ci/clients` uses.
fn installed() -> PathBuf {
    if let Some(directory) = std::env::var_os("QUORATE_CLIENTS") {
        return directory.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("clients")
}

/// Runs the script of a client against a node of its own, which it reaches by an URL with this scheme.
async fn run(script: &str, package: &str, scheme: &str) {
    if is_there(script, package) {
        run_on(&Server::start().await, script, scheme, None);
    }
}

/// The same, with a node that has users.
async fn run_as_user(script: &str, package: &str, scheme: &str) {
    if is_there(script, package) {
        let (server, [_, write, _]) = Server::with_users().await;
        run_on(&server, script, scheme, Some(&write));
    }
}

fn is_for_node(script: &str) -> bool {
    script.ends_with(".cjs")
}

/// Returns whether a client is installed; says so if it is not.
fn is_there(script: &str, package: &str) -> bool {
    let (npm, python) = (installed().join("npm/node_modules"), installed().join("python"));
    let is_there = if is_for_node(script) {
        npm.join(package).exists()
    } else {
        python.join("bin/python").exists() && python.join("lib").exists()
    };
    if !is_there {
        eprintln!("skipped: {package} is not installed; .ci/clients installs it");
    }
    is_there
}

fn run_on(server: &Server, script: &str, scheme: &str, token: Option<&str>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let (npm, python) = (installed().join("npm/node_modules"), installed().join("python"));
    let url = format!("{scheme}://{}", server.http.local_addr());
    let mut command = if is_for_node(script) { Command::new("node") } else { Command::new(python.join("bin/python")) };
    let ran = command.arg(&path).arg(&url).args(token).env("NODE_PATH", &npm).output();
    let Ok(output) = ran else {
        eprintln!("skipped: {script} needs a program that is not installed");
        return;
    };
    let texts = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && texts.0.trim_end() == "passed", "{script}: {}{}", texts.0, texts.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_client_for_node() {
    run("libsql.cjs", "@libsql/client", "http").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_client_for_node_over_websocket() {
    run("libsql.cjs", "@libsql/client", "ws").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_client_for_node_with_a_token() {
    for scheme in ["http", "ws"] {
        run_as_user("libsql.cjs", "@libsql/client", scheme).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn turso_serverless_for_node() {
    run("serverless.cjs", "@tursodatabase/serverless", "http").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rqlite_js() {
    run("rqlite.cjs", "rqlite-js", "http").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_client_for_python() {
    run("libsql.py", "libsql-client", "http").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_client_for_python_over_websocket() {
    run("libsql.py", "libsql-client", "ws").await;
    run_as_user("libsql.py", "libsql-client", "ws").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pyrqlite() {
    run("rqlite.py", "pyrqlite", "http").await;
}
