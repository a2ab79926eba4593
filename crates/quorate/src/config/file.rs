//! The keys of a configuration file (`docs/configuration.md`).

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::{Config, ConfigError, Durability, SecretSource, SqlOptions, Timing};

/// Reads a text, without checking whether the parts fit together.
pub(super) fn read(text: &str) -> Result<Config, ConfigError> {
    let mut keys = Reader::parse(text)?;
    let default = Config::default();
    let config = Config {
        data_dir: keys.text("data_dir")?.map(PathBuf::from).ok_or(ConfigError::Missing("data_dir"))?,
        name: keys.text("name")?.unwrap_or(default.name),
        listen: keys.text("listen")?,
        advertise: keys.text("advertise")?,
        members: keys.table("members")?.texts()?.into_iter().collect(),
        secret: secret(&mut keys)?,
        timing: timing(keys.table("timing")?)?,
        durability: durability(keys.text("durability")?)?,
        keep_log_bytes: keys.bytes("keep_log")?.unwrap_or(default.keep_log_bytes),
        deadline: keys.time("deadline")?.unwrap_or(default.deadline),
        sql: sql(keys.table("sql")?)?,
    };
    keys.finish()?;
    Ok(config)
}

fn secret(keys: &mut Reader) -> Result<SecretSource, ConfigError> {
    let (inline, file, variable) = (keys.text("secret")?, keys.text("secret_file")?, keys.text("secret_env")?);
    match (inline, file, variable) {
        (None, None, None) => Ok(SecretSource::Kept),
        (Some(text), None, None) => Ok(SecretSource::Inline(text)),
        (None, Some(path), None) => Ok(SecretSource::File(path.into())),
        (None, None, Some(name)) => Ok(SecretSource::Variable(name)),
        _ => Err(ConfigError::Invalid("set one of 'secret', 'secret_file' and 'secret_env'".to_owned())),
    }
}

fn timing(mut keys: Reader) -> Result<Timing, ConfigError> {
    let default = Timing::default();
    let mut time = |key: &'static str, or: Duration| Ok::<_, ConfigError>(keys.time(key)?.unwrap_or(or));
    let timing = Timing {
        heartbeat: time("heartbeat", default.heartbeat)?,
        election_min: time("election_min", default.election_min)?,
        election_max: time("election_max", default.election_max)?,
        silence: time("silence", default.silence)?,
        status: time("status", default.status)?,
    };
    keys.finish()?;
    Ok(timing)
}

fn durability(text: Option<String>) -> Result<Durability, ConfigError> {
    match text.as_deref() {
        None | Some("fsync") => Ok(Durability::Fsync),
        Some(other) => Err(ConfigError::Invalid(format!("'durability' is '{other}': it can only be 'fsync'"))),
    }
}

fn sql(mut keys: Reader) -> Result<SqlOptions, ConfigError> {
    let default = SqlOptions::default();
    let small = |key: &'static str, value: Option<u64>, or: u32| match value.map(u32::try_from) {
        None => Ok(or),
        Some(Ok(value)) => Ok(value),
        Some(Err(_)) => Err(ConfigError::Invalid(format!("'sql.{key}' is too large"))),
    };
    let sql = SqlOptions {
        readers: keys.count("readers")?.map_or(default.readers, |count| usize::try_from(count).unwrap_or(usize::MAX)),
        reader_cache_bytes: small("reader_cache", keys.bytes("reader_cache")?, default.reader_cache_bytes)?,
        writer_cache_bytes: small("writer_cache", keys.bytes("writer_cache")?, default.writer_cache_bytes)?,
        page_size: small("page_size", keys.bytes("page_size")?, default.page_size)?,
    };
    keys.finish()?;
    Ok(sql)
}
