//! Format levels: nothing newer is proposed until every member understands it, and then an older program can't come
//! back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate::sim::{SimHooks, appoint, tick};
use quorate::{Error, Failure, FailureKind, Node, StartError};
use quorate_env::{Env, Instant, sleep};
use quorate_model::Appointment;
use quorate_model::limits::{BASE_LEVEL, FORMAT_LEVEL};
use support::{Cluster, run, until};

/// How long a write waits here for a level that does not come.
const SHORT: Duration = Duration::from_millis(200);

/// Starts three nodes; the program of `c` knows only the first format level while the flag is set.
async fn cluster(is_old: &Arc<AtomicBool>) -> Cluster {
    let is_old = Arc::clone(is_old);
    Cluster::start_in(Box::new(move |name, _| {
        let level = (name == "c" && is_old.load(Ordering::Relaxed)).then_some(BASE_LEVEL);
        (Env::real(), SimHooks { level, ..SimHooks::default() })
    }))
    .await
}

/// Waits until a node has announced its level to all others.
async fn announced(cluster: &Cluster, name: &'static str, level: u32) {
    until("the level is announced", || {
        cluster
            .nodes()
            .all(|node| node.status().members.iter().any(|member| member.name == name && member.format_level == level))
    })
    .await;
}

/// Returns the failure of a tick.
async fn refusal(node: &Node) -> Failure {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let error = tick(node).await.unwrap_err();
        let Error::Failed(failure) = error else { panic!("{error}") };
        // A node that is busy may be silent for a moment.
        if !failure.message.contains("silent") {
            return failure;
        }
        assert!(Instant::now() < deadline, "{failure}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Proposes a tick until there is a leader that takes it.
async fn ticked(node: &Node) {
    loop {
        match tick(node).await {
            Err(error) if error.is_retryable() => sleep(Duration::from_millis(20)).await,
            done => return done.unwrap(),
        }
    }
}

fn used(node: &Node) -> u32 {
    node.status().format_level
}

#[test]
fn a_level_rises_once_every_member_understands_it() {
    run(async {
        let is_old = Arc::new(AtomicBool::new(true));
        let mut cluster = cluster(&is_old).await;
        announced(&cluster, "c", BASE_LEVEL).await;
        for name in ["a", "b", "c"] {
            let failure = refusal(cluster.node(name)).await;
            assert_eq!(failure.kind, FailureKind::Unsupported);
            let expected =
                "this needs format level 2, and the cluster uses 1: upgrade 'c' to a version that understands it";
            assert_eq!(failure.message, expected);
            let hasty = cluster.sql(name).with_key("k").with_deadline(SHORT);
            let refused = hasty.execute("CREATE TABLE t (a)", ()).await.unwrap_err();
            let Error::Failed(failure) = refused else { panic!("{refused}") };
            assert_eq!(failure.kind, FailureKind::Unsupported);
            assert!(failure.message.contains("needs format level 3, and the cluster uses 1"), "{failure}");
        }
        for name in ["a", "b", "c"] {
            let refused = appoint(cluster.node(name), Appointment { node: None, expected: 0 }).await.unwrap_err();
            let Error::Failed(failure) = refused else { panic!("{refused}") };
            assert!(failure.message.contains("needs format level 4, and the cluster uses 1"), "{failure}");
        }
        let keys = cluster.node("a").keys().with_deadline(SHORT);
        let (set, read) = (keys.set("k", "v").await.unwrap_err(), keys.get("k").await.unwrap_err());
        assert!(matches!(set, Error::Failed(_)) && matches!(read, Error::Unavailable(_)), "{set}, {read}");
        let checked = keys.pipeline_if([keys.expect("k", None)], ["CREATE TABLE t (a)"]).await.unwrap_err();
        let members = keys.sorted_set("z");
        let (stay, times) = (members.persist(["a"]).await.unwrap_err(), members.describe(["a"]).await.unwrap_err());
        for (refused, level) in [(set, 5), (read, 5), (checked, 6), (stay, 7), (times, 7)] {
            let expected = format!("needs format level {level}, and the cluster uses 1");
            assert!(refused.to_string().contains(&expected), "{refused}");
        }
        // The remote node refuses it, which may take a while.
        let remote = cluster.client().await.sql().with_key("k").with_deadline(Duration::from_secs(10));
        let remote = remote.execute("CREATE TABLE t (a)", ()).await;
        assert!(
            matches!(&remote, Err(Error::Failed(failure)) if failure.kind == FailureKind::Unsupported),
            "{remote:?}"
        );
        cluster.sql("c").execute("CREATE TABLE t (a)", ()).await.unwrap();

        cluster.stop("c").await;
        is_old.store(false, Ordering::Relaxed);
        cluster.restart("c").await;
        until("the level is raised", || cluster.nodes().all(|node| used(node) == FORMAT_LEVEL)).await;
        for name in ["a", "b", "c"] {
            ticked(cluster.node(name)).await;
            cluster.node(name).keys().set("k", name).await.unwrap();
        }

        cluster.stop("c").await;
        is_old.store(true, Ordering::Relaxed);
        let hooks = SimHooks { level: Some(BASE_LEVEL), ..SimHooks::default() };
        let refused = Node::start_with(Env::real(), cluster.config("c"), hooks).await.unwrap_err();
        assert!(matches!(refused, StartError::Consensus(_)), "{refused:?}");
        let text = refused.to_string();
        let expected =
            format!("can't read the data: they are of format level {FORMAT_LEVEL}, and it knows levels up to 1");
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("install the version that the other nodes run"), "{text}");

        // Nothing was damaged.
        is_old.store(false, Ordering::Relaxed);
        cluster.restart("c").await;
        cluster.sql("c").execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
        ticked(cluster.node("c")).await;
        cluster.stop_all().await;
    });
}
