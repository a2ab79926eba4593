//! The errors that caused an error: the chain of `source()` ends at that of the system or of the parser.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use quorate::backup::BackupOptions;
use quorate::restore::RestoreOptions;
use quorate::{Client, ClientConfig, Config, Node, SecretSource};
use tempfile::TempDir;

use crate::support::{Single, free_addr, run, secret};

/// Returns the errors from `error` to the one that caused all others.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source()).collect()
}

/// Returns the kind of the system's error at the end of the chain. Each error's text must contain that of its cause,
/// so that the first one says everything.
#[track_caller]
fn system_error<T>(result: Result<T, impl Error + 'static>) -> io::ErrorKind {
    let error = result.map(drop).expect_err("it did not fail");
    let chain = chain(&error);
    let last = chain.last().unwrap();
    let system: &io::Error = last.downcast_ref().unwrap_or_else(|| panic!("the chain ends at {last:?}"));
    assert!(chain.iter().all(|error| error.to_string().contains(&system.to_string())), "{chain:?}");
    system.kind()
}

fn config_at(dir: &Path) -> Config {
    Config::from_toml(&format!("data_dir = {:?}", dir.to_str().unwrap())).unwrap()
}

#[test]
fn a_start_in_an_unusable_directory() {
    run(async {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let within = Node::start(config_at(&dir.path().join("file/data"))).await;
        assert_eq!(system_error(within), io::ErrorKind::NotADirectory);

        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("log"), "").unwrap();
        assert_eq!(system_error(Node::start(config_at(&data)).await), io::ErrorKind::AlreadyExists);
    });
}

#[test]
fn a_configuration_that_cannot_be_read() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("node.toml");
    assert_eq!(system_error(Config::load(&file)), io::ErrorKind::NotFound);

    std::fs::write(&file, "data_dir = \"d\"\nsecret = \"a secret for tests only\" oops").unwrap();
    let error = Config::load(&file).unwrap_err();
    let chain = chain(&error);
    assert!(chain.last().unwrap().is::<toml::de::Error>(), "{chain:?}");
    // The parser would quote the line.
    let shown: Vec<String> = chain.iter().map(|error| format!("{error} {error:?}")).collect();
    assert!(shown.iter().all(|text| !text.contains("for tests only")), "{shown:?}");
}

#[test]
fn a_secret_that_cannot_be_read() {
    run(async {
        let dir = TempDir::new().unwrap();
        let missing = SecretSource::File(dir.path().join("secret"));
        let client = Client::connect(ClientConfig::new(["127.0.0.1:1"], missing)).await;
        assert_eq!(system_error(client), io::ErrorKind::NotFound);
    });
}

#[test]
fn a_refused_connection() {
    run(async {
        let config = ClientConfig::new([free_addr()], secret()).with_deadline(Duration::from_millis(100));
        assert_eq!(system_error(Client::connect(config).await), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn calls_to_a_node_that_has_gone() {
    run(async {
        let single = Single::start().await;
        let client = single.client().await;
        let (sql, admin) = (client.sql(), client.admin());
        single.node.stop().await;
        // Enough for an attempt after the first one, which may find the connection broken.
        let deadline = Duration::from_secs(2);
        let written = sql.with_deadline(deadline).execute("CREATE TABLE t (a)", ()).await;
        assert_eq!(system_error(written), io::ErrorKind::ConnectionRefused);
        let members = admin.with_deadline(deadline).members().await;
        assert_eq!(system_error(members), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn files_of_a_backup_that_cannot_be_used() {
    run(async {
        let dir = TempDir::new().unwrap();
        let single = Single::start().await;
        let made = single.node.backup(dir.path().join("missing/file.db"), &BackupOptions::default()).await;
        assert_eq!(system_error(made), io::ErrorKind::NotFound);
        single.node.stop().await;

        let config = config_at(&dir.path().join("data"));
        let restored = quorate::restore(dir.path().join("missing.db"), &config, &RestoreOptions::default()).await;
        assert_eq!(system_error(restored), io::ErrorKind::NotFound);
    });
}

#[test]
fn a_row_that_cannot_be_converted() {
    run(async {
        let single = Single::start().await;
        let rows = single.node.sql().query("SELECT 'x' AS a", ()).await.unwrap();
        let error = rows.iter().next().unwrap().get_json::<i64>("a").unwrap_err();
        assert!(chain(&error).last().unwrap().is::<serde_json::Error>(), "{error:?}");
        single.node.stop().await;
    });
}
