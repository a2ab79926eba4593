//! Restores: the contents of a backup become the database of a new epoch, and nothing of the old cluster gets into it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message;
use quorate::admin::Living;
use quorate::backup::{BackupOptions, FileError};
use quorate::restore::{RestoreError, RestoreOptions};
use quorate::sim::restore_in;
use quorate::types::Epoch;
use quorate::{Config, Error, FailureKind, Level, Node, Position, SecretSource, Sql, StartError, restore};
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{CommandResult, ControlCommand, ControlReply, Origin, Outcome, Proposal, SessionId, codec};
use quorate_sql::logical_hash;
use quorate_wire::Role;
use support::dying::DyingDisk;
use support::{Cluster, call, run, try_start_again, until};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Writes rows with the numbers `from..to`.
async fn write(sql: &Sql, from: i64, to: i64) -> Position {
    let rows = (from..to).map(|number| ("INSERT INTO t VALUES (?, randomblob(500))", (number,)));
    sql.batch(rows).await.unwrap().position
}

async fn make_table(sql: &Sql) {
    sql.execute("CREATE TABLE t (number, noise)", ()).await.unwrap();
}

async fn numbers(sql: &Sql) -> Vec<i64> {
    sql.query_as("SELECT number FROM t ORDER BY number", ()).await.unwrap()
}

async fn back_up(node: &Node, dir: &TempDir) -> PathBuf {
    let file = dir.path().join("backup.db");
    node.backup(&file, &BackupOptions::default()).await.unwrap();
    file
}

fn replacing() -> RestoreOptions {
    RestoreOptions { replace: true, ..RestoreOptions::default() }
}

/// Waits until all nodes vote.
async fn all_vote(cluster: &Cluster) {
    let vote = |node: &Node| node.status().members.iter().filter(|member| member.voter).count() == NAMES.len();
    until("all members vote", || cluster.nodes().all(vote)).await;
}

/// Returns the logical hashes of all nodes' databases: of the users' tables, and of the store's own.
async fn hashes(cluster: &Cluster, dir: &TempDir) -> BTreeSet<(u128, u128)> {
    let mut hashes = BTreeSet::new();
    for name in NAMES {
        let file = dir.path().join(format!("{name}-compared.db"));
        cluster.node(name).backup(&file, &BackupOptions::default()).await.unwrap();
        let conn = rusqlite::Connection::open(&file).unwrap();
        hashes.insert((logical_hash::user(&conn).unwrap(), logical_hash::reserved(&conn).unwrap()));
    }
    hashes
}

