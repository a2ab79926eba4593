//! Faults that a cluster of real processes must survive: full disks, damaged logs, random bytes on its ports, foreign
//! nodes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate_env::Rng;
use rustix::process::Signal;
use support::servers::Servers;
use support::{Dev, failed, is_alive, processor_time, quorate, succeeded, wait_until, wait_until_within};

/// A row that does not fit into what a full disk has left.
const INSERT: &str = "INSERT INTO kept VALUES (zeroblob(100000))";
const COUNT: &str = "SELECT count(*) FROM kept";

#[test]
fn a_full_disk_of_each_node_in_turn_loses_nothing() {
    let Some(dev) = Dev::start_on_small_disks(224) else {
        eprintln!("not run: this machine does not allow mount namespaces");
        return;
    };
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value BLOB)"));
    let mut rows = 0;
    let mut write = |many: usize| {
        for _ in 0..many {
            succeeded(&dev.sql(&[], INSERT));
            rows += 1;
        }
        rows.to_string()
    };
    let leader = dev.leader();
    let followers_first = dev.ids().into_iter().filter(|id| *id != leader).chain([leader]);
    for id in followers_first {
        write(1);
        let ballast = dev.node_dir(id).join("ballast");
        fill_disk(&ballast);
        write(10);
        wait_until("the node to report that its disk is full", || dev.node_said(id).contains("no space left"));
        wait_until("a leader with a disk", || dev.led_by().is_some_and(|leader| leader != id));
        let expected = write(2);

        std::fs::remove_file(&ballast).unwrap();
        wait_until("the node to catch up", || dev.value(Some(id), COUNT) == expected);
        assert!(is_alive(dev.pid(id)));
    }
    let expected = write(1);
    for id in dev.ids() {
        wait_until("all rows on every node", || dev.value(Some(id), COUNT) == expected);
        assert!(!dev.node_said(id).contains("panicked"), "{}", dev.node_said(id));
    }
}

/// Writes zeros until not one byte is left.
fn fill_disk(ballast: &Path) {
    let mut file = File::create(ballast).unwrap();
    for len in [1 << 20, 4096, 1] {
        let zeros = vec![0; len];
        let error = std::iter::repeat_with(|| file.write_all(&zeros)).find_map(Result::err).unwrap();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
}

#[test]
fn a_damaged_log_makes_the_node_a_new_member() {
    let dev = Dev::start(3).configured("[timing]\nsilence = \"2 s\"");
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value BLOB)"));
    for damage in [flip_a_bit, cut_the_tail] {
        for _ in 0..20 {
            succeeded(&dev.sql(&[], INSERT));
        }
        let leader = dev.leader();
        let victim = dev.ids().into_iter().find(|id| *id != leader).unwrap();
        let expected = dev.value(Some(leader), COUNT);
        wait_until("the victim to catch up", || dev.value(Some(victim), COUNT) == expected);
        let before = dev.member(victim)["raft_id"].clone();
        let said = dev.node_said(victim).len();
        dev.kill(victim);
        wait_until("its end", || !is_alive(dev.pid(victim)));
        damage(&dev.dir.path().join(format!("node-{victim}/log")));

        succeeded(&dev.restart(victim));
        wait_until("the return as a new member", || {
            let member = dev.member(victim);
            member["voter"] == true && member["reachable"] == true && member["raft_id"] != before
        });
        let log = dev.node_said(victim)[said..].to_owned();
        assert!(log.contains("the log is damaged") && log.contains("comes back as a new member"), "{log}");
        wait_until("its rows", || dev.value(Some(victim), COUNT) == expected);
    }
    assert_eq!(dev.value(None, COUNT), "40");
}

fn flip_a_bit(log: &Path) {
    let (path, bytes, used) = newest_segment(log);
    // Not in the padding, which is never read.
    let at = (used / 2..used).find(|at| bytes[*at] != 0).unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
}

fn cut_the_tail(log: &Path) {
    let (path, _, used) = newest_segment(log);
    OpenOptions::new().write(true).open(path).unwrap().set_len((used / 2) as u64).unwrap();
}

/// Returns the last segment in use, its bytes, and the number of bytes before the trailing zeros.
fn newest_segment(log: &Path) -> (PathBuf, Vec<u8>, usize) {
    let files = std::fs::read_dir(log).unwrap().map(|item| item.unwrap().path());
    let segments = files.filter(|path| path.extension().is_some_and(|extension| extension == "wal"));
    let path = segments.max().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (path, bytes, used)
}

