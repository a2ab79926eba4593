//! Users on running nodes: a change holds on every node that has applied it, the rules keep an administrator, and wrong
//! logins are slowed down.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::time::{Duration, Instant};

use quorate::admin::{AdminError, Login};
use quorate::users::{Credentials, Denied, FIRST_ADMIN, NewToken, UserRole};
use quorate::{Admin, Client, ClientConfig, Config, ConnectError, Error, FailureKind, Level, Node, SecretSource};
use quorate_env::Env;
use support::{Cluster, PATIENCE, Single, run, secret};

const FROM: &str = "10.0.0.1:5000";

/// Returns the kind of the failure that a change of users was refused with.
fn kind<T: std::fmt::Debug>(changed: Result<T, AdminError>) -> FailureKind {
    let error = changed.unwrap_err();
    error.failure().map_or_else(|| panic!("{error:?}"), |failure| failure.kind)
}

async fn token_of(admin: &Admin, name: &str, role: UserRole) -> NewToken {
    admin.add_user(name, role, Login::Token).await.unwrap().unwrap()
}

/// Returns the role with which a node lets someone in.
async fn role(node: &Node, credentials: &Credentials) -> Result<UserRole, Denied> {
    node.users().check(Some(credentials), FROM).await.map(|identity| identity.role())
}

/// Returns the name of someone who shows nothing to a node.
async fn anyone(node: &Node) -> Result<Option<String>, Denied> {
    node.users().check(None, FROM).await.map(|identity| identity.name().map(str::to_owned))
}

