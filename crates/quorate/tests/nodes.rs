//! Nodes that run alone: their start and end, and which clients they accept.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::future::join;
use quorate::admin::AdminError;
use quorate::{Client, ClientConfig, Config, ConnectError, Error, Node, SecretSource, StartError};
use quorate_model::limits::FORMAT_LEVEL;
use support::{PATIENCE, Single, free_addr, run, secret, start_again, until};
use tempfile::TempDir;

/// An executor without timers, sockets and threads.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

#[test]
fn any_executor_works() {
    let dir = TempDir::new().unwrap();
    let secret = SecretSource::File(dir.path().join("secret"));
    block_on(async {
        let node = Node::start(Config::single(dir.path())).await.unwrap();
        node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        let remote = Client::connect(ClientConfig::new([node.local_addr()], secret)).await.unwrap();
        remote.sql().execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
        assert_eq!(node.sql().query_one::<i64>("SELECT x FROM t", ()).await.unwrap(), 1);
        let slow =
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 300000) SELECT count(*) FROM n";
        assert_eq!(node.sql().query_one::<i64>(slow, ()).await.unwrap(), 300_000);
        let mut listener = node.events().listen(["c"]);
        listener.begin().await.unwrap();
        for payload in ["first", "second"] {
            let (heard, _) = join(listener.next(), node.events().notify("c", payload).into_future()).await;
            assert_eq!(heard.unwrap().payload, payload);
        }
        let mut watch = node.keys().watch("k");
        assert_eq!(watch.next().await.unwrap().info, None);
        let (seen, _) = join(watch.next(), node.keys().set("k", "v").into_future()).await;
        assert!(seen.unwrap().info.is_some());
        node.stop().await;
    });
}

#[test]
fn writes_survive_a_stop_and_a_drop() {
    run(async {
        let dir = TempDir::new().unwrap();
        let mut last = None;
        for life in 0..6_i64 {
            let node = start_again(&Single::config(&dir)).await;
            let sql = node.sql();
            sql.execute("CREATE TABLE IF NOT EXISTS t (x)", ()).await.unwrap();
            let written = sql.execute("INSERT INTO t VALUES (?)", (life,)).await.unwrap();
            assert!(Some(written.position) > last);
            last = Some(written.position);
            let found: Vec<i64> = sql.query_as("SELECT x FROM t ORDER BY rowid", ()).await.unwrap();
            assert_eq!(found, (0..=life).collect::<Vec<_>>());
            if life % 2 == 0 { drop(node) } else { node.stop().await }
        }
    });
}

#[test]
fn handles_of_an_ended_node_fail() {
    run(async {
        let single = Single::start().await;
        let sql = single.node.sql();
        sql.execute("CREATE TABLE t (x)", ()).await.unwrap();
        drop(single.node);
        for _ in 0..3 {
            let (written, read) = (sql.execute("INSERT INTO t VALUES (1)", ()).await, sql.query("SELECT 1", ()).await);
            assert!(matches!(written, Err(Error::Closed | Error::Unknown(_))), "{written:?}");
            assert_eq!(read, Err(Error::Closed));
        }
    });
}

#[test]
fn a_directory_has_one_node_at_a_time() {
    run(async {
        let single = Single::start().await;
        let second = Node::start(Single::config(&single.dir)).await;
        assert!(matches!(second, Err(StartError::InUse(_))), "{second:?}");
        single.node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
    });
}

#[test]
fn a_wrong_secret_is_refused() {
    run(async {
        let single = Single::start().await;
        let wrong = SecretSource::Inline("another secret for tests".to_owned());
        let refused = Client::connect(ClientConfig::new([single.node.local_addr()], wrong)).await;
        assert!(matches!(refused, Err(ConnectError::Cluster(Error::Forbidden(_)))), "{refused:?}");
        let own = Client::connect(ClientConfig::new([single.node.local_addr()], SecretSource::Kept)).await;
        assert!(matches!(own, Err(ConnectError::Config(_))), "{own:?}");
    });
}

#[test]
fn a_client_stays_with_its_cluster() {
    run(async {
        let (ours, other) = (Single::start().await, Single::start().await);
        for single in [&ours, &other] {
            single.node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        }
        let addrs = [ours.node.local_addr(), other.node.local_addr()];
        let remote = Client::connect(ClientConfig::new(addrs, secret())).await.unwrap();
        remote.sql().execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
        drop(ours.node);
        let written =
            remote.sql().with_deadline(Duration::from_millis(300)).execute("INSERT INTO t VALUES (2)", ()).await;
        // The connection may have accepted the call just before it broke.
        assert!(matches!(written, Err(Error::Unavailable(_) | Error::Unknown(_))), "{written:?}");
        assert_eq!(other.node.sql().query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(0));
    });
}

#[test]
fn a_read_only_client_can_not_write() {
    run(async {
        let single = Single::start().await;
        single.node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        let config = ClientConfig::new([single.node.local_addr()], secret()).with_read_only(true);
        let remote = Client::connect(config).await.unwrap();
        assert_eq!(remote.sql().query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(0));
        let written = remote.sql().execute("INSERT INTO t VALUES (1)", ()).await;
        assert!(matches!(written, Err(Error::Forbidden(_))), "{written:?}");
        let removed = remote.admin().remove("x", false).await;
        assert!(matches!(removed, Err(AdminError::Forbidden(_))), "{removed:?}");
    });
}

#[test]
fn an_unreachable_node_is_reported_in_time() {
    run(async {
        let config = ClientConfig::new([free_addr()], secret()).with_deadline(Duration::from_millis(200));
        let error = Client::connect(config).await.unwrap_err();
        assert!(matches!(error, ConnectError::Cluster(Error::Unavailable(_))), "{error:?}");
        assert!(error.is_retryable());
    });
}

#[test]
fn a_client_outlives_the_restart_of_its_node() {
    run(async {
        let (addr, dir) = (free_addr(), TempDir::new().unwrap());
        let config = Single::config(&dir).with_listen(addr.clone());
        let node = Node::start(config.clone()).await.unwrap();
        let remote = Client::connect(ClientConfig::new([addr], secret())).await.unwrap();
        remote.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        drop(node);
        let waiting = tokio::spawn({
            let remote = remote.clone();
            async move { remote.sql().execute("INSERT INTO t VALUES (1)", ()).await }
        });
        let node = start_again(&config).await;
        waiting.await.unwrap().unwrap();
        assert_eq!(remote.sql().query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(1));
        // That entry comes by itself, and would count until it is applied.
        until("the format level is raised", || node.status().format_level == FORMAT_LEVEL).await;
        let status = remote.status().await.unwrap();
        assert_eq!((status.members.len(), status.leader().map(|leader| leader.name.as_str())), (1, Some("node")));
        assert_eq!(status.lag(), Some(0));
    });
}

/// The core changes what a status is made of while it is being made.
#[test]
fn any_thread_may_ask_for_the_status_while_the_node_writes() {
    const ASKED: usize = 20_000;
    let (asked, all_asked) = std::sync::mpsc::channel();
    run(async {
        let single = Single::start().await;
        single.node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        let node = Arc::new(single.node);
        let asking = Arc::clone(&node);
        std::thread::spawn(move || {
            (0..ASKED).for_each(|_| assert_eq!(asking.status().members.len(), 1));
            asked.send(()).unwrap();
        });
        let deadline = Instant::now() + PATIENCE;
        while all_asked.try_recv().is_err() {
            assert!(Instant::now() < deadline, "a status is never answered");
            node.sql().execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
        }
    });
}
