//! Real clients, unmodified, on a real node, without users and with users. `.ci/clients` installs them; one that is not
//! installed is skipped, with a message.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "a test that starts other programs")]

mod common;
#[allow(dead_code, reason = "only what shares a cluster between clients has tables to drop")]
#[path = "clients/runs.rs"]
mod runs;

use std::path::{Path, PathBuf};

use common::Server;
use quorate::admin::Login;
use quorate::users::UserRole;
use runs::{PASSWORD, RUNS, Run, Target};

/// Returns the directory of the clients: the one that `.ci/clients` uses.
fn installed() -> PathBuf {
    if let Some(directory) = std::env::var_os("QUORATE_CLIENTS") {
        return directory.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("clients")
}

/// Runs a client by each of its protocols, each time against nodes of its own.
async fn run(name: &str) {
    for run in RUNS.iter().filter(|run| run.name == name) {
        run_on(*run, &Server::without_users().await, None);
        let (server, _) = Server::with_users().await;
        let admin = server.node.admin();
        admin.add_user("app", UserRole::Write, Login::Password(PASSWORD.to_owned())).await.unwrap();
        run_on(*run, &server, Some(admin.add_token("app").await.unwrap().text()));
    }
}

fn run_on(run: Run, server: &Server, token: Option<&str>) {
    let addr = server.http.local_addr().to_string();
    let Some(mut command) = run.command(&installed(), Target { addr: &addr, ca: None, token }) else {
        eprintln!("skipped: {} is not installed; .ci/clients installs it", run.name);
        return;
    };
    let output = command.output().unwrap();
    let texts = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && texts.0.trim_end() == "passed", "{command:?}: {}{}", texts.0, texts.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_client_for_node() {
    run("libsql.cjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turso_serverless_for_node() {
    run("serverless.cjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drizzle() {
    run("drizzle.cjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kysely() {
    run("kysely.cjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rqlite_js() {
    run("rqlite.cjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_client_for_python() {
    run("libsql.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlalchemy() {
    run("orm.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pyrqlite() {
    run("rqlite.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_client_for_go() {
    run("go/libsql").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gorqlite() {
    run("go/rqlite").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn libsql_for_rust() {
    run("rust/debug/libsql-client").await;
}