#[test]
fn a_node_with_a_damaged_database_gets_a_copy() {
    let mut dev = Dev::start(3).configured("[timing]\nsilence = \"2 s\"");
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value BLOB)"));
    // The header is read when the database is opened, rows only when a statement reads them.
    for is_header in [true, false] {
        for _ in 0..20 {
            succeeded(&dev.sql(&[], INSERT));
        }
        let leader = dev.leader();
        let victim = dev.ids().into_iter().find(|id| *id != leader).unwrap();
        let before = dev.member(victim)["raft_id"].clone();
        let (_, dir) = dev.end(Signal::INT);
        overwrite(&dir.path().join(format!("node-{victim}/db")), is_header);
        dev = Dev::start_in(dir, &[]);
        if !is_header {
            // The writer finds the damage. Other nodes have applied the entry: this node takes a copy and continues.
            let pid = dev.pid(victim);
            succeeded(&dev.sql(&[], "DELETE FROM kept"));
            succeeded(&dev.sql(&[], INSERT));
            let expected = dev.value(None, COUNT);
            wait_until("its rows", || dev.value(Some(victim), COUNT) == expected);
            let said = dev.node_said(victim);
            assert!(is_alive(pid) && said.contains("the database is damaged"), "{said}");
            assert_eq!(dev.member(victim)["raft_id"], before);
            continue;
        }
        wait_until("the return as a new member", || {
            let member = dev.member(victim);
            member["voter"] == true && member["reachable"] == true && member["raft_id"] != before
        });
        succeeded(&dev.sql(&[], INSERT));
        let expected = dev.value(None, COUNT);
        wait_until("its rows", || dev.value(Some(victim), COUNT) == expected);
        let said = dev.node_said(victim);
        assert!(said.contains("the database is damaged") || said.contains("not a database"), "{said}");
    }
}

/// A statement with this clause can't be interrupted for minutes, even on a fast machine: SQLite builds the terms in
/// one step, in a time that grows with the square of their number.
const ENDLESS: &str = "FROM words WHERE words MATCH \
                       (SELECT 'NEAR(' || replace(printf('%.*c', 64000, 'x'), 'x', 'fox ') || ')')";
const WORDS: &str = "CREATE VIRTUAL TABLE words USING fts5 (body)";
const FOXES: &str = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000) \
                     INSERT INTO words SELECT 'the quick brown fox fox fox ' || x FROM c";

/// How long it may take until an entry is rejected: several nodes are stuck, end and start again before.
const REJECTION_MAX: Duration = Duration::from_secs(180);

#[test]
fn stuck_nodes_end_and_reject_the_entry_on_restart() {
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value BLOB)"));
    succeeded(&dev.sql(&[], WORDS));
    succeeded(&dev.sql(&[], FOXES));
    std::thread::scope(|scope| {
        // The client may have to try a node that has ended.
        scope.spawn(|| dev.sql(&["--budget", "1000000", "--timeout", "20"], &format!("DELETE {ENDLESS}")));
        let mut ended = 0;
        wait_until_within(REJECTION_MAX, "the rejection", || {
            for id in dev.ids().into_iter().filter(|id| !is_alive(dev.pid(*id))) {
                ended += 1;
                succeeded(&dev.restart(id));
            }
            dev.ids().into_iter().any(|id| dev.node_said(id).contains("the cluster rejects entry"))
        });
        assert!(ended > 0, "no node was stuck");
    });
    succeeded(&dev.sql(&[], INSERT));
    for id in dev.ids() {
        wait_until("all rows on every node", || dev.value(Some(id), COUNT) == "1");
        assert_eq!(dev.value(Some(id), "SELECT count(*) FROM words"), "1000");
    }
}

#[test]
fn a_stop_does_not_wait_for_an_unstoppable_query() {
    let mut servers = Servers::start(1);
    wait_until("the node is ready", || servers.said("a").contains("a is ready"));
    let config = servers.config("a");
    let sql = |text: &str| quorate(&["sql", "--timeout", "20", "--config", config.to_str().unwrap(), text]);
    succeeded(&sql(WORDS));
    succeeded(&sql(FOXES));
    let before = processor_time(servers.pid("a"));
    std::thread::scope(|scope| {
        scope.spawn(|| sql(&format!("SELECT count(*) {ENDLESS}")));
        wait_until("the query runs", || processor_time(servers.pid("a")) > before + 100);
        assert_eq!(servers.stop("a", Signal::TERM).code(), Some(1));
    });
    assert!(servers.said("a").contains("stop_cut_short"), "{}", servers.said("a"));
}

