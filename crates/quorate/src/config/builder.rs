//! The setters of a configuration: each returns the configuration with one value changed, so that calls can be chained.

use std::path::PathBuf;
use std::time::Duration;

use quorate_consensus::{Durability, Timing};
use quorate_model::TokenHash;
use quorate_sql::extensions::Extensions;

use super::{Config, SecretSource, SqlOptions, TlsConfig};
use crate::archive::{Archive, FirstState};

/// Each setter sets the field of its name.
impl Config {
    /// Sets [`Config::data_dir`].
    #[must_use]
    pub fn with_data_dir(self, data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), ..self }
    }

    /// Sets [`Config::name`].
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets [`Config::listen`].
    #[must_use]
    pub fn with_listen(self, addr: impl Into<String>) -> Self {
        Self { listen: Some(addr.into()), ..self }
    }

    /// Sets [`Config::advertise`].
    #[must_use]
    pub fn with_advertise(self, addr: impl Into<String>) -> Self {
        Self { advertise: Some(addr.into()), ..self }
    }

    /// Sets [`Config::members`]: names with their `host:port`.
    #[must_use]
    pub fn with_members<N: Into<String>, A: Into<String>>(self, members: impl IntoIterator<Item = (N, A)>) -> Self {
        let members = members.into_iter().map(|(name, addr)| (name.into(), addr.into())).collect();
        Self { members, ..self }
    }

    /// Sets [`Config::secret`].
    #[must_use]
    pub fn with_secret(self, secret: SecretSource) -> Self {
        Self { secret, ..self }
    }

    /// Sets [`Config::tls`].
    #[must_use]
    pub fn with_tls(self, tls: TlsConfig) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Sets [`Config::admin_token`].
    #[must_use]
    pub fn with_admin_token(self, hash: TokenHash) -> Self {
        Self { admin_token: Some(hash), ..self }
    }

    /// Sets [`Config::timing`].
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Sets [`Config::durability`].
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Sets [`Config::keep_log_bytes`].
    #[must_use]
    pub fn with_keep_log_bytes(self, keep_log_bytes: u64) -> Self {
        Self { keep_log_bytes, ..self }
    }

    /// Sets [`Config::deadline`].
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets [`Config::sql`].
    #[must_use]
    pub fn with_sql(self, sql: SqlOptions) -> Self {
        Self { sql, ..self }
    }

    /// Sets [`Config::archive`].
    #[must_use]
    pub fn with_archive(self, archive: Archive) -> Self {
        Self { archive: Some(archive), ..self }
    }

    /// Sets [`Config::first_state`].
    #[must_use]
    pub fn with_first_state(self, first_state: FirstState) -> Self {
        Self { first_state: Some(first_state), ..self }
    }

    /// Sets [`Config::extensions`].
    #[must_use]
    pub fn with_extensions(self, extensions: Extensions) -> Self {
        Self { extensions, ..self }
    }
}

/// Each setter sets the field of its name.
impl SqlOptions {
    /// Sets [`SqlOptions::readers`].
    #[must_use]
    pub fn with_readers(self, readers: usize) -> Self {
        Self { readers, ..self }
    }

    /// Sets [`SqlOptions::reader_cache_bytes`].
    #[must_use]
    pub fn with_reader_cache_bytes(self, reader_cache_bytes: u32) -> Self {
        Self { reader_cache_bytes, ..self }
    }

    /// Sets [`SqlOptions::writer_cache_bytes`].
    #[must_use]
    pub fn with_writer_cache_bytes(self, writer_cache_bytes: u32) -> Self {
        Self { writer_cache_bytes, ..self }
    }

    /// Sets [`SqlOptions::page_size`].
    #[must_use]
    pub fn with_page_size(self, page_size: u32) -> Self {
        Self { page_size, ..self }
    }

    /// Sets [`SqlOptions::query_timeout`].
    #[must_use]
    pub fn with_query_timeout(self, query_timeout: Duration) -> Self {
        Self { query_timeout, ..self }
    }

    /// Sets [`SqlOptions::temp_bytes_per_query`].
    #[must_use]
    pub fn with_temp_bytes_per_query(self, temp_bytes_per_query: u64) -> Self {
        Self { temp_bytes_per_query, ..self }
    }

    /// Sets [`SqlOptions::temp_bytes`].
    #[must_use]
    pub fn with_temp_bytes(self, temp_bytes: u64) -> Self {
        Self { temp_bytes, ..self }
    }

    /// Sets [`SqlOptions::slow_statement`].
    #[must_use]
    pub fn with_slow_statement(self, slow_statement: Duration) -> Self {
        Self { slow_statement, ..self }
    }
}
