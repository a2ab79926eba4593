//! The keys of a node's configuration.

use std::time::Duration;

use super::schema::{Key, Schema, Shown, Wrong};
use super::value::{Given, addresses, size, time};
use super::{Config, ConfigError, Durability, SecretSource, SqlOptions, Timing};

impl Schema for Config {
    fn keys() -> Vec<Key<Self>> {
        let mut keys = node();
        keys.extend(secret());
        keys.push(
            Key::new(
                "members",
                "The nodes that found the cluster, from name to host:port, the same on each of them. None: the node \
                 runs alone.",
                |config: &mut Self, given| given.addresses().map(|members| config.members = members),
                |config| addresses(&config.members),
            )
            .example("{ a = \"10.0.0.1:7001\", b = \"10.0.0.2:7001\", c = \"10.0.0.3:7001\" }"),
        );
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
            "Everything of this node. Used by one running node at a time.",
            |config: &mut Config, given| given.path().map(|path| config.data_dir = path),
            |config| (&config.data_dir).into(),
        )
        .required(),
        Key::new(
            "name",
            "This node's name: one of the members, if there are any.",
            |config: &mut Config, given| given.text().map(|name| config.name = name),
            |config| config.name.as_str().into(),
        ),
        Key::new(
            "name_from_hostname",
            "Take the name of the machine, up to its first dot, as the node's name: for the pods of a StatefulSet.",
            |config: &mut Config, given| {
                if given.flag()? {
                    config.name = quorate_env::host_name().map_err(|error| Wrong::Invalid(error.to_string()))?;
                }
                Ok(())
            },
            |_| Shown::Nothing,
        )
        .instead_of(&["name"])
        .example("true"),
        Key::new(
            "listen",
            "host:port to listen on for other nodes and clients. Default: what the members say of this node; alone: a \
             free port of the loopback interface.",
            |config: &mut Config, given| given.text().map(|addr| config.listen = Some(addr)),
            |config| config.listen.clone().into(),
        )
        .example("\"0.0.0.0:7001\""),
        Key::new(
            "advertise",
            "host:port under which the others reach this node. Default: what the members say of it, or what it \
             listens on.",
            |config: &mut Config, given| given.text().map(|addr| config.advertise = Some(addr)),
            |config| config.advertise.clone().into(),
        )
        .example("\"10.0.0.1:7001\""),
        Key::new(
            "durability",
            "When a write counts as done: \"fsync\", when it was synced to the disks of a majority; \"os\", when the \
             operating systems of a majority have it: it survives the end of processes, but not a loss of power of \
             most machines at once. Fixed when the cluster is founded, the same on all nodes.",
            |config: &mut Config, given| durability(given).map(|durability| config.durability = durability),
            |config| config.durability.name().into(),
        ),
        Key::new(
            "keep_log",
            "Applied and durable log that is kept for followers that lag.",
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
            "A file with what all nodes and clients of the cluster know, at least 16 bytes. None: a node that runs \
             alone draws a secret and keeps it in its data directory.",
            |config: &mut Config, given| given.path().map(|path| config.secret = SecretSource::File(path)),
            |config| if let SecretSource::File(path) = &config.secret { path.into() } else { Shown::Nothing },
        )
        .instead_of(&["secret_env", "secret"])
        .example("\"secret\""),
        Key::new(
            "secret_env",
            "The variable of the environment that holds the secret, in place of a file.",
            |config: &mut Config, given| given.text().map(|name| config.secret = SecretSource::Variable(name)),
            |config| {
                if let SecretSource::Variable(name) = &config.secret { name.as_str().into() } else { Shown::Nothing }
            },
        )
        .instead_of(&["secret_file", "secret"])
        .example("\"MY_SECRET\""),
        Key::new(
            "secret",
            "The secret itself, in place of a file. Whoever reads the configuration has it.",
            |config: &mut Config, given| given.text().map(|text| config.secret = SecretSource::Inline(text)),
            |config| if let SecretSource::Inline(_) = &config.secret { Shown::Secret } else { Shown::Nothing },
        )
        .instead_of(&["secret_file", "secret_env"])
        .example("\"...\""),
    ]
}

fn timing() -> [Key<Timing>; 5] {
    let key = |path, about, part_mut: fn(&mut Timing) -> &mut Duration, part: fn(&Timing) -> Duration| {
        let set = move |timing: &mut Timing, given: Given<'_>| given.time().map(|time| *part_mut(timing) = time);
        Key::new(path, about, set, move |timing| time(part(timing)))
    };
    [
        key(
            "timing.heartbeat",
            "How often the leader shows that it lives. heartbeat < election_min < election_max.",
            |timing| &mut timing.heartbeat,
            |timing| timing.heartbeat,
        ),
        key(
            "timing.election_min",
            "A follower that hears nothing for so long, or a little longer, stands for election.",
            |timing| &mut timing.election_min,
            |timing| timing.election_min,
        ),
        key(
            "timing.election_max",
            "The longest that it waits; up to four times as long where the machine or the leader has been slow lately.",
            |timing| &mut timing.election_max,
            |timing| timing.election_max,
        ),
        key(
            "timing.silence",
            "A lost data directory may come back as a new member when nothing was heard of it for so long.",
            |timing| &mut timing.silence,
            |timing| timing.silence,
        ),
        key(
            "timing.status",
            "How often nodes ask each other how they are.",
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
            "Read-only connections: queries that run at the same time.",
            |sql: &mut SqlOptions, given| {
                given.count().map(|count| sql.readers = usize::try_from(count).unwrap_or(usize::MAX))
            },
            |sql| u64::try_from(sql.readers).unwrap_or(u64::MAX).into(),
        ),
        key(
            "sql.reader_cache",
            "Page cache of each of them.",
            |sql| &mut sql.reader_cache_bytes,
            |sql| sql.reader_cache_bytes,
        ),
        key(
            "sql.writer_cache",
            "Page cache of the writer, and what it sorts in one step that nothing interrupts.",
            |sql| &mut sql.writer_cache_bytes,
            |sql| sql.writer_cache_bytes,
        ),
        key(
            "sql.page_size",
            "Bytes of a page: fixed when the cluster is founded, the same on all nodes.",
            |sql| &mut sql.page_size,
            |sql| sql.page_size,
        ),
        Key::new(
            "sql.query_timeout",
            "How long a query may run, and a read transaction last, whatever its caller asks for.",
            |sql: &mut SqlOptions, given| given.time().map(|time| sql.query_timeout = time),
            |sql| time(sql.query_timeout),
        ),
        Key::new(
            "sql.temp_bytes_per_query",
            "Temporary files of one query: for sorts and the like that do not fit into its page cache.",
            |sql: &mut SqlOptions, given| given.bytes().map(|bytes| sql.temp_bytes_per_query = bytes),
            |sql| size(sql.temp_bytes_per_query),
        ),
        Key::new(
            "sql.temp_bytes",
            "Temporary files of all queries. The writer may have as many, and twice the size of the database besides.",
            |sql: &mut SqlOptions, given| given.bytes().map(|bytes| sql.temp_bytes = bytes),
            |sql| size(sql.temp_bytes),
        ),
        Key::new(
            "sql.slow_statement",
            "Statements that take so long are told in the log, without their values. 0: none.",
            |sql: &mut SqlOptions, given| given.time().map(|time| sql.slow_statement = time),
            |sql| time(sql.slow_statement),
        ),
    ]
}
