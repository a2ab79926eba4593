//! The keys of a node's configuration.

use std::time::Duration;

use quorate_env::Cause;
use quorate_model::TokenHash;

use super::schema::{Key, Schema, Shown, Wrong};
use super::value::{Given, addresses, size, time};
use super::{Config, ConfigError, Durability, SecretSource, SqlOptions, Timing, tls};

impl Schema for Config {
    fn keys() -> Vec<Key<Self>> {
        let mut keys = node();
        keys.extend(secret());
        keys.push(admin_token());
        keys.push(
            Key::new(
                "members",
                "The nodes that found the cluster: from name to host:port, the same on all of them. Without members, \
                 the node runs alone.",
                |config: &mut Self, given| given.addresses().map(|members| config.members = members),
                |config| addresses(&config.members),
            )
            .example("{ a = \"10.0.0.1:7001\", b = \"10.0.0.2:7001\", c = \"10.0.0.3:7001\" }"),
        );
        keys.extend(tls::keys());
        keys.extend(timing().map(|key| key.within(|config: &Self| &config.timing, |config| &mut config.timing)));
        keys.extend(sql().map(|key| key.within(|config: &Self| &config.sql, |config| &mut config.sql)));
        keys
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.check()
    }
}

fn node() -> Vec<Key<Config>> {
    vec![
        Key::new(
            "data_dir",
            "The directory for all files of this node. Only one running node at a time can use it.",
            |config: &mut Config, given| given.path().map(|path| config.data_dir = path),
            |config| (&config.data_dir).into(),
        )
        .required(),
        Key::new(
            "name",
            "This node's name. If there are members, it must be one of them.",
            |config: &mut Config, given| given.text().map(|name| config.name = name),
            |config| config.name.as_str().into(),
        ),
        Key::new(
            "name_from_hostname",
            "Use the machine's host name, up to its first dot, as the node's name: for the pods of a StatefulSet.",
            |config: &mut Config, given| {
                if given.flag()? {
                    config.name = quorate_env::host_name().map_err(|error| Wrong::Failed(Cause::from(error)))?;
                }
                Ok(())
            },
            |_| Shown::Nothing,
        )
        .instead_of(&["name"])
        .example("true"),
        Key::new(
            "listen",
            "host:port on which to listen for other nodes and clients. Default: this node's address in the list of \
             members; for a node that runs alone, a free port of the loopback interface.",
            |config: &mut Config, given| given.text().map(|addr| config.listen = Some(addr)),
            |config| config.listen.clone().into(),
        )
        .example("\"0.0.0.0:7001\""),
        Key::new(
            "advertise",
            "host:port under which the other nodes reach this node. Default: its address in the list of members, or \
             the address on which it listens.",
            |config: &mut Config, given| given.text().map(|addr| config.advertise = Some(addr)),
            |config| config.advertise.clone().into(),
        )
        .example("\"10.0.0.1:7001\""),
        Key::new(
            "durability",
            "When a write is acknowledged. \"fsync\": when a majority has synced it to disk. \"os\": when the \
             operating systems of a majority have it; it then survives the end of processes, but not a power loss of \
             most machines at once. Fixed when the cluster is founded, and the same on all nodes.",
            |config: &mut Config, given| durability(given).map(|durability| config.durability = durability),
            |config| config.durability.name().into(),
        ),
        Key::new(
            "keep_log",
            "How much applied and durable log is kept for followers that lag.",
            |config: &mut Config, given| given.bytes().map(|bytes| config.keep_log_bytes = bytes),
            |config| size(config.keep_log_bytes),
        ),
        Key::new(
            "deadline",
            "How long a call of the embedded handle tries before it fails.",
            |config: &mut Config, given| given.time().map(|time| config.deadline = time),
            |config| time(config.deadline),
        ),
    ]
}

fn durability(given: Given<'_>) -> Result<Durability, Wrong> {
    let name = given.text()?;
    let known = Durability::ALL.into_iter().find(|durability| durability.name() == name);
    known.ok_or_else(|| Wrong::Invalid(format!("is '{name}': it can only be 'fsync' or 'os'")))
}

fn secret() -> [Key<Config>; 3] {
    [
        Key::new(
            "secret_file",
            "A file with the secret that all nodes and clients of the cluster share, at least 16 bytes. Default: a \
             node that runs alone draws a secret and keeps it in its data directory.",
            |config: &mut Config, given| given.path().map(|path| config.secret = SecretSource::File(path)),
            |config| if let SecretSource::File(path) = &config.secret { path.into() } else { Shown::Nothing },
        )
        .instead_of(&["secret_env", "secret"])
        .example("\"secret\""),
        Key::new(
            "secret_env",
            "The environment variable that holds the secret, in place of a file.",
            |config: &mut Config, given| given.text().map(|name| config.secret = SecretSource::Variable(name)),
            |config| {
                if let SecretSource::Variable(name) = &config.secret { name.as_str().into() } else { Shown::Nothing }
            },
        )
        .instead_of(&["secret_file", "secret"])
        .example("\"MY_SECRET\""),
        Key::new(
            "secret",
            "The secret itself, in place of a file. Everyone who can read the configuration can read it.",
            |config: &mut Config, given| given.text().map(|text| config.secret = SecretSource::Inline(text)),
            |config| if let SecretSource::Inline(_) = &config.secret { Shown::Secret } else { Shown::Nothing },
        )
        .instead_of(&["secret_file", "secret_env"])
        .example("\"...\""),
    ]
}

