//! Configurations, good and bad.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

use super::*;

const FULL: &str = r#"
    data_dir = "data/a"
    name = "a"
    listen = "0.0.0.0:7001"
    advertise = "a.example:7001"
    secret = "0123456789abcdef"
    durability = "fsync"
    keep_log = "1 GiB"
    deadline = "10 s"
    [members]
    a = "a.example:7001"
    b = "b.example:7001"
    [timing]
    heartbeat = "100 ms"
    election_min = "1 s"
    election_max = "2 s"
    silence = "1 min"
    status = "2 s"
    [sql]
    readers = 4
    reader_cache = "1 MiB"
    writer_cache = "2 MiB"
    page_size = 8192
"#;

#[test]
fn every_key_arrives() {
    let config = Config::from_toml(FULL).unwrap();
    let expected = Config {
        data_dir: "data/a".into(),
        name: "a".to_owned(),
        listen: Some("0.0.0.0:7001".to_owned()),
        advertise: Some("a.example:7001".to_owned()),
        members: [("a", "a.example:7001"), ("b", "b.example:7001")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        secret: SecretSource::Inline("0123456789abcdef".to_owned()),
        timing: Timing {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_secs(1),
            election_max: Duration::from_secs(2),
            silence: Duration::from_secs(60),
            status: Duration::from_secs(2),
        },
        durability: Durability::Fsync,
        keep_log_bytes: 1 << 30,
        deadline: Duration::from_secs(10),
        sql: SqlOptions { readers: 4, reader_cache_bytes: 1 << 20, writer_cache_bytes: 2 << 20, page_size: 8192 },
    };
    assert_eq!(config, expected);
}

#[test]
fn a_data_directory_is_enough() {
    assert_eq!(Config::from_toml("data_dir = \"x\"").unwrap(), Config::single("x"));
    assert_eq!(Config::from_toml(""), Err(ConfigError::Missing("data_dir")));
}

#[test]
fn what_is_wrong_is_named() {
    let cases = [
        ("lisen = \"x\"", "the key 'lisen' is not known; did you mean 'listen'?"),
        (
            "[timing]\nheart_beat = \"1 s\"",
            "the key 'timing.heart_beat' is not known; did you mean 'timing.heartbeat'?",
        ),
        ("name = 5", "'name' must be a text in quotes, not integer"),
        ("[members]\nb = 1", "'members.b' must be a text in quotes, not integer"),
        ("deadline = \"soon\"", "'deadline' must be a time such as \"80 ms\", not string"),
        ("timing = 3", "'timing' must be a table, not integer"),
        ("durability = \"none\"", "'durability' is 'none': it can only be 'fsync'"),
        ("secret = \"a\"\nsecret_env = \"B\"", "set one of 'secret', 'secret_file' and 'secret_env'"),
        ("[members]\nb = \"x:1\"", "this node's name, 'node', is none of the members: b"),
        ("[members]\nnode = \"x:1\"\nb = \"x:2\"", "the nodes of a cluster must share a secret"),
        ("[sql]\npage_size = 1000", "'sql.page_size' is 1000"),
        ("[sql]\nreaders = 0", "'sql.readers' is 0"),
        ("[timing]\nheartbeat = \"1 s\"", "'timing' needs heartbeat < election_min < election_max"),
    ];
    for (text, expected) in cases {
        let error = Config::from_toml(&format!("data_dir = \"x\"\n{text}")).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn secrets_are_never_printed() {
    let config = Config::from_toml(FULL).unwrap();
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
    for text in ["secret = \"0123456789abcdef", "secret = [\"0123456789abcdef\"]", "secret = 0123456789abcdef"] {
        let error = Config::from_toml(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("0123456789abcdef"), "{error}");
    }
}

#[test]
fn a_kept_secret_is_drawn_once_and_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, env) = (tempfile::tempdir().unwrap(), Env::real());
    SecretSource::Kept.resolve(&env, dir.path()).unwrap();
    let read = || std::fs::read_to_string(dir.path().join("secret")).unwrap();
    let first = read();
    SecretSource::Kept.resolve(&env, dir.path()).unwrap();
    assert_eq!((first.len(), read()), (64, first));
    let mode = std::fs::metadata(dir.path().join("secret")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_file_names_paths_from_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quorate.toml");
    std::fs::write(&path, "data_dir = \"d\"\nsecret_file = \"s\"").unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.data_dir, dir.path().join("d"));
    assert_eq!(config.secret, SecretSource::File(dir.path().join("s")));
    let missing = Config::load(dir.path().join("none")).unwrap_err();
    assert!(matches!(missing, ConfigError::File { .. }), "{missing}");
}

#[test]
fn a_secret_comes_from_a_file_without_its_line_end() {
    let (dir, env) = (tempfile::tempdir().unwrap(), Env::real());
    let path = dir.path().join("s");
    for (text, good) in [("0123456789abcdef\n", true), ("short\n", false), ("0123456789abcd \n\n", false)] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(SecretSource::File(path.clone()).resolve(&env, dir.path()).is_ok(), good, "{text}");
    }
    assert!(SecretSource::File(dir.path().join("none")).resolve(&env, dir.path()).is_err());
    assert!(SecretSource::Variable("QUORATE_NO_SUCH_VARIABLE".to_owned()).resolve(&env, dir.path()).is_err());
}
