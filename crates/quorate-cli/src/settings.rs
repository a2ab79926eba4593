//! The configuration of a server: read from its file and the environment, and written for new clusters.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use quorate::config::{Sources, template};
use quorate::users::TokenHash;
use quorate::{Config, SecretSource, config::ConfigError};
use quorate_env::Rng;
use quorate_server::ServerConfig;

use crate::error::{Context as _, Error, Result};
use crate::login;

mod certificates;

pub use certificates::{CA_CERTIFICATE, CA_KEY};

/// The number of random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// The name of the secret's file, next to the configurations.
const SECRET: &str = "secret";
/// The prefix of the names of variables that are read as configuration.
pub const VARIABLES: &str = "QUORATE_";

/// Returns the sources of a configuration: the file, if one is given, and the environment.
pub fn sources(file: Option<&Path>) -> Result<Sources> {
    let sources = file.map_or_else(|| Ok(Sources::new()), |file| Sources::new().file(file));
    let sources = sources.context(|| "the configuration")?;
    let of_clients = |name: &OsString| login::VARIABLES.iter().any(|variable| name == variable);
    Ok(sources.variables(std::env::vars_os().filter(|(name, _)| !of_clients(name))))
}

/// Loads the configuration file of a server, and ignores the environment.
pub fn load(file: &Path) -> Result<ServerConfig> {
    read(file).context(|| "the configuration")
}

/// Does the same, and returns the original error.
pub fn read(file: &Path) -> Result<ServerConfig, ConfigError> {
    Sources::new().file(file).and_then(|sources| sources.read())
}

/// A node of a new cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Its name.
    pub name: String,
    /// Its address for peers and clients.
    pub addr: String,
    /// The address of its HTTP server.
    pub http: String,
    /// Whether that serves SQL.
    pub sql: bool,
    /// The address of its port for the clients of Redis, if it has one.
    pub redis: Option<String>,
    /// Its data directory, relative to the directory of its configuration.
    pub data_dir: PathBuf,
}

/// Returns the file with the configuration of a node.
pub fn file_of(dir: &Path, stem: &str) -> PathBuf {
    dir.join(format!("{stem}.toml"))
}

/// Returns the file with the secret.
pub fn secret_file(dir: &Path) -> PathBuf {
    dir.join(SECRET)
}

/// What protects a new cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Protection {
    /// Whether its connections use TLS.
    pub tls: bool,
    /// The hash of the token of its first administrator; `None` for doors that are open.
    pub admin: Option<TokenHash>,
}

/// Creates a secret and a commented configuration for each node, and, with TLS, a CA and certificates. `stem` turns the
/// name of a node into that of its file. The file of the first node is written last: if it exists, all of them do.
/// Existing files are not overwritten.
pub fn found(
    dir: &Path,
    nodes: &[NewNode],
    protection: Protection,
    stem: impl Fn(&str) -> String,
) -> Result<Vec<PathBuf>> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.context(|| format!("cannot create the directory {}", dir.display()))?;
    let files: Vec<PathBuf> = nodes.iter().map(|node| file_of(dir, &stem(&node.name))).collect();
    if let Some(there) = files.iter().find(|file| file.exists()) {
        return Err(exists(there));
    }
    draw_secret(&secret_file(dir))?;
    if protection.tls {
        certificates::issue(dir, nodes)?;
    }
    for (node, file) in nodes.iter().zip(&files).rev() {
        let mut config = server(node, nodes);
        config.node.tls = protection.tls.then(|| certificates::tls_of(node));
        config.node.admin_token = protection.admin;
        config.insecure = config.exposed().is_some();
        let mut text = template(&config);
        text.insert_str(
            0,
            &format!(
                "# Node {} of {}. To start it: `quorate serve --config` with this file.\n\n",
                node.name,
                nodes.len()
            ),
        );
        write_new(file, &text)?;
    }
    Ok(files)
}

fn server(node: &NewNode, nodes: &[NewNode]) -> ServerConfig {
    let node_config = Config::single(&node.data_dir)
        .with_name(&node.name)
        .with_members(nodes.iter().map(|node| (&node.name, &node.addr)))
        .with_secret(SecretSource::File(SECRET.into()));
    let (http_listen, http_sql) = (Some(node.http.clone()), node.sql);
    let redis_listen = node.redis.clone();
    ServerConfig { node: node_config, http_listen, http_sql, redis_listen, ..ServerConfig::default() }
}

/// Creates the secret. An existing one is kept: an earlier attempt may have failed after writing it.
fn draw_secret(file: &Path) -> Result<()> {
    if file.exists() {
        return Ok(());
    }
    let mut secret = [0; SECRET_BYTES];
    Rng::from_os().fill(&mut secret);
    let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    write_new(file, &format!("{secret}\n"))
}

/// Writes a file that only its owner may read.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match file.and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path)),
        written => written.context(|| format!("cannot write {}", path.display())),
    }
}

fn exists(path: &Path) -> Error {
    Error::new(format!("{} already exists: name another directory, or remove it if it is not needed", path.display()))
}
