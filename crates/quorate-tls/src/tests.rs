//! Both ends of real connections: what they learn, and why each refuses the other.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise, and write files"
)]

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join;
use quorate_env::net::{BoxStream, Security, secure};
use quorate_env::{Env, Instant, sleep, timeout};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::authority::{Authority, VALID_FOR};
use crate::error::DAY_SECONDS;
use crate::{Ca, ChannelError, IdentityFiles, Keychain, TlsError, TlsFiles, TlsNet, inspect};

const LIMIT: Duration = Duration::from_secs(30);
const HOST: &str = "127.0.0.1";

/// A CA and a directory for its files.
struct Issuer {
    dir: TempDir,
    authority: Authority,
}

impl Issuer {
    fn new() -> Self {
        Self::named("a CA for tests")
    }

    fn named(name: &str) -> Self {
        let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new(&Env::real(), name).unwrap());
        fs::write(dir.path().join("ca.crt"), authority.certificate()).unwrap();
        Self { dir, authority }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn ca(&self) -> Ca {
        Ca::File(self.path().join("ca.crt"))
    }

    /// Writes a certificate for some hosts that began days ago and is valid for a time.
    fn write(&self, name: &str, hosts: &[&str], days: u64, time: Duration) -> IdentityFiles {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let issued = self.authority.issue_for(name, &hosts, days, time).unwrap();
        let file = |end: &str| self.path().join(format!("{name}.{end}"));
        let files = IdentityFiles { certificate: file("crt"), key: file("key") };
        fs::write(&files.key, issued.key).unwrap();
        fs::write(&files.certificate, issued.certificate).unwrap();
        files
    }

    fn node(&self) -> TlsFiles {
        TlsFiles { ca: self.ca(), identity: Some(self.write("node", &[HOST], 0, VALID_FOR)) }
    }

    fn client(&self) -> TlsFiles {
        TlsFiles { ca: self.ca(), identity: None }
    }
}

fn env(files: TlsFiles) -> Env {
    let env = Env::real();
    TlsNet::new(&env, Keychain::open(&env, files).unwrap()).with_answer_to_plain(b"not this way").env(&env)
}

type End = io::Result<(BoxStream, Security)>;

async fn end(mut stream: BoxStream) -> End {
    // A refusal of a client's certificate arrives only after the client has completed its handshake.
    let security = secure(&mut stream).await?.unwrap();
    stream.write_all(b"x").await?;
    stream.flush().await?;
    match stream.read_u8().await {
        Ok(b'x') => Ok((stream, security)),
        Ok(other) => panic!("{other}"),
        Err(error) => Err(error),
    }
}

/// Connects two ends, and returns what each of them got: the connecting one first.
async fn connect(from: &Env, to: &Env) -> (End, End) {
    let listener = to.net().listen("127.0.0.1:0").await.unwrap();
    let called = from.net().connect(&listener.local_addr()).await.unwrap();
    let (accepted, _) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    timeout(LIMIT, join(end(called), end(accepted))).await.unwrap()
}

/// Connects two ends that refuse each other, and returns the reasons.
async fn refused(from: &Env, to: &Env) -> (ChannelError, ChannelError) {
    let (called, accepted) = connect(from, to).await;
    let error = |end: End| {
        let error = end.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        ChannelError::of(&error).cloned().unwrap()
    };
    (error(called), error(accepted))
}

#[tokio::test]
async fn both_ends_have_the_binding_that_no_other_channel_has() {
    let issuer = Issuer::new();
    let (node, client) = (env(issuer.node()), env(issuer.client()));
    let mut bindings = Vec::new();
    for (from, is_certified) in [(&client, false), (&node, true), (&client, false)] {
        let (called, accepted) = connect(from, &node).await;
        let ((_, called), (_, accepted)) = (called.unwrap(), accepted.unwrap());
        assert_eq!(called.binding, accepted.binding);
        assert!(called.is_certified, "the accepting end always has a certificate");
        assert_eq!(accepted.is_certified, is_certified);
        bindings.push(called.binding);
    }
    bindings.sort_unstable();
    bindings.dedup();
    assert_eq!(bindings.len(), 3);
}