fn admin_token() -> Key<Config> {
    Key::new(
        "admin_token_hash",
        "The SHA-256, in hexadecimal, of a token for the user 'admin', whom the cluster gets while it has no users; \
         the same on all nodes. `quorate init` draws the token and shows it once. Without it, the doors are open \
         until there is a user.",
        |config: &mut Config, given| {
            let text = given.text()?;
            let wrong = || Wrong::Invalid("is not the SHA-256 of a token: 64 hexadecimal digits".to_owned());
            config.admin_token = Some(hash_from_hex(&text).ok_or_else(wrong)?);
            Ok(())
        },
        |config| config.admin_token.as_ref().map(hash_to_hex).into(),
    )
    .example("\"...\"")
}

fn hash_from_hex(text: &str) -> Option<TokenHash> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16)?.try_into().ok()).collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok().map(TokenHash::new)
}

fn hash_to_hex(hash: &TokenHash) -> String {
    hash.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn timing() -> [Key<Timing>; 5] {
    let key = |path, about, part_mut: fn(&mut Timing) -> &mut Duration, part: fn(&Timing) -> Duration| {
        let set = move |timing: &mut Timing, given: Given<'_>| given.time().map(|time| *part_mut(timing) = time);
        Key::new(path, about, set, move |timing| time(part(timing)))
    };
    [
        key(
            "timing.heartbeat",
            "The interval of the leader's heartbeats. heartbeat < election_min < election_max.",
            |timing| &mut timing.heartbeat,
            |timing| timing.heartbeat,
        ),
        key(
            "timing.election_min",
            "The shortest time without heartbeats after which a follower stands for election.",
            |timing| &mut timing.election_min,
            |timing| timing.election_min,
        ),
        key(
            "timing.election_max",
            "The longest such time; up to four times as long if the machine or the leader has been slow recently.",
            |timing| &mut timing.election_max,
            |timing| timing.election_max,
        ),
        key(
            "timing.silence",
            "How long a member must have been silent before a node with its name and a new data directory may replace \
             it. An archiver that was silent for a third of that is replaced by another node.",
            |timing| &mut timing.silence,
            |timing| timing.silence,
        ),
        key(
            "timing.status",
            "How often nodes ask each other for their status.",
            |timing| &mut timing.status,
            |timing| timing.status,
        ),
    ]
}

fn sql() -> [Key<SqlOptions>; 8] {
    let key = |path, about, part_mut: fn(&mut SqlOptions) -> &mut u32, part: fn(&SqlOptions) -> u32| {
        let set = move |sql: &mut SqlOptions, given: Given<'_>| {
            *part_mut(sql) = u32::try_from(given.bytes()?).map_err(|_| Wrong::Invalid("is too large".to_owned()))?;
            Ok(())
        };
        Key::new(path, about, set, move |sql| size(part(sql).into()))
    };
    [
        Key::new(
            "sql.readers",
            "The number of read-only connections, and so of queries that run at the same time.",
            |sql: &mut SqlOptions, given| {
                given.count().map(|count| sql.readers = usize::try_from(count).unwrap_or(usize::MAX))
            },
            |sql| u64::try_from(sql.readers).unwrap_or(u64::MAX).into(),
        ),
        key(
            "sql.reader_cache",
            "The page cache of each reader.",
            |sql| &mut sql.reader_cache_bytes,
            |sql| sql.reader_cache_bytes,
        ),
        key(
            "sql.writer_cache",
            "The page cache of the writer. Its sorts run in pieces of this size, which can't be interrupted.",
            |sql| &mut sql.writer_cache_bytes,
            |sql| sql.writer_cache_bytes,
        ),
        key(
            "sql.page_size",
            "Bytes of a page. Fixed when the cluster is founded, and the same on all nodes.",
            |sql| &mut sql.page_size,
            |sql| sql.page_size,
        ),
        Key::new(
            "sql.query_timeout",
            "How long a query may run, and a read transaction may last, whatever the caller asks for.",
            |sql: &mut SqlOptions, given| given.time().map(|time| sql.query_timeout = time),
            |sql| time(sql.query_timeout),
        ),
        Key::new(
            "sql.temp_bytes_per_query",
            "The most bytes of temporary files of one query, for example for sorts that do not fit into its page \
             cache.",
            |sql: &mut SqlOptions, given| given.bytes().map(|bytes| sql.temp_bytes_per_query = bytes),
            |sql| size(sql.temp_bytes_per_query),
        ),
        Key::new(
            "sql.temp_bytes",
            "The most bytes of temporary files of all queries together. The writer may use as many, plus twice the \
             size of the database.",
            |sql: &mut SqlOptions, given| given.bytes().map(|bytes| sql.temp_bytes = bytes),
            |sql| size(sql.temp_bytes),
        ),
        Key::new(
            "sql.slow_statement",
            "Statements that take this long are logged, without their values. 0 disables this.",
            |sql: &mut SqlOptions, given| given.time().map(|time| sql.slow_statement = time),
            |sql| time(sql.slow_statement),
        ),
    ]
}