/// Sends a proposal to a node and returns its outcome.
async fn propose(addr: &str, proposal: &Proposal) -> Outcome {
    #[derive(Clone, PartialEq, Message)]
    struct Execute {
        #[prost(bytes = "bytes", tag = "1")]
        proposal: Bytes,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Executed {
        #[prost(message, required, tag = "1")]
        written: Written,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Written {
        #[prost(bytes = "bytes", tag = "2")]
        outcome: Bytes,
    }
    let execute = Execute { proposal: codec::encode_proposal(proposal).unwrap() };
    let reply = call(addr, Role::ReadWrite, 64, execute.encode_to_vec().into()).await;
    codec::decode_outcome(&Executed::decode(reply.unwrap()).unwrap().written.outcome).unwrap()
}

async fn open_session(addr: &str) -> SessionId {
    let reply = propose(addr, &Proposal::new(None, vec![ControlCommand::OpenSession.into()])).await.unwrap();
    let [CommandResult::Control(ControlReply::Session(session))] = reply.results.as_slice() else {
        panic!("{reply:?}")
    };
    *session
}

#[test]
fn a_backup_founds_a_new_cluster_that_others_join() {
    run(async {
        let dir = TempDir::new().unwrap();
        let mut cluster = Cluster::start().await;
        make_table(&cluster.sql("a")).await;
        let end = write(&cluster.sql("a"), 0, 400).await;
        let before = open_session(&cluster.addrs()[0]).await;
        let file = back_up(cluster.node("c"), &dir).await;
        let after = open_session(&cluster.addrs()[0]).await;
        cluster.stop_all().await;

        // The new directories belong to a node other than the one that founds clusters.
        let mut cluster = Cluster::prepare();
        let restored = restore(&file, &cluster.config("b"), &RestoreOptions::default()).await.unwrap();
        let (_, from) = restored.from.unwrap();
        assert!(from >= end && from.epoch == Epoch(1));
        assert!(restored.position.epoch == Epoch(2) && restored.position.index > from.index, "{restored:?}");
        cluster.start_all().await;
        all_vote(&cluster).await;

        for (name, count) in NAMES.into_iter().zip(1..) {
            let sql = cluster.sql(name);
            assert_eq!(cluster.node(name).status().cluster, restored.cluster);
            let written = write(&sql, 399 + count, 400 + count).await;
            assert!(written.epoch == Epoch(2) && written > restored.position);
            let read = sql.at(Level::AtLeast(written));
            assert_eq!(numbers(&read).await, (0..400 + count).collect::<Vec<_>>());
            let old = numbers_at(&sql, end).await.unwrap_err();
            assert!(old.to_string().contains("another history"), "{old}");
        }
        // That entry must not come between the copies.
        let is_raised = |node: &Node| node.status().format_level == FORMAT_LEVEL;
        until("the format level is raised", || cluster.nodes().all(is_raised)).await;
        assert_eq!(hashes(&cluster, &dir).await.len(), 1, "the nodes have equal databases");

        // Sessions of the old cluster are unknown, whether or not the backup contains them, and their ids are not
        // reused.
        for session in [before, after] {
            let mut retry = Proposal::new(None, vec![ControlCommand::CloseSession(session).into()]);
            retry.origin = Some(Origin { session, sequence: 1, floor: 0 });
            let refused = propose(&cluster.addrs()[0], &retry).await.unwrap_err();
            assert_eq!(refused.kind, FailureKind::SessionExpired);
        }
        assert!(open_session(&cluster.addrs()[0]).await.0 > restored.position.index);
        cluster.stop_all().await;
    });
}

async fn numbers_at(sql: &Sql, position: Position) -> Result<Vec<i64>, Error> {
    sql.at(Level::AtLeast(position)).query_as("SELECT number FROM t", ()).await
}

#[test]
fn a_restore_moves_the_old_cluster_aside() {
    run(async {
        let dir = TempDir::new().unwrap();
        let mut cluster = Cluster::start().await;
        make_table(&cluster.sql("a")).await;
        write(&cluster.sql("a"), 0, 100).await;
        let file = back_up(cluster.node("a"), &dir).await;
        write(&cluster.sql("b"), 100, 150).await;
        let handle = cluster.client().await.sql();
        write(&handle, 150, 160).await;
        cluster.stop_all().await;

        let others = ["b", "c"].map(|name| cluster.config(name).data_dir).into();
        let options = RestoreOptions { others, ..replacing() };
        let restored = restore(&file, &cluster.config("a"), &options).await.unwrap();
        assert_eq!(restored.aside.len(), 3);
        assert!(restored.aside.iter().all(|aside| aside.join("log").is_dir() && aside.join("CURRENT").is_file()));
        cluster.start_all().await;
        all_vote(&cluster).await;
        assert_eq!(numbers(&cluster.sql("c").at(Level::Linearizable)).await, (0..100).collect::<Vec<_>>());

        // An old handle with an open session can't continue, and its error says why.
        let refused = handle.with_deadline(Duration::from_secs(20)).execute("DELETE FROM t", ()).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Forbidden(why) if why.to_string().contains("restored from a backup")),
            "{refused:?}"
        );
        write(&cluster.client().await.sql(), 100, 101).await;

        // Restores from the same file again: the epochs differ each time.
        cluster.stop_all().await;
        let again = restore(&file, &cluster.config("a"), &options).await.unwrap();
        assert_eq!((restored.position.epoch, again.position.epoch), (Epoch(2), Epoch(3)));
        assert_ne!(restored.cluster, again.cluster);
        cluster.start_all().await;
        all_vote(&cluster).await;
        assert_eq!(numbers(&cluster.sql("b").at(Level::Linearizable)).await.len(), 100);
        cluster.stop_all().await;
    });
}

