//! The HTTP port over TLS.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stop at the first surprise, and write files")]

use quorate::{Ca, TlsConfig};
use quorate_env::net::BoxStream;
use quorate_env::{Env, timeout};
use quorate_server::http::{ServeError, serve};
use quorate_tls::authority::Authority;
use quorate_tls::{Keychain, TlsFiles, TlsNet};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

fn certificates(dir: &TempDir) -> TlsConfig {
    let authority = Authority::new(&Env::real(), "a CA for tests").unwrap();
    let issued = authority.issue("node", &["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca = Ca::File(file("ca.crt", authority.certificate()));
    TlsConfig::new(file("node.crt", issued.certificate), file("node.key", issued.key), ca)
}

async fn get_health(env: &Env, addr: &str) -> String {
    let asking = async {
        let mut stream: BoxStream = env.net().connect(addr).await.unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    timeout(LIMIT, asking).await.unwrap()
}

#[tokio::test]
async fn http_is_served_over_tls_and_plain_clients_are_told() {
    let dir = TempDir::new().unwrap();
    let tls = certificates(&dir);
    let server = serve("127.0.0.1:0", Some(&tls)).await.unwrap();
    let files = TlsFiles { ca: tls.ca.clone(), identity: None };
    let client = TlsNet::new(&Env::real(), Keychain::open(&Env::real(), files).unwrap()).env(&Env::real());
    let answer = get_health(&client, server.local_addr()).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    let answer = get_health(&Env::real(), server.local_addr()).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.ends_with("use https.\n"), "{answer}");
    server.stop().await;

    std::fs::write(&tls.key, "nothing").unwrap();
    let error = serve("127.0.0.1:0", Some(&tls)).await.unwrap_err();
    assert!(matches!(error, ServeError::Tls(_)) && error.to_string().contains("node.key"), "{error}");
}
