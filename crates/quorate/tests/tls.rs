//! Real nodes and clients over TLS.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use quorate::sim::SimHooks;
use quorate::{
    Ca, Client, ClientConfig, ClientTls, Config, ConnectError, Error, Level, Node, SecretSource, StartError, TlsConfig,
};
use quorate_env::Env;
use quorate_tls::authority::{Authority, VALID_FOR};
use support::{Cluster, PATIENCE, events, free_addr, run, secret, until};
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

/// A CA, and a directory for what it issues.
struct Issuer {
    dir: TempDir,
    authority: Authority,
}

impl Issuer {
    fn new(name: &str) -> Self {
        let (dir, authority) = (TempDir::new().unwrap(), Authority::new(&Env::real(), name).unwrap());
        std::fs::write(dir.path().join("ca.crt"), authority.certificate()).unwrap();
        Self { dir, authority }
    }

    fn ca(&self) -> Ca {
        Ca::File(self.dir.path().join("ca.crt"))
    }

    /// Issues a certificate for a host that began days ago and is valid for a time.
    fn issue_for(&self, name: &str, host: &str, days: u64, time: Duration) -> TlsConfig {
        let issued = self.authority.issue_for(name, &[host.to_owned()], days, time).unwrap();
        let (certificate, key) = (self.file(name, "crt"), self.file(name, "key"));
        std::fs::write(&key, issued.key).unwrap();
        std::fs::write(&certificate, issued.certificate).unwrap();
        TlsConfig::new(certificate, key, self.ca())
    }

    fn issue(&self, name: &str) -> TlsConfig {
        self.issue_for(name, "127.0.0.1", 0, VALID_FOR)
    }

    fn file(&self, name: &str, end: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.{end}"))
    }

    fn client(&self, addrs: Vec<String>) -> ClientConfig {
        ClientConfig::new(addrs, secret()).with_tls(ClientTls::new(self.ca())).with_deadline(Duration::from_secs(20))
    }
}

/// The configurations of a cluster whose nodes have these certificates.
fn configs<const N: usize>(dir: &Path, certificates: [TlsConfig; N]) -> [Config; N] {
    let addrs = certificates.each_ref().map(|_| free_addr());
    let members: BTreeMap<String, String> =
        addrs.into_iter().enumerate().map(|(number, addr)| (format!("n{number}"), addr)).collect();
    let mut names = members.keys().cloned().collect::<Vec<_>>().into_iter();
    certificates.map(|tls| {
        let name = names.next().unwrap();
        let config = Config::single(dir.join(&name)).with_name(name).with_members(members.clone());
        config.with_secret(secret()).with_tls(tls)
    })
}

