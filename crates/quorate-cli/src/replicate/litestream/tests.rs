//! Configurations of Litestream: what they mean, and that nothing in them is ignored.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

use super::*;

fn read(text: &str) -> Result<Config> {
    parse(text, |name| (name == "BUCKET").then(|| "tenants".to_owned()))
}

#[test]
fn keys_mean_what_they_mean_in_litestream() {
    let text = "
access-key-id: AKID
secret-access-key: secret
region: eu-central-1
exec: ./app
addr: ':9090'
shutdown-sync-timeout: 5s
snapshot: {interval: 24h, retention: 168h}
logging: {level: WARN, type: json, stderr: true}
socket: {enabled: true, permissions: 0660}
dbs:
  - path: /var/lib/app.db
    min-checkpoint-page-count: 500
    replica:
      url: s3://bucket/app?endpoint=minio.example.com:9000
      sync-interval: 500ms
      region: us-east-1
  - dir: /var/lib/tenants
    pattern: '*.db'
    recursive: true
    watch: true
    replicas:
      - type: s3
        bucket: ${BUCKET}
        path: /all
";
    let Config { databases, directories, exec, metrics, log, socket, defaults, .. } = read(text).unwrap();
    assert_eq!(socket, Some(Socket { path: SOCKET.into(), mode: 0o660 }));
    assert_eq!((defaults.keep_for, defaults.stop_wait), (Some(7 * RETENTION), Some(Duration::from_secs(5))));
    assert_eq!((exec.as_deref(), metrics.as_deref()), (Some("./app"), Some("0.0.0.0:9090")));
    assert_eq!((log.level, log.format), (LogLevel::Warn, LogFormat::Json));
    let database = &databases[0];
    assert_eq!(database.path, Path::new("/var/lib/app.db"));
    let location: Location = database.url.parse().unwrap();
    assert_eq!(
        location.to_string(),
        "s3://bucket/app?region=us-east-1&endpoint=https%3A%2F%2Fminio.example.com%3A9000"
            .parse::<Location>()
            .unwrap()
            .to_string()
    );
    let secrets = [("aws_access_key_id", "AKID"), ("aws_secret_access_key", "secret")];
    assert_eq!(database.secrets.0, secrets.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let options = database.options().unwrap();
    assert_eq!((options.interval, options.checkpoint_frames), (Duration::from_millis(500), 500));
    assert_eq!((options.keep, options.stop_wait), (Some(7 * RETENTION), Duration::from_secs(5)));
    let directory = &directories[0];
    assert_eq!(directory.url, "s3://tenants/all?region=eu-central-1");
    assert_eq!(directory.pattern.as_deref(), Some("*.db"));
    assert!(directory.is_recursive && !directory.is_searched_once);
    assert!(!format!("{:?}", read(text).unwrap()).contains("secret\""));
    database.open().unwrap();
}

#[test]
fn defaults_are_those_of_litestream() {
    let Config { databases, directories, exec, .. } = read(
        "dbs:\n- path: app.db\n  replica: {path: /mnt/a}\n- {dir: /t, pattern: '*', replica: {path: ~/b}}\n\
         - {path: b, replica: {url: 'abs://name@box/b', account-key: a2V5}}\n- {path: c, replica: {url: 'gs://box/c'}}",
    )
    .unwrap();
    assert!(exec.is_none() && databases[0].path.is_absolute());
    let options = databases[0].options().unwrap();
    assert_eq!((options.interval, options.keep), (Duration::from_secs(1), Some(RETENTION)));
    assert_eq!((options.stop_wait, &*databases[0].url), (SHUTDOWN_TIMEOUT, "/mnt/a"));
    assert!(directories[0].is_searched_once && !directories[0].is_recursive);
    assert_eq!(databases[1].url, "az://box/b?account=name");
    assert_eq!(databases[1].secrets.0, [("azure_storage_account_key".to_owned(), "a2V5".to_owned())]);
    assert_eq!(databases[2].url, "gs://box/c");
    let kept = read("retention: {enabled: false}\ndbs:\n- {path: a, replica: {path: /a}}").unwrap();
    assert_eq!(kept.databases[0].keep_for, None);
}

#[test]
fn credentials_of_litestreams_variables_count() {
    let text = "dbs:\n- {path: a, replica: {url: 's3://b/a'}}";
    let config = parse(text, |name| name.strip_prefix("LITESTREAM_").map(str::to_lowercase)).unwrap();
    assert_eq!(config.databases[0].secrets.0[0], ("aws_access_key_id".to_owned(), "access_key_id".to_owned()));
    let config = parse(text, |name| Some(name.to_lowercase())).unwrap();
    assert_eq!(config.databases[0].secrets, Secrets::default());
}

#[test]
fn what_is_not_supported_is_an_error_that_names_the_key() {
    let with = |top: &str, database: &str, replica: &str| {
        format!("{top}\ndbs:\n- path: a\n  {database}\n  replica:\n    url: s3://b/a\n    {replica}\n")
    };
    let mut cases: Vec<(String, String)> = Vec::new();
    for (key, _) in REFUSED.iter().filter(|(key, _)| *key != "age") {
        cases.push((with(&format!("{key}: x"), "", ""), format!("'{key}' is not supported")));
    }
    for (key, _) in REFUSED_OF_DATABASE {
        cases.push((with("", &format!("{key}: x"), ""), format!("'dbs[1].{key}' is not supported")));
    }
    for (key, _) in REFUSED_OF_REPLICA {
        cases.push((with("", "", &format!("{key}: x")), format!("'dbs[1].replica.{key}' is not supported")));
    }
    for (top, database, replica, why) in [
        ("pid-file: x", "", "", "'pid-file' is not supported: docs/replicate.md"),
        ("age: {recipients: [x]}", "", "", "'age' is not supported"),
        ("snapshot: {interval: 1h}", "", "", "'snapshot.interval' is not supported"),
        ("snapshot: {keep: 1h}", "", "", "'snapshot.keep' is not supported"),
        ("logging: {level: debug}", "", "", "'logging.level' is not supported"),
        ("logging: {stderr: false}", "", "", "'logging.stderr' can't be false"),
        ("socket: {enabled: true, permissions: 600}", "", "", "'socket.permissions' must be the mode of a file"),
        ("socket: {enabled: false, port: 1}", "", "", "'socket.port'"),
        ("verify-compaction: true", "", "", "'verify-compaction' can't be true"),
        ("", "restore-if-db-not-exists: true", "", "'dbs[1].restore-if-db-not-exists' can't be true"),
        ("", "truncate-page-n: 100", "", "'dbs[1].truncate-page-n' is not supported"),
        ("", "pattern: '*.db'", "", "'dbs[1].path' or 'dir' must be there"),
        ("", "watch: true", "", "'dbs[1].path' or 'dir' must be there"),
        ("", "replicas: [{path: /b}]", "", "'dbs[1].replica' must be there, or 'replicas' with one item"),
        ("", "", "sync-interval: 1", "'dbs[1].replica.sync-interval' must be a text"),
        ("", "", "sync-interval: 1d", "'dbs[1].replica.sync-interval' must be a time"),
        ("", "", "sync-interval: 0s", "'dbs[1].replica.sync-interval' must be at least"),
        ("", "", "skip-verify: true", "'dbs[1].replica.skip-verify' can't be true"),
        ("", "", "bucket: b", "'dbs[1].replica.bucket' can't be there beside 'url'"),
        ("", "", "path: b", "'dbs[1].replica.path' can't be there beside 'url'"),
    ] {
        cases.push((with(top, database, replica), why.to_owned()));
    }
    for (replica, why) in [
        ("{url: 'sftp://h/p'}", "'dbs[1].replica.type' is not supported: there are S3"),
        ("{url: 's3://b.s3.eu-central-1.amazonaws.com/p'}", "'dbs[1].replica.url' is not supported with a server"),
        ("{url: 's3://b/p?skipVerify=true'}", "'dbs[1].replica.url' is not supported: s3://...: the settings"),
        ("{url: 's3://key:secret@b/p'}", "a URL must not contain credentials"),
        ("{type: s3, path: p}", "'dbs[1].replica.bucket' is missing"),
        ("{}", "'dbs[1].replica.path' is missing"),
    ] {
        cases.push((format!("dbs:\n- {{path: a, replica: {replica}}}"), why.to_owned()));
    }
    cases.push(("dbs:\n- {dir: a, pattern: '[a]*', replica: {path: /a}}".into(), "'dbs[1].pattern' is".into()));
    cases.push((String::new(), "nothing to archive: write 'dbs'".into()));
    for (text, why) in cases {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains(&why) && !error.contains("secret"), "{error}, not {why}");
    }
}