/// Waits until a node answers someone who shows nothing like this.
async fn until_anyone_is(expected: Result<Option<String>, Denied>, node: &Node) {
    let deadline = Instant::now() + PATIENCE;
    while anyone(node).await != expected {
        assert!(Instant::now() < deadline, "not in time: {expected:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a node has applied what the cluster has committed.
async fn catch_up(node: &Node) {
    node.sql().at(Level::Linearizable).query("SELECT 1", ()).await.unwrap();
}

#[test]
fn a_change_holds_on_every_node_that_has_applied_it() {
    run(async {
        let mut cluster = Cluster::start().await;
        let client = cluster.client().await;
        let admin = client.admin();
        for node in cluster.nodes() {
            until_anyone_is(Ok(None), node).await;
        }
        let root = Credentials::token(token_of(&admin, "root", UserRole::Admin).await.text());
        admin.add_user("ann", UserRole::Write, Login::Password("correct horse".to_owned())).await.unwrap();
        let ann = Credentials::password("ann", "correct horse");
        for node in cluster.nodes() {
            catch_up(node).await;
            assert_eq!(anyone(node).await, Err(Denied::Missing));
            assert_eq!(role(node, &root).await, Ok(UserRole::Admin));
            assert_eq!(role(node, &ann).await, Ok(UserRole::Write));
            assert_eq!(role(node, &Credentials::password("ann", "correct hors")).await, Err(Denied::Wrong));
            assert_eq!(role(node, &Credentials::password("eve", "correct horse")).await, Err(Denied::Wrong));
            assert_eq!(role(node, &Credentials::token("quorate_0")).await, Err(Denied::Wrong));
        }
        let a = cluster.node("a");
        let identity = a.users().check(Some(&ann), FROM).await.unwrap();
        assert!(matches!(identity.needs(UserRole::Admin), Err(Denied::Forbidden { .. })));
        cluster.node("b").admin().set_role("ann", UserRole::Admin).await.unwrap();
        catch_up(a).await;
        let identity = a.users().renew(&identity).unwrap();
        assert_eq!(identity.role(), UserRole::Admin);
        admin.set_password("ann", Some("another horse")).await.unwrap();
        catch_up(a).await;
        assert!(matches!(a.users().renew(&identity), Err(Denied::Wrong)));
        // The old password was right on this node a moment ago.
        assert_eq!(role(a, &ann).await, Err(Denied::Wrong));
        assert_eq!(role(a, &Credentials::password("ann", "another horse")).await, Ok(UserRole::Admin));
        let listed = admin.users().await.unwrap();
        assert_eq!(listed.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), ["ann", "root"]);
        admin.remove_token("root", listed[1].tokens[0].id).await.unwrap();
        for node in cluster.nodes() {
            catch_up(node).await;
            assert_eq!(role(node, &root).await, Err(Denied::Wrong));
        }
        client.close().await;
        cluster.stop_all().await;
    });
}

#[test]
fn the_last_administrator_stays_and_users_outlive_a_restart() {
    run(async {
        let single = Single::start().await;
        let admin = single.node.admin();
        assert_eq!(kind(admin.add_user("app", UserRole::Write, Login::Token).await), FailureKind::NoAdmin);
        let root = token_of(&admin, "root", UserRole::Admin).await;
        assert_eq!(kind(admin.remove_user("root").await), FailureKind::NoAdmin);
        assert_eq!(kind(admin.remove_token("root", root.hash().id()).await), FailureKind::NoAdmin);
        assert_eq!(kind(admin.set_role("root", UserRole::Write).await), FailureKind::NoAdmin);
        assert_eq!(kind(admin.add_user("root", UserRole::Read, Login::Token).await), FailureKind::UserExists);
        assert_eq!(kind(admin.remove_user("eve").await), FailureKind::UserUnknown);
        let short = admin.set_password("root", Some("short")).await.unwrap_err();
        assert!(short.to_string().contains("from 8 to 1024 bytes, not 5"), "{short}");
        let name = admin.add_user("a b", UserRole::Read, Login::Token).await.unwrap_err();
        assert!(name.to_string().contains("begins with a letter or a digit"), "{name}");
        // Nobody reads the hashes with SQL.
        for query in
            ["SELECT * FROM _quorate_users", "SELECT count(*) FROM _Quorate_Users", "SELECT * FROM sqlite_dbpage"]
        {
            let hashes = single.node.sql().query(query, ()).await.unwrap_err().to_string();
            assert!(hashes.contains("hashes of passwords") || hashes.contains("no such table"), "{query}: {hashes}");
        }

        let Single { node, dir } = single;
        node.stop().await;
        let node = Node::start(Single::config(&dir)).await.unwrap();
        until_anyone_is(Err(Denied::Missing), &node).await;
        assert_eq!(role(&node, &Credentials::token(root.text())).await, Ok(UserRole::Admin));
        node.stop().await;
    });
}

/// A client that may write may not change users, nor take a copy of the database, which holds their hashes.
#[test]
fn only_administrators_change_users() {
    run(async {
        let single = Single::start().await;
        let config = ClientConfig::new([single.node.local_addr()], secret()).with_read_only(true);
        let reader = Client::connect(config).await.unwrap();
        let admin = reader.admin();
        for refused in [admin.remove_user("root").await, admin.users().await.map(drop)] {
            let error = refused.unwrap_err();
            assert!(matches!(error, AdminError::Forbidden(_)), "{error:?}");
        }
        reader.close().await;
        single.node.stop().await;
    });
}

/// Returns a client that logs in at a node of this machine.
async fn log_in(node: &Node, credentials: Credentials) -> Result<Client, ConnectError> {
    Client::connect(ClientConfig::new([node.local_addr()], SecretSource::Kept).with_login(credentials)).await
}

/// Connections follow the changes of their users, whatever they were when the connection was made.
#[test]
fn a_client_that_has_logged_in_may_do_what_its_user_may_do_now() {
    run(async {
        let mut cluster = Cluster::start().await;
        let (admin, a) = (cluster.node("a").admin(), cluster.node("a"));
        until_anyone_is(Ok(None), a).await;
        let refused = log_in(a, Credentials::token("quorate_0")).await.unwrap_err();
        assert!(refused.to_string().contains("the cluster has no users"), "{refused}");
        let root = Credentials::token(token_of(&admin, "root", UserRole::Admin).await.text());
        admin.add_user("ann", UserRole::Write, Login::Password("correct horse".to_owned())).await.unwrap();
        for node in cluster.nodes() {
            catch_up(node).await;
        }
        let refused = log_in(a, Credentials::password("ann", "wrong horse")).await.unwrap_err();
        assert!(!refused.is_retryable() && refused.to_string().contains("wrong name, password or token"), "{refused}");

        let ann = log_in(a, Credentials::password("ann", "correct horse")).await.unwrap();
        ann.sql().execute("CREATE TABLE t (a)", ()).await.unwrap();
        let error = ann.admin().remove_user("root").await.unwrap_err();
        assert!(error.to_string().contains("only an administrator"), "{error:?}");
        let error = ann.admin().users().await.unwrap_err();
        assert!(matches!(error, AdminError::Forbidden(_)), "{error:?}");
        let root = log_in(a, root).await.unwrap();
        root.admin().set_role("ann", UserRole::Read).await.unwrap();
        for node in cluster.nodes() {
            catch_up(node).await;
        }
        let error = ann.sql().execute("INSERT INTO t VALUES (1)", ()).await.unwrap_err();
        assert!(matches!(error, Error::Failed(_) | Error::Forbidden(_)), "{error:?}");
        let error = ann.sql().begin().await.unwrap_err();
        assert!(matches!(error, Error::Forbidden(_)), "{error:?}");
        assert_eq!(ann.sql().query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(0));

        // A proxy asks about its own clients.
        let seen = root.users().check(Some(&Credentials::password("ann", "correct horse")), FROM).await.unwrap();
        assert_eq!((seen.name(), seen.role()), (Some("ann"), UserRole::Read));
        assert_eq!(root.users().check(None, FROM).await.unwrap_err(), Denied::Missing);
        let read_only = root.sql().with_role(UserRole::Read);
        assert!(matches!(read_only.execute("INSERT INTO t VALUES (1)", ()).await, Err(Error::Forbidden(_))));

        root.admin().remove_user("ann").await.unwrap();
        for node in cluster.nodes() {
            catch_up(node).await;
        }
        let error = ann.sql().query("SELECT 1", ()).await.unwrap_err();
        assert!(matches!(error, Error::Forbidden(_)), "{error:?}");
        ann.close().await;
        root.close().await;
        cluster.stop_all().await;
    });
}

#[test]
fn a_cluster_with_the_token_of_an_administrator_is_closed_from_the_beginning() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let token = NewToken::draw(&Env::real());
        let config = || Config::single(dir.path()).with_admin_token(token.hash());
        let node = Node::start(config()).await.unwrap();
        let mut anyone_is = anyone(&node).await;
        while anyone_is != Err(Denied::Missing) {
            assert_eq!(anyone_is, Err(Denied::NotYet), "the doors were open");
            anyone_is = anyone(&node).await;
        }
        let identity = node.users().check(Some(&Credentials::token(token.text())), FROM).await.unwrap();
        assert_eq!((identity.name(), identity.role()), (Some(FIRST_ADMIN), UserRole::Admin));
        // It does not come back once it was replaced.
        let admin = node.admin();
        token_of(&admin, "ann", UserRole::Admin).await;
        admin.remove_user(FIRST_ADMIN).await.unwrap();
        node.stop().await;
        let node = Node::start(config()).await.unwrap();
        until_anyone_is(Err(Denied::Missing), &node).await;
        let names: Vec<String> = node.admin().users().await.unwrap().into_iter().map(|user| user.name).collect();
        assert_eq!(names, ["ann"]);
        node.stop().await;
    });
}