#[test]
fn an_entry_is_rejected_while_a_node_is_away() {
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value BLOB)"));
    let leader = dev.leader();
    let away = dev.ids().into_iter().find(|id| *id != leader).unwrap();
    dev.kill(away);
    // The sort has to handle a gigabyte.
    let sort = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000) \
                INSERT INTO kept SELECT length(v) FROM (SELECT zeroblob(1000000) || x AS v FROM c ORDER BY v)";
    let said = failed(&dev.sql(&["--timeout", "120"], sort));
    assert!(said.contains("the cluster does not run it"), "{said}");
    succeeded(&dev.sql(&[], INSERT));
    succeeded(&dev.restart(away));
    for id in dev.ids() {
        wait_until("all rows on every node", || dev.value(Some(id), COUNT) == "1");
    }
    dev.verified();
}

/// Overwrites the header of the only database file below a directory, or the rows of `kept` and nothing that a start
/// reads. There is no `-wal` that would hide the damage.
fn overwrite(db: &Path, is_header: bool) {
    let generation = std::fs::read_dir(db).unwrap().map(|item| item.unwrap().path()).find(|path| path.is_dir());
    let path = generation.unwrap().join("quorate.db");
    let mut bytes = std::fs::read(&path).unwrap();
    // An overflow page holds the number of the next one, and the row's zeros.
    let is_of_row = |page: &[u8]| page[..4] != [0; 4] && page[4..].iter().all(|byte| *byte == 0);
    let damaged = |(number, page): &(usize, &mut [u8])| if is_header { *number == 0 } else { is_of_row(page) };
    let pages = bytes.chunks_mut(4096).enumerate().filter(damaged);
    assert!(pages.map(|(_, page)| page.fill(0xa5)).count() > 0);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
}

#[test]
fn random_bytes_on_every_port_disturb_nobody() {
    /// How many connections are made to each node.
    const CONNECTIONS: usize = 60;
    /// How long a node may take to hang up.
    const PATIENCE: Duration = Duration::from_secs(30);
    let rng = Rng::from_seed(7);
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER)"));
    let pids: Vec<i32> = dev.ids().into_iter().map(|id| dev.pid(id)).collect();
    let mut open = Vec::new();
    for id in dev.ids() {
        for _ in 0..CONNECTIONS {
            let mut noise = vec![0; usize::try_from(1 + rng.below(20_000)).unwrap()];
            rng.fill(&mut noise);
            let mut stream = TcpStream::connect(dev.addr(id)).unwrap();
            // The node may hang up before it has read all of it.
            let _ = stream.write_all(&noise);
            if rng.chance(0.5) {
                let _ = stream.shutdown(Shutdown::Write);
            }
            open.push(stream);
        }
    }
    succeeded(&dev.sql(&[], "INSERT INTO kept VALUES (1)"));
    for mut stream in open {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    for (id, pid) in dev.ids().into_iter().zip(pids) {
        assert!(is_alive(pid));
        assert_eq!(dev.value(Some(id), "SELECT sum(value) FROM kept"), "1");
        assert!(!dev.node_said(id).contains("panicked"), "{}", dev.node_said(id));
    }
}

#[test]
fn a_node_of_another_cluster_is_kept_out() {
    let other = Dev::start(3);
    succeeded(&other.sql(&[], "CREATE TABLE theirs (value INTEGER)"));
    let (_, other) = other.end(Signal::INT);
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER)"));
    let leader = dev.leader();
    let id = dev.ids().into_iter().find(|id| *id != leader).unwrap();
    dev.kill(id);
    wait_until("its end", || !is_alive(dev.pid(id)));

    // Under the name, the address and with the secret of the killed node, but with the other cluster's data.
    let home = dev.dir.path().join(format!("node-{id}"));
    let aside = dev.dir.path().join("aside");
    std::fs::rename(&home, &aside).unwrap();
    std::fs::rename(other.path().join(format!("node-{id}")), &home).unwrap();
    succeeded(&dev.restart(id));
    succeeded(&dev.sql(&[], "INSERT INTO kept VALUES (1)"));
    let words = "the other end belongs to cluster";
    wait_until("it to report the other cluster", || dev.node_said(id).contains(words));

    dev.kill(id);
    wait_until("its end", || !is_alive(dev.pid(id)));
    std::fs::remove_dir_all(&home).unwrap();
    std::fs::rename(&aside, &home).unwrap();
    succeeded(&dev.restart(id));
    wait_until("its rows", || dev.value(Some(id), "SELECT sum(value) FROM kept") == "1");
    dev.leader();
}
