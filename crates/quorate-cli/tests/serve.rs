//! `quorate serve` and `quorate init`: servers as an operator starts them, and their errors when they can't start.

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

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::servers::{Servers, free_ports};
use support::{failed, quorate, succeeded, wait_until};

#[test]
fn init_writes_a_working_cluster() {
    let mut servers = Servers::start(3);
    assert_eq!(servers.value("SELECT 6 * 7"), "42");
    servers.value("CREATE TABLE t (x)");
    // Restart one node after the other: the cluster keeps serving.
    for name in ["a", "b", "c"] {
        assert_eq!(servers.stop(name, Signal::TERM).code(), Some(0), "{}", servers.said(name));
        servers.value(&format!("INSERT INTO t VALUES ('{name}')"));
        servers.serve(name);
    }
    assert_eq!(servers.value("SELECT group_concat(x, '') FROM t"), "abc");
}

/// If the databases of all nodes are damaged, everything is kept for inspection, and no new cluster is founded.
#[test]
fn nodes_with_damaged_databases_found_no_cluster() {
    let names = ["a", "b", "c"];
    let mut servers = Servers::start(3);
    servers.value("CREATE TABLE t (x)");
    servers.value("INSERT INTO t VALUES (1)");
    for name in names {
        servers.stop(name, Signal::TERM);
    }
    for name in names {
        let db = data_dir(&servers, name).join("db");
        let generation = std::fs::read_dir(db).unwrap().next().unwrap().unwrap().path();
        let file = std::fs::File::options().write(true).open(generation.join("quorate.db")).unwrap();
        file.write_all_at(&[0; 100], 0).unwrap();
    }
    names.into_iter().for_each(|name| servers.serve(name));
    for name in names {
        wait_until("the node to report what it waits for", || {
            servers.said(name).contains("It founds no other cluster")
        });
    }
    // Wait long enough for a founder to collect the promises of all nodes.
    wait_until("more such reports", || {
        names.iter().all(|name| servers.said(name).matches("founds no other").count() > 1)
    });
    for name in names {
        assert_eq!(servers.said(name).matches("founding the cluster").count(), usize::from(name == "a"));
        let items = std::fs::read_dir(data_dir(&servers, name)).unwrap().map(|item| item.unwrap().file_name());
        assert_eq!(items.filter(|item| item.to_string_lossy().starts_with("db.damaged-")).count(), 1);
    }
}

/// Returns the data directory of a node.
fn data_dir(servers: &Servers, name: &str) -> PathBuf {
    let text = std::fs::read_to_string(servers.config(name)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("data_dir = ")).unwrap();
    servers.dir.path().join(line.trim_matches('"'))
}

/// Returns the events in the log of a node that logs JSON, as `event member`.
fn events(servers: &Servers, name: &str) -> Vec<String> {
    let said = servers.said(name);
    // The last line may be written just now.
    let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line));
    let events = lines.filter_map(|line| {
        let event = line["event"].as_str()?;
        Some(format!("{event} {}", line["member"].as_str().unwrap_or_default()).trim().to_owned())
    });
    events.collect()
}

#[test]
fn a_silent_member_is_logged_once() {
    let mut servers = Servers::init(3);
    for name in ["a", "b", "c"] {
        servers.configure(name, "log.format", "\"json\"");
        servers.serve(name);
    }
    servers.value("CREATE TABLE t (x)");
    wait_until("a leader to be logged", || events(&servers, "a").iter().any(|event| event.starts_with("leader ")));
    servers.stop("c", Signal::KILL);
    wait_until("the silence to be logged", || ["a", "b"].iter().all(|name| last_of_c(&servers, name) == "silent c"));
    servers.serve("c");
    wait_until("the return to be logged", || ["a", "b"].iter().all(|name| last_of_c(&servers, name) == "heard c"));
    for name in ["a", "b"] {
        // On a slow machine there may be more silences, each of which is logged once.
        let of_c = of_c(&servers, name);
        assert!(of_c.windows(2).all(|pair| pair[0] != pair[1]), "{of_c:?}");
    }
}