#[tokio::test]
async fn each_bad_certificate_has_its_own_error_at_both_ends() {
    let (issuer, other) = (Issuer::new(), Issuer::named("another CA"));
    let (node, client) = (env(issuer.node()), env(issuer.client()));

    for other in [&other, &Issuer::new()] {
        let (called, accepted) = refused(&env(other.client()), &node).await;
        assert_eq!(called, ChannelError::UnknownIssuer);
        assert!(matches!(accepted, ChannelError::Refused(why) if why.contains("trust")), "{accepted}");
    }

    let (called, accepted) = refused(&env(TlsFiles { ca: issuer.ca(), ..other.node() }), &node).await;
    assert_eq!(accepted, ChannelError::UnknownIssuer);
    assert!(matches!(called, ChannelError::Refused(why) if why.contains("trust")), "{called}");

    let identity = Some(issuer.write("old", &[HOST], 9, Duration::from_secs(5 * DAY_SECONDS)));
    let old = env(TlsFiles { identity, ..issuer.client() });
    let (called, accepted) = refused(&client, &old).await;
    assert_eq!(called, ChannelError::Expired { days: Some(4) });
    assert!(matches!(accepted, ChannelError::Refused(why) if why.contains("expired")), "{accepted}");

    let identity = Some(issuer.write("elsewhere", &["db.example", "10.0.0.1"], 0, VALID_FOR));
    let elsewhere = env(TlsFiles { identity, ..issuer.client() });
    let (called, accepted) = refused(&client, &elsewhere).await;
    let presented = "db.example, 10.0.0.1".to_owned();
    assert_eq!(called, ChannelError::WrongName { expected: HOST.to_owned(), presented });
    assert!(matches!(accepted, ChannelError::Refused(why) if why.contains("name")), "{accepted}");

    let keychain = Keychain::open(&Env::real(), issuer.client()).unwrap();
    let named = TlsNet::new(&Env::real(), keychain).with_server_name(Some("db.example".to_owned()));
    assert!(connect(&named.env(&Env::real()), &elsewhere).await.0.is_ok(), "it is called by its name");
}

#[tokio::test]
async fn an_end_without_tls_gets_an_answer_and_is_named_as_the_cause() {
    let issuer = Issuer::new();
    let (node, client) = (env(issuer.node()), env(issuer.client()));
    let listener = node.net().listen("127.0.0.1:0").await.unwrap();
    let mut plain = Env::real().net().connect(&listener.local_addr()).await.unwrap();
    plain.write_all(&[b'G'; 10_000]).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    let asking = async {
        let mut answer = String::new();
        plain.read_to_string(&mut answer).await.unwrap();
        drop(plain);
        answer
    };
    let (error, answer) = timeout(LIMIT, join(secure(&mut accepted), asking)).await.unwrap();
    assert_eq!(ChannelError::of(&error.unwrap_err()), Some(&ChannelError::Plain));
    assert_eq!(answer, "not this way");

    let listener = Env::real().net().listen("127.0.0.1:0").await.unwrap();
    let mut called = client.net().connect(&listener.local_addr()).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    let answering = async { accepted.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap() };
    let (error, ()) = timeout(LIMIT, join(secure(&mut called), answering)).await.unwrap();
    assert_eq!(ChannelError::of(&error.unwrap_err()), Some(&ChannelError::Plain));
}

#[tokio::test]
async fn a_silent_client_delays_nobody() {
    let issuer = Issuer::new();
    let (node, client) = (env(issuer.node()), env(issuer.client()));
    let listener = node.net().listen("127.0.0.1:0").await.unwrap();
    let _silent = Env::real().net().connect(&listener.local_addr()).await.unwrap();
    let _pending = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    let called = client.net().connect(&listener.local_addr()).await.unwrap();
    let (accepted, _) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    let (called, accepted) = timeout(LIMIT, join(end(called), end(accepted))).await.unwrap();
    assert!(called.is_ok() && accepted.is_ok());
}