/// The error with which connecting fails at once.
async fn refused(config: ClientConfig) -> String {
    match Client::connect(config).await {
        Err(ConnectError::Cluster(Error::Forbidden(why))) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_nodes_serve_clients_over_tls() {
    run(async {
        let (issuer, dir) = (Issuer::new("ours"), TempDir::new().unwrap());
        let configs = configs(dir.path(), [issuer.issue("a"), issuer.issue("b")]);
        let started = join_all(configs.map(Node::start)).await;
        let nodes: Vec<Node> = started.into_iter().map(Result::unwrap).collect();
        let addrs: Vec<String> = nodes.iter().map(|node| node.local_addr().to_owned()).collect();
        let client = Client::connect(issuer.client(addrs)).await.unwrap();
        client.sql().execute("CREATE TABLE t (x BLOB)", ()).await.unwrap();
        let written = client.sql().execute("INSERT INTO t VALUES (?)", (vec![7_u8; 2 << 20],)).await.unwrap();
        for node in &nodes {
            let sql = node.sql().at(Level::AtLeast(written.position));
            assert_eq!(sql.query_one::<i64>("SELECT sum(length(x)) FROM t", ()).await.unwrap(), 2 << 20);
            assert_eq!(node.admin().members().await.unwrap().members.len(), 2, "a node calls itself");
        }
        for node in nodes {
            node.stop().await;
        }
    });
}

#[test]
fn a_node_calls_itself_at_an_address_that_its_certificate_does_not_cover() {
    run(async {
        let (issuer, dir) = (Issuer::new("ours"), TempDir::new().unwrap());
        let tls = issuer.issue_for("a", "db.example", 0, VALID_FOR);
        let config = Config::single(dir.path()).with_listen("0.0.0.0:0").with_secret(secret()).with_tls(tls);
        let node = Node::start(config).await.unwrap();
        node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        assert_eq!(node.admin().members().await.unwrap().members.len(), 1);
        let here = node.local_addr().replace("0.0.0.0", "127.0.0.1");
        let why = refused(issuer.client(vec![here.clone()])).await;
        assert!(why.contains("is for db.example, not for '127.0.0.1'"), "{why}");
        let tls = ClientTls::new(issuer.ca()).with_server_name("db.example");
        Client::connect(issuer.client(vec![here]).with_tls(tls)).await.unwrap();
        node.stop().await;
    });
}

#[test]
fn a_cluster_of_three_survives_a_new_ca_without_losing_a_connection() {
    run(async {
        let issuer = Issuer::new("ours");
        let (certificates, ca) = (issuer.dir.path().to_owned(), issuer.ca());
        for name in ["a", "b", "c"] {
            issuer.issue(name);
        }
        let world = move |name: &str, config: &mut Config| {
            let file = |end: &str| certificates.join(format!("{name}.{end}"));
            config.tls = Some(TlsConfig::new(file("crt"), file("key"), ca.clone()));
            (Env::real(), SimHooks::default())
        };
        let mut cluster = Cluster::start_in(Box::new(world)).await;
        let client = Client::connect(issuer.client(cluster.addrs())).await.unwrap();
        client.sql().execute("CREATE TABLE t (x INTEGER)", ()).await.unwrap();
        let old = issuer.client(cluster.addrs());
        let old_ca = issuer.file("old", "crt");
        std::fs::copy(issuer.dir.path().join("ca.crt"), &old_ca).unwrap();

        // All files change: whoever connects from now on needs the new CA.
        let next = Authority::new(&Env::real(), "theirs").unwrap();
        let issuer = Issuer { dir: issuer.dir, authority: next };
        for name in ["a", "b", "c"] {
            issuer.issue(name);
        }
        std::fs::write(issuer.dir.path().join("ca.crt"), issuer.authority.certificate()).unwrap();
        let leader = cluster.leader().await;
        let is_refused = async || {
            let tls = ClientTls::new(Ca::File(old_ca.clone()));
            Client::connect(old.clone().with_tls(tls)).await.is_err()
        };
        let deadline = std::time::Instant::now() + PATIENCE;
        while !is_refused().await {
            assert!(std::time::Instant::now() < deadline, "the certificates are not read again");
        }
        assert_eq!(cluster.leader().await, leader, "the nodes are still connected");
        client.sql().execute("INSERT INTO t VALUES (1)", ()).await.unwrap();

        // A node that starts again connects to all others under the new CA.
        let victim = if leader == "a" { "b" } else { "a" };
        cluster.stop(victim).await;
        client.sql().execute("INSERT INTO t VALUES (2)", ()).await.unwrap();
        cluster.restart(victim).await;
        let sql = cluster.sql(victim).at(Level::Linearizable);
        assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM t", ()).await.unwrap(), 2);
        Client::connect(issuer.client(cluster.addrs())).await.unwrap();
        cluster.stop_all().await;
    });
}

#[test]
fn both_ends_say_why_they_refuse() {
    events::keep();
    run(async {
        let (issuer, other, dir) = (Issuer::new("ours"), Issuer::new("theirs"), TempDir::new().unwrap());
        let start = async |name: &str, tls: Option<TlsConfig>| {
            let mut config = Config::single(dir.path().join(name)).with_name(name).with_secret(secret());
            config.tls = tls;
            Node::start(config).await.unwrap()
        };
        let fine = start("fine", Some(issuer.issue("fine"))).await;
        let old = start("old", Some(issuer.issue_for("old", "127.0.0.1", 9, 5 * DAY))).await;
        let plain = start("plain", None).await;
        let at = |node: &Node| vec![node.local_addr().to_owned()];

        let why = refused(other.client(at(&fine))).await;
        assert!(why.contains("issued by no CA that this end trusts"), "{why}");
        let why = refused(issuer.client(at(&old))).await;
        assert!(why.contains("expired 4 days ago"), "{why}");
        let why = refused(issuer.client(at(&plain))).await;
        assert!(why.contains("does not speak TLS"), "{why}");
        let why = refused(ClientConfig::new(at(&fine), secret())).await;
        assert!(why.contains("speaks TLS only"), "{why}");
        let wrong = SecretSource::Inline("another secret of some length".to_owned());
        let tls = ClientTls::new(issuer.ca());
        let why = refused(ClientConfig::new(at(&fine), wrong).with_tls(tls)).await;
        assert!(why.contains("the secrets differ"), "{why}");

        for text in ["does not trust the CA", "it has expired", "which this end does not", "does not speak TLS"] {
            let is_logged =
                || events::all().iter().any(|e| e.starts_with("a connection was refused") && e.contains(text));
            until(text, is_logged).await;
        }
        for node in [fine, old, plain] {
            node.stop().await;
        }
    });
}

#[test]
fn a_node_without_a_certificate_of_the_cluster_is_not_let_in() {
    events::keep();
    run(async {
        let (issuer, other, dir) = (Issuer::new("ours"), Issuer::new("theirs"), TempDir::new().unwrap());
        // It trusts the others, but they don't trust it.
        let mut stranger = other.issue("c");
        stranger.ca = issuer.ca();
        let [a, b, c] = configs(dir.path(), [issuer.issue("a"), issuer.issue("b"), stranger]);
        let starting = [a, b, c].map(|config| tokio::spawn(Node::start(config)));
        let refused = |text: &str| events::all().iter().any(|event| event.contains(text));
        until("the strangers log", || refused("does not let this one in") && refused("does not trust the CA")).await;
        until("the others log", || refused("issued by no CA that this end trusts")).await;
        for start in starting {
            start.abort();
        }
    });
}

#[test]
fn a_node_does_not_start_with_files_that_cannot_be_used() {
    run(async {
        let (issuer, dir) = (Issuer::new("ours"), TempDir::new().unwrap());
        let (fine, other) = (issuer.issue("fine"), issuer.issue("other"));
        let swapped = TlsConfig::new(&fine.certificate, &other.key, issuer.ca());
        let missing = TlsConfig::new(dir.path().join("none"), &fine.key, issuer.ca());
        for (tls, expected) in [(swapped, "can't be used together"), (missing, "No such file")] {
            let config = Config::single(dir.path()).with_secret(secret()).with_tls(tls);
            let error = Node::start(config).await.unwrap_err();
            assert!(matches!(error, StartError::Config(_)) && error.to_string().contains(expected), "{error}");
        }
    });
}