#[test]
fn an_old_node_joins_only_with_an_empty_directory() {
    run(async {
        let dir = TempDir::new().unwrap();
        let mut cluster = Cluster::start().await;
        make_table(&cluster.sql("a")).await;
        let file = back_up(cluster.node("a"), &dir).await;
        let end = write(&cluster.sql("a"), 0, 10).await;
        assert_eq!(numbers_at(&cluster.sql("c"), end).await.unwrap().len(), 10);
        cluster.stop_all().await;
        let restored = restore(&file, &cluster.config("a"), &replacing()).await.unwrap();
        cluster.restart("a").await;
        cluster.restart("c").await;
        write(&cluster.sql("a"), 10, 12).await;
        until("both have looked around", || {
            cluster.node("c").status().members.iter().any(|member| !member.silent_for.is_zero())
        })
        .await;
        let here = cluster.node("a").status();
        assert_eq!((here.cluster, here.members.len()), (restored.cluster, 1));
        assert_ne!(cluster.node("c").status().cluster, restored.cluster);
        assert_eq!(numbers(&cluster.sql("c")).await, (0..10).collect::<Vec<_>>());

        cluster.stop("c").await;
        cluster.wipe("c").await;
        cluster.restart("c").await;
        let joined = |node: &Node| node.status().members.iter().filter(|member| member.voter).count() == 2;
        until("it has joined", || joined(cluster.node("c"))).await;
        assert_eq!(numbers(&cluster.sql("c").at(Level::Linearizable)).await, [10, 11]);
        cluster.stop_all().await;
    });
}

/// Returns all files below a directory, with their bytes.
fn content(dir: &Path) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let mut found = BTreeSet::new();
    for item in std::fs::read_dir(dir).unwrap().map(|item| item.unwrap().path()) {
        match item.is_dir() {
            true => found.append(&mut content(&item)),
            false => drop(found.insert((item.clone(), std::fs::read(&item).unwrap()))),
        }
    }
    found
}

#[test]
fn destructive_restores_are_refused() {
    run(async {
        let dir = TempDir::new().unwrap();
        let mut cluster = Cluster::start().await;
        make_table(&cluster.sql("a")).await;
        let file = back_up(cluster.node("a"), &dir).await;

        let refused = async |file: &Path, config: &Config, options: &RestoreOptions| {
            restore(file, config, options).await.expect_err("it was restored")
        };
        // A node is running in the directory.
        let error = refused(&file, &cluster.config("a"), &replacing()).await;
        assert!(matches!(error, RestoreError::Start(StartError::InUse(_))), "{error}");
        // Members answer: one is enough, and this node's own address counts.
        let elsewhere = cluster.config("a").with_data_dir(dir.path().join("elsewhere"));
        let error = refused(&file, &elsewhere, &replacing()).await;
        assert!(matches!(&error, RestoreError::Living(Living::Member { .. })), "{error}");
        cluster.stop("a").await;
        cluster.stop("b").await;
        let error = refused(&file, &cluster.config("a"), &replacing()).await;
        assert!(matches!(&error, RestoreError::Living(Living::Member { name, .. }) if name == "c"), "{error}");
        assert!(error.to_string().contains("stop all of its nodes first"), "{error}");
        // Members refuse all requests.
        let secret = SecretSource::Inline("another secret of enough bytes".to_owned());
        let error = refused(&file, &cluster.config("a").with_secret(secret), &replacing()).await;
        assert!(matches!(&error, RestoreError::Living(Living::Unclear { name, .. }) if name == "c"), "{error}");
        cluster.stop("c").await;

        // A directory holds a node, possibly one of another cluster.
        let config = cluster.config("a");
        let before = content(&config.data_dir);
        let error = refused(&file, &config, &RestoreOptions::default()).await;
        assert!(matches!(&error, RestoreError::Holds(held) if *held == config.data_dir), "{error}");
        let others = RestoreOptions { others: vec![config.data_dir.clone()], ..RestoreOptions::default() };
        let error = refused(&file, &elsewhere, &others).await;
        assert!(matches!(&error, RestoreError::Holds(held) if *held == config.data_dir), "{error}");
        // The files are not valid backups.
        let text = dir.path().join("text");
        std::fs::write(&text, "no database").unwrap();
        let error = refused(&text, &config, &replacing()).await;
        assert!(matches!(error, RestoreError::File(FileError::Foreign { .. })), "{error}");
        let damaged = dir.path().join("damaged");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.truncate(bytes.len() / 2);
        std::fs::write(&damaged, bytes).unwrap();
        let error = refused(&damaged, &config, &replacing()).await;
        assert!(matches!(error, RestoreError::File(FileError::Damaged { .. })), "{error}");
        assert_eq!(content(&config.data_dir), before);

        cluster.start_all().await;
        assert_eq!(numbers(&cluster.sql("b").at(Level::Linearizable)).await, [0; 0]);
        cluster.stop_all().await;
    });
}

