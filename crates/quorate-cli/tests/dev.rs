//! `quorate dev` and its purpose: a cluster of processes in which a node is killed and nothing is lost.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use rustix::process::Signal;
use support::{Dev, ended_with, failed, is_alive, quorate, quorate_in, succeeded, until_said, wait_until};

#[test]
fn a_killed_leader_comes_back_and_nothing_is_lost() {
    let dev = Dev::start(3);
    let ids: Vec<u64> = dev.nodes().iter().map(|node| node["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3]);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER); INSERT INTO kept VALUES (1)"));

    let mut leader = 0;
    // There may be an election between the two looks.
    wait_until("the process of the leader", || {
        leader = dev.leader();
        let printed = quorate(&["dev", "--pid", "leader", "--data-dir", dev.path()]).stdout;
        String::from_utf8_lossy(&printed).trim().parse() == Ok(dev.pid(leader))
    });
    let pid = dev.pid(leader);
    dev.kill(leader);
    succeeded(&dev.sql(&[], "INSERT INTO kept VALUES (2)"));
    let survivor = ids.iter().copied().find(|id| *id != leader).unwrap();
    assert_eq!(dev.value(Some(survivor), "SELECT count(*) FROM kept"), "2");
    wait_until("the report of the killed node", || dev.said().contains(&format!("node {leader} (pid {pid}) ended")));

    let ended = failed(&quorate(&["dev", "--pid", &leader.to_string(), "--data-dir", dev.path()]));
    assert!(ended.contains(&format!("node {leader} does not run")), "{ended}");
    // The system may give the id of an ended process to another one, here to this test.
    let file = dev.dir.path().join("cluster.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let reused = text.replace(&format!("\"pid\":{pid},"), &format!("\"pid\":{},", std::process::id()));
    assert_ne!(reused, text);
    std::fs::write(&file, reused).unwrap();
    succeeded(&quorate(&["dev", "--restart", "--data-dir", dev.path()]));
    assert!(![pid, std::process::id().try_into().unwrap()].contains(&dev.pid(leader)));
    assert_eq!(dev.value(Some(leader), "SELECT count(*) FROM kept"), "2");
    wait_until("all nodes to answer", || {
        dev.status()["members"].as_array().unwrap().iter().all(|member| member["reachable"] == true)
    });

    let pids: Vec<i32> = ids.iter().map(|id| dev.pid(*id)).collect();
    let (code, dir) = dev.end(Signal::INT);
    assert_eq!(code, Some(0));
    assert!(!pids.into_iter().any(is_alive));
    assert!(!dir.path().join("cluster.json").exists());

    let dev = Dev::start_in(dir, &[]);
    assert_eq!(dev.nodes().len(), 3);
    assert_eq!(dev.value(None, "SELECT sum(value) FROM kept"), "3");
    assert_eq!(dev.end(Signal::TERM).0, Some(0));
}

#[test]
fn nodes_end_with_the_process_that_started_them() {
    let dev = Dev::start(1);
    let pid = dev.pid(1);
    assert_eq!(dev.end(Signal::KILL).0, None);
    wait_until("the end of the node", || !is_alive(pid));
}

#[test]
fn a_directory_belongs_to_one_cluster_at_a_time() {
    let dev = Dev::start(1);
    let second = failed(&quorate(&["dev", "--data-dir", dev.path()]));
    assert!(second.contains("already running"), "{second}");
    let no_such_node = failed(&dev.restart(2));
    assert!(no_such_node.contains("no node 2"), "{no_such_node}");

    let (_, dir) = dev.end(Signal::INT);
    let path = dir.path().to_str().unwrap();
    let other_number = failed(&quorate(&["dev", "--nodes", "3", "--data-dir", path]));
    assert!(other_number.contains("holds a cluster of 1 nodes"), "{other_number}");
    let nobody = failed(&quorate(&["dev", "--restart", "1", "--data-dir", path]));
    assert!(nobody.contains("no `quorate dev` runs"), "{nobody}");
}

#[test]
fn a_node_is_found_by_its_address_alone() {
    let dev = Dev::start(1);
    let elsewhere = tempfile::tempdir().unwrap();
    let addr = dev.addr(1);
    let output = quorate_in(elsewhere.path(), &["sql", "--node", &addr, "--format", "csv", "SELECT 6 * 7 AS n"]);
    assert_eq!(succeeded(&output), "n\n42\n");
    succeeded(&until_said("node 1 leads", || quorate_in(elsewhere.path(), &["status", "--node", &addr])));
}

#[test]
fn errors_name_what_cannot_be_reached() {
    let elsewhere = tempfile::tempdir().unwrap();
    let no_cluster = ended_with(3, &quorate_in(elsewhere.path(), &["sql", "SELECT 1"]));
    assert!(no_cluster.contains("no cluster runs in quorate-data"), "{no_cluster}");
    let no_secret = ended_with(3, &quorate_in(elsewhere.path(), &["sql", "--node", "127.0.0.1:1", "SELECT 1"]));
    assert!(no_secret.contains("the secret of 127.0.0.1:1 is not known"), "{no_secret}");

    let dev = Dev::start(1);
    let secret = dev.dir.path().join("secret");
    let unreachable = failed(&quorate(&["status", "--node", "127.0.0.1:1", "--secret-file", secret.to_str().unwrap()]));
    assert!(unreachable.contains("127.0.0.1:1"), "{unreachable}");

    let wrong = elsewhere.path().join("wrong");
    std::fs::write(&wrong, "another secret of enough bytes").unwrap();
    for (command, code) in [(["status", "--json"].as_slice(), 1), (&["sql", "SELECT 1"], 3)] {
        let options = ["--node", &dev.addr(1), "--secret-file", wrong.to_str().unwrap()];
        ended_with(code, &until_said("secret", || quorate(&[command, &options].concat())));
    }
}
