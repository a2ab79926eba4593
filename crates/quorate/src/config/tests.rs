//! Tests of valid and invalid configurations.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use quorate_env::Env;

use super::*;

const FULL: &str = r#"
    data_dir = "data/a"
    name = "a"
    listen = "0.0.0.0:7001"
    advertise = "a.example:7001"
    secret = "0123456789abcdef"
    admin_token_hash = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5A5A"
    durability = "os"
    keep_log = "1 GiB"
    deadline = "10 s"
    [members]
    a = "a.example:7001"
    b = "b.example:7001"
    [tls]
    certificate = "a.crt"
    key = "a.key"
    ca = "ca.crt"
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
    query_timeout = "1 min"
    temp_bytes_per_query = "256 MiB"
    temp_bytes = "8 GiB"
    slow_statement = "200 ms"
"#;

#[test]
fn every_key_is_read() {
    let config = Config::from_toml(FULL).unwrap();
    let expected = Config {
        data_dir: "data/a".into(),
        name: "a".to_owned(),
        listen: Some("0.0.0.0:7001".to_owned()),
        advertise: Some("a.example:7001".to_owned()),
        members: [("a", "a.example:7001"), ("b", "b.example:7001")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        secret: SecretSource::Inline("0123456789abcdef".to_owned()),
        tls: Some(TlsConfig::new("a.crt", "a.key", Ca::File("ca.crt".into()))),
        admin_token: Some(TokenHash::new([0x5a; TokenHash::BYTES])),
        timing: Timing {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_secs(1),
            election_max: Duration::from_secs(2),
            silence: Duration::from_secs(60),
            status: Duration::from_secs(2),
        },
        durability: Durability::Os,
        keep_log_bytes: 1 << 30,
        deadline: Duration::from_secs(10),
        sql: SqlOptions {
            readers: 4,
            reader_cache_bytes: 1 << 20,
            writer_cache_bytes: 2 << 20,
            page_size: 8192,
            query_timeout: Duration::from_secs(60),
            temp_bytes_per_query: 256 << 20,
            temp_bytes: 8 << 30,
            slow_statement: Duration::from_millis(200),
        },
        extensions: Extensions::default(),
        archive: None,
        first_state: None,
    };
    assert_eq!(config, expected);
}

#[test]
fn a_data_directory_is_enough() {
    assert_eq!(Config::from_toml("data_dir = \"x\"").unwrap(), Config::single("x"));
    assert_eq!(Config::from_toml(""), Err(ConfigError::Missing("data_dir")));
}

#[test]
fn errors_name_what_is_wrong() {
    let cases = [
        ("lisen = \"x\"", "the key 'lisen' is not known; did you mean 'listen'?"),
        (
            "[timing]\nheart_beat = \"1 s\"",
            "the key 'timing.heart_beat' is not known; did you mean 'timing.heartbeat'?",
        ),
        ("name = 5", "'name' must be a text in quotes, not integer"),
        ("[members]\nb = 1", "'members' needs a text in quotes for 'b', not integer"),
        ("deadline = \"soon\"", "'deadline' must be a time such as \"80 ms\", not string"),
        ("timing = 3", "'timing' must be a table, not integer"),
        ("durability = \"none\"", "'durability' is 'none': it can only be 'fsync' or 'os'"),
        ("secret = \"a\"\nsecret_env = \"B\"", "set one of 'secret_env' and 'secret'"),
        ("[members]\nb = \"x:1\"", "this node's name, 'node', is not one of the members: b"),
        ("[members]\nnode = \"x:1\"\nb = \"x:2\"", "the nodes of a cluster must share a secret"),
        ("[tls]\nkey = \"x\"", "'tls.certificate' is missing"),
        ("[tls]\ncertificate = \"x\"", "'tls.key' is missing"),
        ("[sql]\npage_size = 1000", "'sql.page_size' is 1000"),
        ("[sql]\nreaders = 0", "'sql.readers' is 0"),
        ("[sql]\nquery_timeout = \"0 s\"", "'sql.query_timeout' is 0"),
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
fn paths_in_a_file_are_relative_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quorate.toml");
    let tls = "[tls]\ncertificate = \"c\"\nkey = \"/k\"\nca = ";
    std::fs::write(&path, format!("data_dir = \"d\"\nsecret_file = \"s\"\n{tls}\"ca\"")).unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.tls, Some(TlsConfig::new(dir.path().join("c"), "/k", Ca::File(dir.path().join("ca")))));
    let system = Config::from_toml(&format!("data_dir = \"d\"\n{tls}\"system\"")).unwrap();
    assert_eq!(system.tls, Some(TlsConfig::new("c", "/k", Ca::System)));
    assert_eq!(config.data_dir, dir.path().join("d"));
    assert_eq!(config.secret, SecretSource::File(dir.path().join("s")));
    let missing = Config::load(dir.path().join("none")).unwrap_err();
    assert!(matches!(missing, ConfigError::File { .. }), "{missing}");
}

#[test]
fn errors_in_a_file_name_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quorate.toml");
    let shown = path.display();
    for (text, expected) in [
        ("data_dir = \"d\"\n\nname = = 5", format!("{shown}:3: ")),
        ("data_dir = \"d\"\nlisen = \"x\"", format!("{shown}:2: the key 'lisen' is not known")),
        ("data_dir = \"d\"\n[timing]\n\nheartbeat = 5", format!("{shown}:4: 'timing.heartbeat' must be a time")),
        ("data_dir = \"d\"\ntiming = 3", format!("{shown}:2: 'timing' must be a table")),
        ("data_dir = \"d\"\ntiming.hart = 3", format!("{shown}:2: the key 'timing.hart' is not known")),
        ("name = \"a\"", format!("{shown}: 'data_dir' is missing")),
        ("data_dir = \"d\"\n[sql]\nreaders = 0", format!("{shown}: 'sql.readers' is 0")),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Config::load(&path).unwrap_err().to_string();
        assert!(error.starts_with(&expected), "{text}: {error}");
    }
    let variables = [("QUORATE_SQL_READERS".to_owned(), "0".to_owned())];
    let read = Sources::new().file(&path).unwrap().variables(variables).read::<Config>();
    assert!(read.unwrap_err().to_string().starts_with("'sql.readers' is 0"), "the variable is wrong, not the file");
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

fn variables(pairs: &[(&str, &str)]) -> Sources {
    Sources::new().variables(pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
}

#[test]
fn the_environment_overrides_the_file() {
    let given = [
        ("QUORATE_NAME", "b"),
        ("QUORATE_MEMBERS", "b=x:1,c=x:2"),
        ("QUORATE_SECRET_FILE", "/run/secret"),
        ("QUORATE_SQL_PAGE_SIZE", "16 KiB"),
        ("QUORATE_TIMING_SILENCE", "5 s"),
        ("HOME", "/root"),
    ];
    let config: Config = variables(&given).text(FULL).unwrap().read().unwrap();
    assert_eq!((config.name.as_str(), config.members.len()), ("b", 2));
    assert_eq!(config.secret, SecretSource::File("/run/secret".into()));
    assert_eq!((config.sql.page_size, config.sql.readers), (16384, 4));
    assert_eq!(config.timing.silence, Duration::from_secs(5));
}

#[test]
fn the_environment_is_enough() {
    let config: Config = variables(&[("QUORATE_DATA_DIR", "x")]).read().unwrap();
    assert_eq!(config, Config::single("x"));
}

#[test]
fn unknown_variables_fail_except_kubernetes_ones() {
    let error = variables(&[("QUORATE_DATADIR", "x")]).read::<Config>().unwrap_err().to_string();
    assert_eq!(error, "the variable QUORATE_DATADIR is not known; did you mean QUORATE_DATA_DIR?");
    let links = ["QUORATE_SERVICE_HOST", "QUORATE_SERVICE_PORT_HTTP", "QUORATE_PORT", "QUORATE_PORT_7001_TCP_ADDR"];
    let links = links.map(|name| (name, "10.0.0.1")).to_vec();
    assert!(variables(&[links, vec![("QUORATE_DATA_DIR", "x")]].concat()).read::<Config>().is_ok());
    let error = variables(&[("QUORATE_SQL_READERS", "few")]).read::<Config>().unwrap_err().to_string();
    assert_eq!(error, "'QUORATE_SQL_READERS' must be a whole number, not what the variable holds");
}

#[test]
fn a_variable_that_is_not_text_is_an_error() {
    let not_text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let read = |name: &[u8], value: &[u8]| {
        let data_dir = ("QUORATE_DATA_DIR".into(), "x".into());
        Sources::new().variables([(not_text(name), not_text(value)), data_dir]).read::<Config>()
    };
    let error = read(b"QUORATE_NAME", b"\xff").unwrap_err();
    assert_eq!(error, ConfigError::NotText("QUORATE_NAME".to_owned()));
    assert_eq!(error.to_string(), "the variable QUORATE_NAME is not UTF-8 text");
    assert_eq!(read(b"QUORATE_\xff", b"x"), Err(ConfigError::NotText("QUORATE_\u{fffd}".to_owned())));
    assert!(read(b"OTHER_\xff", b"\xff").is_ok() && read(b"QUORATE_SERVICE_HOST", b"\xff").is_ok());
}

#[test]
fn the_host_name_can_be_the_node_name() {
    let config = Config::from_toml("data_dir = \"x\"\nname_from_hostname = true").unwrap();
    assert_eq!(config.name, quorate_env::host_name().unwrap());
    let both = Config::from_toml("data_dir = \"x\"\nname = \"a\"\nname_from_hostname = true").unwrap_err();
    assert_eq!(both, ConfigError::Invalid("set one of 'name' and 'name_from_hostname'".into()));
}

#[test]
fn printing_shows_values_and_their_origins() {
    let sources = variables(&[("QUORATE_KEEP_LOG", "2 GiB")]).text(FULL).unwrap();
    let config: Config = sources.read().unwrap();
    let printed = print(&config, |key| sources.origin(key));
    for line in ["keep_log = \"2 GiB\"  # QUORATE_KEEP_LOG", "name = \"a\"  # file", "# secret: set, not shown  # file"]
    {
        assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
    }
    assert!(!printed.contains("0123456789abcdef"), "{printed}");
    let again = Config::from_toml(&format!("secret = \"0123456789abcdef\"\n{printed}")).unwrap();
    assert_eq!(again, config);
}

#[test]
fn a_commented_file_reads_as_its_source() {
    let mut config = Config::from_toml(FULL).unwrap();
    config.secret = SecretSource::File("secret".into());
    for config in [config, Config::single("data")] {
        let text = template(&config);
        assert_eq!(Config::from_toml(&text).unwrap(), config, "{text}");
        let uncommented: String = text
            .lines()
            .map(|line| line.strip_prefix("# ").unwrap_or(line))
            .fold(String::new(), |all, line| all + line + "\n");
        for key in Config::keys() {
            let name = key.path;
            let is_there = |line: &str| line.starts_with(&format!("{name} = ")) || line == format!("[{name}]");
            assert!(uncommented.lines().any(is_there), "{name}\n{text}");
        }
    }
}