/// Connects until the new certificate is in force, which the name that it covers shows.
async fn wait_until(from: &Env, to: &Env, is_refused: bool) {
    let deadline = Instant::now() + LIMIT;
    while connect(from, to).await.0.is_err() != is_refused {
        assert!(Instant::now() < deadline, "the files are not read again");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn changed_files_are_read_again_and_open_connections_stay() {
    let issuer = Issuer::new();
    let files = issuer.node();
    let keychain = Keychain::open(&Env::real(), files.clone()).unwrap();
    let node = TlsNet::new(&Env::real(), keychain.clone()).env(&Env::real());
    let client = env(issuer.client());
    let (called, accepted) = connect(&client, &node).await;
    let ((mut called, _), (mut accepted, _)) = (called.unwrap(), accepted.unwrap());

    let good = fs::read(&files.identity.as_ref().unwrap().certificate).unwrap();
    issuer.write("node", &["elsewhere.example"], 0, VALID_FOR);
    wait_until(&client, &node, true).await;

    // A certificate without its key is not used, and neither is a damaged file.
    fs::write(&files.identity.as_ref().unwrap().certificate, good).unwrap();
    keychain.look();
    assert!(connect(&client, &node).await.0.is_err());
    fs::write(&files.identity.as_ref().unwrap().certificate, "-----BEGIN CERTIFICATE-----\n").unwrap();
    keychain.look();
    assert!(connect(&client, &node).await.0.is_err());

    issuer.write("node", &[HOST], 0, VALID_FOR);
    wait_until(&client, &node, false).await;
    called.write_all(b"still there").await.unwrap();
    called.flush().await.unwrap();
    let mut read = [0; 11];
    timeout(LIMIT, accepted.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(&read, b"still there");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let open = |files: TlsFiles| Keychain::open(&Env::real(), files).map(drop).unwrap_err();
    let IdentityFiles { certificate, key } = issuer.node().identity.unwrap();

    let missing = issuer.path().join("missing");
    let error = open(TlsFiles { ca: Ca::File(missing.clone()), identity: None });
    assert!(matches!(&error, TlsError::File { path, .. } if *path == missing), "{error}");

    let error = open(TlsFiles { ca: Ca::File(key.clone()), identity: None });
    assert!(matches!(&error, TlsError::Content { path, .. } if *path == key), "{error}");

    let identity = Some(IdentityFiles { certificate: certificate.clone(), key: certificate.clone() });
    let error = open(TlsFiles { ca: issuer.ca(), identity });
    assert!(matches!(&error, TlsError::Content { expected: "a private key", .. }), "{error}");

    let others_key = other.node().identity.unwrap().key;
    let identity = Some(IdentityFiles { certificate, key: others_key });
    let error = open(TlsFiles { ca: issuer.ca(), identity });
    assert!(matches!(error, TlsError::Identity { .. }), "{error}");
}

#[test]
fn an_inspection_finds_what_is_wrong() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let inspect = |files: &TlsFiles, addrs: &[&str]| {
        let addrs: Vec<String> = addrs.iter().map(|addr| (*addr).to_owned()).collect();
        inspect(&Env::real(), files, &addrs).unwrap()
    };
    let now = Env::real().unix_nanos() / 1_000_000_000;
    let files = issuer.node();
    let fine = inspect(&files, &["127.0.0.1:7001", "db.example:7001", "[::1]:1"]);
    assert_eq!((&fine.refused, &fine.refused_as_client), (&None, &None));
    assert_eq!(fine.uncovered, ["::1", "db.example"]);
    let left = fine.end.unwrap() - now;
    assert!(left.abs_diff(VALID_FOR.as_secs()) < 3600, "{left}");

    let identity = Some(issuer.write("old", &[HOST], 9, Duration::from_secs(5 * DAY_SECONDS)));
    let old = inspect(&TlsFiles { identity, ..issuer.client() }, &["127.0.0.1:1"]);
    assert_eq!(old.refused, Some(ChannelError::Expired { days: Some(4) }));
    assert!(old.end.unwrap() < now);

    let foreign = inspect(&TlsFiles { ca: other.ca(), ..files }, &["127.0.0.1:1"]);
    assert_eq!((foreign.refused, foreign.end), (Some(ChannelError::UnknownIssuer), None));
}
