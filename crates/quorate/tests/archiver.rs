//! The archiver of running clusters: one of the nodes that can archive, the same on every node, until it is no member
//! any more or can no longer archive.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::time::Duration;

use quorate::backup::BackupOptions;
use quorate::restore::RestoreOptions;
use quorate::sim::{SimHooks, appoint};
use quorate::types::NodeId;
use quorate::{Config, Level, Node, restore};
use quorate_env::Env;
use quorate_model::{ARCHIVER_LEVEL, Appointment, Archiver, ControlReply};
use support::{Cluster, PATIENCE, Single, remove, run, until};
use tempfile::TempDir;

fn hooks(archives: bool) -> SimHooks {
    SimHooks { archives, ..SimHooks::default() }
}

/// Starts three nodes, of which these can archive. None is replaced because it is silent for a while.
async fn cluster(able: &'static [&'static str]) -> Cluster {
    let world = move |name: &str, config: &mut Config| {
        config.timing.silence = PATIENCE * 10;
        (Env::real(), hooks(able.contains(&name)))
    };
    Cluster::start_in(Box::new(world)).await
}

/// Proposes an appointment until there is a leader that answers.
async fn appointed(node: &Node, appointment: Appointment) -> ControlReply {
    loop {
        match appoint(node, appointment).await {
            Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(20)).await,
            reply => return reply.unwrap(),
        }
    }
}

/// Waits until all nodes name the same archiver, and this holds of it.
async fn archiver(cluster: &Cluster, what: &str, holds: impl Fn(Option<Archiver>) -> bool) -> Option<Archiver> {
    let mut agreed = None;
    until(what, || {
        let known: Vec<_> = cluster.nodes().map(|node| node.status().archiver).collect();
        agreed = known.first().copied().filter(|one| holds(*one) && known.iter().all(|other| other == one));
        agreed.is_some()
    })
    .await;
    agreed.unwrap()
}

fn id(cluster: &Cluster, name: &str) -> NodeId {
    cluster.node(name).status().node
}

#[test]
fn a_node_that_can_archive_has_the_role_until_it_leaves() {
    run(async {
        let mut cluster = cluster(&["a", "c"]).await;
        let (a, c) = (id(&cluster, "a"), id(&cluster, "c"));
        let first = archiver(&cluster, "there is an archiver", |archiver| archiver.is_some()).await.unwrap();
        assert!([a, c].contains(&first.node) && first.token > 0, "{first:?}");
        let name = if first.node == a { "a" } else { "c" };
        // The role does not go elsewhere because the archiver leads, or starts again.
        cluster.node("b").admin().transfer(Some(name)).await.unwrap();
        cluster.stop(name).await;
        cluster.restart(name).await;
        assert_eq!(archiver(&cluster, "all know it", |archiver| archiver.is_some()).await, Some(first));
        let wrong = Appointment { node: None, expected: first.token + 1 };
        assert_eq!(appointed(cluster.node("b"), wrong).await, ControlReply::Archiver(Some(first)));

        remove(&cluster.node("b").admin(), name).await;
        cluster.kill(name);
        let is_next = |archiver: Option<Archiver>| archiver.is_some_and(|archiver| archiver.node != first.node);
        let next = archiver(&cluster, "there is another one", is_next).await.unwrap();
        assert!([a, c].contains(&next.node) && next.token > first.token, "{next:?}");
        cluster.stop_all().await;
    });
}

#[test]
fn a_node_that_cannot_archive_does_not_keep_the_role() {
    run(async {
        let mut cluster = cluster(&[]).await;
        until("the level is raised", || cluster.nodes().all(|node| node.status().format_level >= ARCHIVER_LEVEL)).await;
        assert_eq!(archiver(&cluster, "there is none", |archiver| archiver.is_none()).await, None);
        let appointment = Appointment { node: Some(id(&cluster, "a")), expected: 0 };
        assert_eq!(appointed(cluster.node("a"), appointment).await, ControlReply::Done);
        // Every node has applied that. The leader takes the role away again.
        let position = cluster.sql("b").execute("CREATE TABLE t (a)", ()).await.unwrap().position;
        for name in ["a", "b", "c"] {
            cluster.sql(name).at(Level::AtLeast(position)).query("SELECT 1", ()).await.unwrap();
        }
        archiver(&cluster, "there is none again", |archiver| archiver.is_none()).await;
        cluster.stop_all().await;
    });
}

#[test]
fn a_restored_node_appoints_itself_anew() {
    run(async {
        let dir = TempDir::new().unwrap();
        let config = Single::config(&dir);
        let start = async |archives| Node::start_with(Env::real(), config.clone(), hooks(archives)).await.unwrap();
        let node = start(true).await;
        until("it appoints itself", || node.status().archiver.is_some()).await;
        assert_eq!(node.status().archiver.unwrap().node, node.status().node);
        let file = dir.path().join("backup.db");
        node.backup(&file, &BackupOptions::default()).await.unwrap();
        node.stop().await;

        let options = RestoreOptions { replace: true, ..RestoreOptions::default() };
        let restored = restore(&file, &config, &options).await.unwrap();
        let node = start(false).await;
        assert_eq!(node.status().archiver, None);
        node.stop().await;
        let node = start(true).await;
        until("it appoints itself again", || node.status().archiver.is_some()).await;
        assert!(node.status().archiver.unwrap().token > restored.position.index);
        node.stop().await;
    });
}
