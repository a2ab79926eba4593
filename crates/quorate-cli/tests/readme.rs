//! Runs the commands on the first page of the README as they are written there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Dev, quorate_in, wait_until};

/// The first line of the block of commands.
const FIRST: &str = "quorate=target/release/quorate";

/// A `sqlite3` for machines without one: Python's SQLite.
const SQLITE3: &str = "#!/usr/bin/env python3
import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]):
    print(*row, sep='|')
";

/// A `redis-cli` for machines without one: it sends a command, and prints the lines of the reply.
const REDIS_CLI: &str = r"#!/usr/bin/env python3
import socket, sys
connection = socket.create_connection(('127.0.0.1', int(sys.argv[2])))
words = [word.encode() for word in sys.argv[3:]]
connection.sendall(b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(word), word) for word in words))
print(connection.recv(65536).decode())
";

/// Returns the commands of the block, without the first line.
fn commands() -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let block = text.split("```sh\n").find_map(|block| block.strip_prefix(FIRST)).unwrap();
    block.split("```").next().unwrap().trim().to_owned()
}

/// Puts a program into a directory of the path.
fn install(path: &Path, program: &str) {
    std::fs::write(path, program).unwrap();
    Command::new("chmod").arg("+x").arg(path).status().unwrap();
}

fn has(program: &str, version: &str) -> bool {
    Command::new(program).arg(version).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn the_commands_of_the_readme_work() {
    let dev = Dev::start(3);
    let here = tempfile::tempdir().unwrap();
    symlink(dev.dir.path(), here.path().join("quorate-data")).unwrap();
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"), here.path().join("examples")).unwrap();
    let mut path = std::env::var("PATH").unwrap();
    if !has("sqlite3", "-version") {
        install(&here.path().join("sqlite3"), SQLITE3);
        path = format!("{}:{path}", here.path().display());
    }

    let commands = commands();
    let mut said = String::new();
    for command in commands.lines() {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(here.path()).env("PATH", &path);
        let output = shell.env("quorate", env!("CARGO_BIN_EXE_quorate")).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{command}\n{output:?}\n{said}");
        said.push_str(&format!("$ {command}\n{}", String::from_utf8_lossy(&output.stdout)));
    }
    // Saturn has 274 moons in the file. One was added while a node was dead, and the backup has it.
    assert!(said.contains("274"), "{said}");
    assert!(said.lines().any(|line| line == "275"), "{said}");
}

/// Starts `quorate dev` in the foreground of another terminal.
fn in_another_terminal(command: &str, here: &Path) -> Child {
    let command = command.replace("$quorate dev", "exec \"$quorate\" dev --until-stdin-closes");
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).current_dir(here).env("quorate", env!("CARGO_BIN_EXE_quorate"));
    let child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("the cluster", || here.join("quorate-data/cluster.json").exists());
    child
}

/// Waits until everything that was written so far is archived.
fn wait_for_archive(here: &Path) {
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&quorate_in(here, args).stdout).unwrap_or_default()
    };
    let mut written = None;
    wait_until("a status", || {
        let status = json(&["status", "--json"]);
        let members = status["members"].as_array().into_iter().flatten();
        // A node that has not answered may have applied more than the others.
        let applied = members.map(|member| member["applied"].as_u64()).collect::<Option<Vec<_>>>();
        written = applied.and_then(|applied| applied.into_iter().max());
        written.is_some()
    });
    let written = written.unwrap();
    wait_until("everything is archived", || {
        let listed = json(&["archive", "list", "--json", "quorate-archive"]);
        let last = listed[0]["last"]["position"].as_str().and_then(|last| last.rsplit('.').next()?.parse().ok());
        last.is_some_and(|last: u64| last >= written)
    });
}

#[test]
fn the_commands_about_the_loss_of_all_machines_work() {
    let here = tempfile::tempdir().unwrap();
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let block = readme.split("```sh\n").find(|block| block.starts_with("$quorate dev --archive")).unwrap();
    let (mut first_terminal, mut said) = (None::<Child>, String::new());
    for command in block.split("```").next().unwrap().lines() {
        if command.starts_with("$quorate dev") {
            first_terminal = Some(in_another_terminal(command, here.path()));
            continue;
        }
        if command.starts_with("kill") {
            // A second later, says the text.
            wait_for_archive(here.path());
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(here.path()).env("quorate", env!("CARGO_BIN_EXE_quorate"));
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{command}\n{output:?}\n{said}");
        said.push_str(&String::from_utf8_lossy(&output.stdout));
        if command.starts_with("kill")
            && let Some(mut dev) = first_terminal.take()
        {
            dev.kill().unwrap();
            dev.wait().unwrap();
        }
    }
    assert!(said.lines().any(|line| line.contains("kept")), "{said}");
    if let Some(mut dev) = first_terminal {
        // It stops when its standard input closes.
        drop(dev.stdin.take());
        dev.wait().unwrap();
    }
}

#[test]
fn the_curl_commands_of_the_http_page_work() {
    if !has("curl", "--version") {
        assert!(std::env::var_os("CI").is_none(), "CI has curl");
        eprintln!("skipped: there is no curl");
        return;
    }
    let dev = Dev::start(3);
    let here = tempfile::tempdir().unwrap();
    symlink(dev.dir.path(), here.path().join("quorate-data")).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http.md");
    let text = std::fs::read_to_string(page).unwrap();
    let mut blocks = text.split("```sh\n").filter(|block| block.starts_with("url="));
    let mut run = || {
        let script = blocks.next().unwrap().split("```").next().unwrap();
        let output = Command::new("sh").args(["-ec", script]).current_dir(here.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}\n{output:?}");
        said
    };
    let said = run();
    // The INSERT was sent twice and done once.
    assert!(said.contains(r#""values":[[1]]"#), "{said}");
    assert!(said.contains(r#"{"moons":2,"name":"Mars"}"#) || said.contains(r#"{"name":"Mars","moons":2}"#), "{said}");
    assert!(said.contains(r#""value":"42""#) && said.ends_with("{\"ready\":true}\n"), "{said}");
    // About keys.
    let said = run();
    assert!(said.starts_with("hello1{\"type\":\"hash\"") && said.contains("\"results\":[2.5,1]"), "{said}");
    assert!(said.contains("\"key\":\"user:7\""), "{said}");
    // About locks.
    let said = run();
    assert!(said.contains("\"note\":\"the report of today\"") && said.contains("{\"ended\":[\""), "{said}");
    assert!(said.ends_with("{\"locks\":[],\"next\":null}"), "{said}");
}

#[test]
fn the_commands_of_redis_cli_and_sql_on_the_page_of_keys_work() {
    let dev = Dev::start(3);
    let here = tempfile::tempdir().unwrap();
    symlink(dev.dir.path(), here.path().join("quorate-data")).unwrap();
    symlink(env!("CARGO_BIN_EXE_quorate"), here.path().join("quorate")).unwrap();
    if !has("redis-cli", "--version") {
        install(&here.path().join("redis-cli"), REDIS_CLI);
    }
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/keys.md")).unwrap();
    let block = text.split("```sh\n").find(|block| block.starts_with("port=")).unwrap();
    let script = block.split("```").next().unwrap();
    let path = format!("{}:{}", here.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh").args(["-ec", script]).current_dir(here.path()).env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{output:?}");
    assert!(said.contains("OK") && said.contains("hello") && said.contains("Ann") && said.contains("Bern"), "{said}");
}