#[test]
fn failed_logins_are_counted_and_a_right_password_is_hashed_once() {
    run(async {
        let single = Single::start().await;
        let node = &single.node;
        until_anyone_is(Ok(None), node).await;
        token_of(&node.admin(), "root", UserRole::Admin).await;
        node.admin().add_user("ann", UserRole::Read, Login::Password("correct horse".to_owned())).await.unwrap();
        let (right, wrong) =
            (Credentials::password("ann", "correct horse"), Credentials::password("ann", "wrong horse"));
        let counts = || {
            let logins = node.metrics().node.logins;
            (logins.succeeded.get(), logins.failed.get(), logins.delayed.get())
        };
        for _ in 0..3 {
            assert_eq!(role(node, &wrong).await, Err(Denied::Wrong));
        }
        assert_eq!(counts(), (0, 3, 0));
        // A hundred logins: the hash would take longer than that one by one.
        for _ in 0..100 {
            assert_eq!(role(node, &right).await, Ok(UserRole::Read));
        }
        assert_eq!(counts(), (100, 3, 0));
        // Each further guess waits longer.
        for _ in 0..3 {
            let guess = node.users().check(Some(&Credentials::token("guess")), "[2001:db8::1]:1").await;
            assert!(matches!(guess, Err(Denied::Wrong)), "{guess:?}");
        }
        single.node.stop().await;
    });
}