#[test]
fn a_plain_database_becomes_a_cluster() {
    run(async {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("plain.db");
        let conn = rusqlite::Connection::open(&file).unwrap();
        conn.execute_batch(
            "PRAGMA journal_mode = wal; CREATE TABLE t (number, noise); INSERT INTO t VALUES (7, x'00')",
        )
        .unwrap();
        let open = dir.path().join("data");
        let config = Config::default().with_data_dir(open).with_secret(support::secret());
        let plain = RestoreOptions { plain: true, ..RestoreOptions::default() };
        let beside = restore(&file, &config, &plain).await.unwrap_err();
        assert!(matches!(beside, RestoreError::File(FileError::Beside(_))), "{beside}");
        drop(conn);
        let not_asked = restore(&file, &config, &RestoreOptions::default()).await.unwrap_err();
        assert!(matches!(not_asked, RestoreError::File(FileError::Foreign { .. })), "{not_asked}");
        let restored = restore(&file, &config, &plain).await.unwrap();
        assert_eq!((restored.from, restored.position.epoch, restored.position.index), (None, Epoch(1), 0));
        let node = Node::start(config).await.unwrap();
        write(&node.sql(), 8, 9).await;
        assert_eq!(numbers(&node.sql()).await, [7, 8]);
        node.stop().await;
    });
}

/// How many directories are restored into at the same time, because each restore mostly waits for the disk.
const LANES: usize = 4;

/// Interrupts restores into one directory, each after more changes of the disk than the one before, until one finishes
/// first. Returns how many did not finish.
async fn interrupted(first: i64) -> usize {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let config = Config::single(data.path()).with_secret(support::secret());
    let node = Node::start(config.clone()).await.unwrap();
    make_table(&node.sql()).await;
    write(&node.sql(), 0, 20).await;
    let file = back_up(&node, &dir).await;
    write(&node.sql(), 20, 30).await;
    node.stop().await;

    let (mut epoch, mut unfinished) = (Epoch(1), 0);
    for changes in (first..).step_by(LANES) {
        let died = restore_in(DyingDisk::after(changes).env(), &file, &config, &replacing()).await;
        match try_start_again(&config).await {
            Err(StartError::Unfinished(_)) => {
                assert!(died.is_err());
                unfinished += 1;
                // This needs no option: the contents may be moved aside.
                let again = restore(&file, &config, &RestoreOptions::default()).await.unwrap();
                assert!(again.position.epoch > epoch);
                epoch = again.position.epoch;
            }
            started => {
                // The directory is unchanged, or completely restored.
                let node = started.unwrap();
                let found = node.status().applied.epoch;
                assert!(if died.is_ok() { found > epoch } else { found >= epoch });
                let count = if found > Epoch(1) { 20 } else { 30 };
                assert_eq!(numbers(&node.sql()).await, (0..count).collect::<Vec<_>>());
                epoch = found;
                node.stop().await;
            }
        }
        if died.is_ok() {
            break;
        }
    }
    unfinished
}

#[test]
fn an_interrupted_restore_can_be_repeated() {
    run(async {
        let lanes = join_all((0..).take(LANES).map(interrupted)).await;
        assert!(lanes.iter().sum::<usize>() > 10, "{lanes:?}");
    });
}