/// Returns what a node has logged about the silence of node c.
fn of_c(servers: &Servers, name: &str) -> Vec<String> {
    events(servers, name).into_iter().filter(|event| ["silent c", "heard c"].contains(&event.as_str())).collect()
}

fn last_of_c(servers: &Servers, name: &str) -> String {
    of_c(servers, name).pop().unwrap_or_default()
}

#[test]
fn init_overwrites_nothing() {
    let servers = Servers::init(2);
    let secret = || std::fs::read_to_string(servers.dir.path().join("secret")).unwrap();
    let before = secret();
    let again = failed(&quorate(&["init", servers.dir.path().to_str().unwrap(), "--members", "a=x:1,b=x:2"]));
    assert!(again.contains("a.toml already exists"), "{again}");
    assert_eq!(secret(), before);
    let twice = failed(&quorate(&["init", servers.dir.path().to_str().unwrap(), "--members", "a=x:1,a=x:2"]));
    assert!(twice.contains("two members are called 'a'"), "{twice}");
}

#[test]
fn members_of_one_machine_get_ports_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let init = |members: &str| quorate(&["init", dir.path().to_str().unwrap(), "--members", members]);
    let same = failed(&init("a=localhost:7001,b=127.0.0.1:7001"));
    assert!(same.contains("two members have the address 127.0.0.1:7001"), "{same}");
    assert!(!dir.path().join("secret").exists());
    let printed = succeeded(&init("a=127.0.0.1:7001,b=127.0.0.1:7002,c=10.0.0.3:7001"));
    for expected in [
        "node a at 127.0.0.1:7001, HTTP at 127.0.0.1:8001",
        "node b at 127.0.0.1:7002, HTTP at 127.0.0.1:8002",
        "node c at 10.0.0.3:7001, HTTP at 127.0.0.1:8001",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn the_configuration_is_printed_without_the_secret() {
    let servers = Servers::init(1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(["serve", "--print-config", "--config"]).arg(servers.config("a"));
    command.env("QUORATE_SECRET", "not to be printed").env("QUORATE_KEEP_LOG", "5 MiB");
    let printed = succeeded(&command.output().unwrap());
    assert!(printed.contains("keep_log = \"5 MiB\"  # QUORATE_KEEP_LOG"), "{printed}");
    assert!(printed.contains("# secret: set, not shown  # QUORATE_SECRET"), "{printed}");
    assert!(!printed.contains("not to be printed"), "{printed}");

    let unknown = command.env("QUORATE_SECRETS", "x").output().unwrap();
    let unknown = failed(&unknown);
    assert!(unknown.contains("QUORATE_SECRETS is not known; did you mean QUORATE_SECRET?"), "{unknown}");
    let not_text = command.env_remove("QUORATE_SECRETS").env("QUORATE_NAME", OsStr::from_bytes(b"\xff")).output();
    let not_text = failed(&not_text.unwrap());
    assert!(not_text.contains("the variable QUORATE_NAME is not UTF-8 text"), "{not_text}");
}

#[test]
fn wrong_arguments_give_exit_code_2() {
    for wrong in [&["serve", "--confg", "x"][..], &["serve", "x"], &["init"], &["init", "x", "--members", "a"]] {
        let output = quorate(wrong);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--help"), "{output:?}");
    }
}

/// Starts a node whose configuration was changed, and returns its output after it has failed.
fn refused(change: impl FnOnce(&Servers)) -> String {
    let mut servers = Servers::init(1);
    change(&servers);
    servers.serve("a");
    servers.failed("a")
}

#[test]
fn a_server_that_cannot_start_says_why_and_what_to_do() {
    let missing = failed(&quorate(&["serve", "--config", "no-such.toml"]));
    assert!(missing.contains("no-such.toml: No such file"), "{missing}");
    let nothing = failed(&quorate(&["serve"]));
    for expected in ["'data_dir' is missing", "--config FILE", "quorate init DIR", "QUORATE_*"] {
        assert!(nothing.contains(expected), "{nothing}");
    }
    let misspelt = refused(|servers| {
        let text = std::fs::read_to_string(servers.config("a")).unwrap();
        std::fs::write(servers.config("a"), text.replace("data_dir", "datadir")).unwrap();
    });
    assert!(misspelt.contains("'datadir' is not known; did you mean 'data_dir'?"), "{misspelt}");
    assert!(misspelt.contains("/a.toml:"), "{misspelt}");
    let no_secret = refused(|servers| servers.configure("a", "secret_file", "\"elsewhere\""));
    assert!(no_secret.contains("elsewhere: No such file"), "{no_secret}");

    let port = free_ports(1)[0];
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let occupied = refused(|servers| servers.configure("a", "listen", &format!("\"127.0.0.1:{port}\"")));
    assert!(occupied.contains(&format!("127.0.0.1:{port}")) && occupied.contains("in use"), "{occupied}");
    assert!(occupied.contains("'listen'"), "{occupied}");
    let occupied = refused(|servers| servers.configure("a", "http.listen", &format!("\"127.0.0.1:{port}\"")));
    assert!(occupied.contains("in use") && occupied.contains("'http.listen'"), "{occupied}");
    drop(taken);
}

#[test]
fn a_foreign_or_newer_directory_is_refused_and_kept() {
    let mut servers = Servers::start(1);
    servers.value("CREATE TABLE t (x)");

    // The directory belongs to a running node.
    let mut second = Command::new(env!("CARGO_BIN_EXE_quorate"));
    second.args(["serve", "--config"]).arg(servers.config("a")).env("QUORATE_HTTP_LISTEN", "127.0.0.1:0");
    let second = failed(&second.output().unwrap());
    assert!(second.contains("is in use by another node"), "{second}");
    assert_eq!(servers.stop("a", Signal::TERM).code(), Some(0));

    // The directory belongs to another node: the name in it differs.
    let config = std::fs::read_to_string(servers.config("a")).unwrap();
    std::fs::write(servers.config("a"), config.replace("name = \"a\"", "name = \"z\"").replace("\na = ", "\nz = "))
        .unwrap();
    servers.serve("a");
    let foreign = servers.failed("a");
    assert!(foreign.contains("'a'") && foreign.contains("'z'"), "{foreign}");
    std::fs::write(servers.config("a"), &config).unwrap();

    // The directory belongs to a newer version: all segments of the log have format 2.
    let log = servers.dir.path().join("a/log");
    set_format(&log, 2);
    servers.serve("a");
    wait_until("the node to refuse", || servers.said("a").contains("has format 2"));
    let newer = servers.failed("a");
    assert!(newer.contains("run the version that wrote it"), "{newer}");

    set_format(&log, 1);
    servers.serve("a");
    assert_eq!(servers.value("SELECT count(*) FROM t"), "0");
}

/// Rewrites the headers of a log's segments, as docs/wal-format.md describes them.
fn set_format(log: &Path, format: u16) {
    for segment in std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()) {
        if segment.extension().is_none_or(|extension| extension != "wal") {
            continue;
        }
        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[8..10].copy_from_slice(&format.to_le_bytes());
        let state = u32::from_le_bytes(bytes[20..24].try_into().unwrap());
        let state_end = 64 + usize::try_from(state).unwrap();
        let checked = [&bytes[12..20], &bytes[..60], &bytes[64..state_end]].concat();
        let sum = crc32c::crc32c(&checked).to_le_bytes();
        bytes[60..64].copy_from_slice(&sum);
        std::fs::write(&segment, bytes).unwrap();
    }
}

/// The binary accepts the settings in the Kubernetes manifests and in the Dockerfile.
#[test]
fn deployment_files_hold_a_valid_configuration() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let manifests = std::fs::read_to_string(deploy.join("kubernetes.yaml")).unwrap();
    let lines: Vec<&str> = manifests.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter_map(|pair| {
        let name = pair[0].strip_prefix("- name: ").filter(|name| name.starts_with("QUORATE_"))?;
        Some((name, pair[1].strip_prefix("value: ").unwrap().trim_matches('"')))
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    // No member has the name of this host.
    let from_host = "QUORATE_NAME_FROM_HOSTNAME";
    let pairs =
        pairs.map(|(name, value)| if name == from_host { ("QUORATE_NAME", "quorate-2") } else { (name, value) });
    let printed = succeeded(&command.args(["serve", "--print-config"]).envs(pairs).output().unwrap());
    for line in [
        "name = \"quorate-2\"  # QUORATE_NAME",
        "data_dir = \"/data\"  # QUORATE_DATA_DIR",
        "http.listen = \"0.0.0.0:8001\"  # QUORATE_HTTP_LISTEN",
        "log.format = \"json\"  # QUORATE_LOG_FORMAT",
        "quorate-1 = \"quorate-1.quorate-peers:7001\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
    }

    let dockerfile = std::fs::read_to_string(deploy.join("Dockerfile")).unwrap();
    let words = dockerfile.split([' ', '\n']).filter(|word| word.starts_with("QUORATE_") && !word.ends_with("..."));
    let pairs = words.filter_map(|word| word.split_once('='));
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let printed = succeeded(&command.args(["serve", "--print-config"]).envs(pairs).output().unwrap());
    assert!(printed.contains("listen = \"0.0.0.0:7001\"  # QUORATE_LISTEN"), "{printed}");
}

#[test]
fn a_wrong_secret_is_logged_on_both_sides() {
    let mut servers = Servers::init(3);
    std::fs::write(servers.dir.path().join("other"), "another secret of enough bytes").unwrap();
    servers.configure("b", "secret_file", "\"other\"");
    ["a", "b", "c"].into_iter().for_each(|name| servers.serve(name));
    let lines = |servers: &Servers, name: &str, text: &str| {
        let said = servers.said(name);
        let lines = said.lines().filter(|line| line.contains(text)).map(str::to_owned);
        lines.collect::<Vec<String>>()
    };
    wait_until("the wrong secret to be logged", || {
        let waiting = lines(&servers, "b", "waiting to belong to a cluster");
        waiting.iter().any(|line| line.contains("the secrets differ"))
    });
    let waits = lines(&servers, "b", "waiting to belong to a cluster");
    assert!(!waits.iter().any(|line| line.contains("has not founded it yet")), "{waits:?}");
    let warned = lines(&servers, "b", "does not let this one in");
    assert!(warned.iter().all(|line| line.contains("WARN")) && (1..=4).contains(&warned.len()), "{warned:?}");
    wait_until("the other side to log it", || !lines(&servers, "a", "a connection was refused").is_empty());
    let refused = lines(&servers, "a", "a connection was refused");
    for expected in ["WARN", "from=\"127.0.0.1:", "the secrets differ"] {
        assert!(refused[0].contains(expected), "{refused:?}");
    }
}

#[test]
fn only_the_owner_can_read_a_servers_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut servers = Servers::start(1);
    servers.value("CREATE TABLE t (x)");
    assert_eq!(servers.stop("a", Signal::TERM).code(), Some(0));
    let mut open = vec![servers.dir.path().join("a")];
    while let Some(path) = open.pop() {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let secret = std::fs::metadata(servers.dir.path().join("secret")).unwrap().permissions().mode();
    assert_eq!(secret & 0o077, 0);
}

#[test]
fn a_server_may_open_as_many_files_as_the_system_allows() {
    let servers = Servers::init(1);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 300; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_quorate")]);
    command.args(["serve", "--until-stdin-closes", "--config"]).arg(servers.config("a"));
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", server.id())).unwrap();
    wait_until("the shell has become the server", || read("comm").trim() == "quorate");
    wait_until("its limit is raised", || {
        let limits = read("limits");
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let words: Vec<&str> = files.split_whitespace().collect();
        words[0] == words[1]
    });
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}
