//! TLS of a node and of a client: which files they use, and the network that uses them.

use std::path::PathBuf;

use quorate_env::{Cause, Env};
use quorate_tls::{IdentityFiles, Keychain, TlsError, TlsFiles, TlsNet};
use quorate_wire::tls_only_frame;

use super::schema::{Key, Shown};
use super::value::Given;
use super::{Ca, Config, ConfigError, Wrong};

/// TLS of a node. All of its connections use it: those of other nodes, of clients, and those to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsConfig {
    /// The file with the node's certificate, and with those between it and its CA, as PEM. It must cover the hosts of
    /// the node's addresses, and be meant for servers and for clients.
    pub certificate: PathBuf,
    /// The file with the private key of the certificate, as PEM.
    pub key: PathBuf,
    /// The CAs that issue the certificates of all nodes.
    pub ca: Ca,
}

impl TlsConfig {
    /// Returns the TLS of a node with these files.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>, ca: Ca) -> Self {
        Self { certificate: certificate.into(), key: key.into(), ca }
    }

    /// Returns its files.
    #[doc(hidden)]
    pub fn files(&self) -> TlsFiles {
        let (certificate, key) = (self.certificate.clone(), self.key.clone());
        TlsFiles { ca: self.ca.clone(), identity: Some(IdentityFiles { certificate, key }) }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let named = [("tls.certificate", &self.certificate), ("tls.key", &self.key)];
        let missing = named.into_iter().find(|(_, path)| path.as_os_str().is_empty());
        missing.map_or(Ok(()), |(name, _)| Err(ConfigError::Missing(name)))
    }
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self::new("", "", Ca::System)
    }
}

/// TLS of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientTls {
    /// The CAs that issue the certificates of the nodes.
    pub ca: Ca,
    /// The name that the certificates of all nodes cover, if that is not the host of the address by which each is
    /// called.
    pub server_name: Option<String>,
}

impl ClientTls {
    /// Returns the TLS of a client that trusts these CAs.
    pub fn new(ca: Ca) -> Self {
        Self { ca, server_name: None }
    }

    /// Sets [`ClientTls::server_name`].
    #[must_use]
    pub fn with_server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }

    /// Returns `env` with a network that uses TLS. Blocks.
    pub(crate) fn env(&self, env: &Env) -> Result<Env, ConfigError> {
        let keychain = Keychain::open(env, TlsFiles { ca: self.ca.clone(), identity: None }).map_err(failed)?;
        Ok(TlsNet::new(env, keychain).with_server_name(self.server_name.clone()).env(env))
    }
}

impl Config {
    /// Returns the network of the node on top of that of `env`, if it uses TLS. Blocks.
    pub(crate) fn tls_net(&self, env: &Env) -> Result<Option<TlsNet>, ConfigError> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let keychain = Keychain::open(env, tls.files()).map_err(failed)?;
        Ok(Some(TlsNet::new(env, keychain).with_answer_to_plain(&tls_only_frame())))
    }
}

/// Returns `env` with a network, if there is one.
pub(crate) fn over(net: Option<TlsNet>, env: &Env) -> Env {
    net.map_or_else(|| env.clone(), |net| net.env(env))
}

fn failed(error: TlsError) -> ConfigError {
    ConfigError::Tls(Cause::from(error))
}

pub(super) fn keys() -> [Key<Config>; 3] {
    let path = |path, about, example, part: fn(&mut TlsConfig) -> &mut PathBuf, get: fn(&TlsConfig) -> &PathBuf| {
        let set = move |config: &mut Config, given: Given<'_>| {
            *part(config.tls.get_or_insert_default()) = given.path()?;
            Ok(())
        };
        let shown = move |config: &Config| {
            let path = config.tls.as_ref().map(get).filter(|path| !path.as_os_str().is_empty());
            path.map_or(Shown::Nothing, Shown::from)
        };
        Key::new(path, about, set, shown).example(example)
    };
    [
        path(
            "tls.certificate",
            "A file with this node's certificate, as PEM, and with those between it and its CA. It must cover the \
             hosts of the node's addresses, and be meant for servers and for clients. Without it, TLS is off.",
            "\"node.crt\"",
            |tls| &mut tls.certificate,
            |tls| &tls.certificate,
        ),
        path(
            "tls.key",
            "A file with the private key of the certificate, as PEM.",
            "\"node.key\"",
            |tls| &mut tls.key,
            |tls| &tls.key,
        ),
        Key::new(
            "tls.ca",
            "A file with the CAs that issue the certificates of all nodes, as PEM. Default: \"system\", the CAs that \
             this machine trusts.",
            |config: &mut Config, given| {
                config.tls.get_or_insert_default().ca = ca(given)?;
                Ok(())
            },
            |config| match config.tls.as_ref().map(|tls| &tls.ca) {
                Some(Ca::File(path)) => path.into(),
                _ => Shown::Nothing,
            },
        )
        .example("\"ca.crt\""),
    ]
}

/// The name of the CAs of the machine.
const SYSTEM: &str = "system";

fn ca(given: Given<'_>) -> Result<Ca, Wrong> {
    if given.text()? == SYSTEM { Ok(Ca::System) } else { given.path().map(Ca::File) }
}
