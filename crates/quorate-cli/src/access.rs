//! The addresses that a command connects to, the secret or the user that it authenticates with, and the CA that it
//! trusts.
//!
//! A user takes the place of the secret (`login`). A profile names all of them at once (`profile`).
//!
//! The secret comes from the first of these that applies: `--secret-file`; `--config`; the variable `QUORATE_SECRET`;
//! the data directory, if its cluster contains the node; the cluster on this machine that `quorate dev` registered for
//! the address. The CA comes from `--ca`, `--config`, or the variable `QUORATE_TLS_CA`; without one, the connections
//! are in the clear.

use std::path::Path;

use quorate::users::Credentials;
use quorate::{Ca, ClientConfig, ClientTls, Config, SecretSource};

use crate::cluster_file::ClusterFile;
use crate::dev::registry;
use crate::error::{Error, Result};
use crate::login;
use crate::options::AccessArgs;
use crate::profile::Profile;
use crate::settings::{self, secret_file};

/// The environment variable that may hold the secret.
const VARIABLE: &str = "QUORATE_SECRET";

/// The environment variable that may hold the file with the CA.
const CA_VARIABLE: &str = "QUORATE_TLS_CA";
/// In place of a file, the CAs that this machine trusts.
const SYSTEM_CA: &str = "system";

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Access {
    /// The one node that the user named, or all nodes of the cluster.
    pub addrs: Vec<String>,
    /// The secret that the cluster's members and clients share. It is not used if there is a login.
    pub secret: SecretSource,
    /// The user to log in as.
    pub login: Option<Credentials>,
    /// TLS of the connections, if the cluster uses it.
    pub tls: Option<ClientTls>,
    /// Whether only that one node may answer, and no other in its place.
    pub pinned: bool,
}

impl Access {
    /// Finds the cluster that the options name.
    pub fn find(args: &AccessArgs) -> Result<Self> {
        let profile = Profile::find(args)?;
        let login = login::find(args, profile.as_ref())?;
        if let Some(profile) = profile {
            return Self::of_profile(profile, login, args);
        }
        if let Some(file) = &args.config {
            return Ok(Self { login, ..Self::configured(file, args)? });
        }
        let given = given_secret(args).or_else(|| login.as_ref().map(|_| SecretSource::Kept));
        if let Some(node) = &args.node {
            let secret = given.map_or_else(|| secret_of(node, &args.data_dir), Ok)?;
            let tls = given_tls(args.ca.as_deref());
            return Ok(Self { addrs: vec![node.clone()], secret, login, tls, pinned: true });
        }
        let Some(file) = ClusterFile::read(&args.data_dir)? else {
            let dir = args.data_dir.display();
            return Err(Error::new(format!(
                "no cluster runs in {dir}: start one with `quorate dev`, or name a node with --node"
            )));
        };
        let secret = given.unwrap_or_else(|| SecretSource::File(secret_file(&args.data_dir)));
        // `quorate dev` uses no TLS, whatever the variable says.
        let tls = args.ca.as_deref().map(of_ca);
        Ok(Self { addrs: file.addrs(), secret, login, tls, pinned: false })
    }

    fn of_profile(profile: Profile, login: Option<Credentials>, args: &AccessArgs) -> Result<Self> {
        let file = args.secret_file.clone().or(profile.secret_file).map(SecretSource::File);
        let without = || Error::new("the profile has neither a user, a token_file nor a secret_file: give it one");
        let secret = match file.or_else(|| given_secret(args)) {
            Some(secret) => secret,
            None => login.as_ref().map(|_| SecretSource::Kept).ok_or_else(without)?,
        };
        let tls = given_tls(args.ca.as_deref().or(profile.ca.as_deref()));
        Ok(Self { addrs: profile.nodes, secret, login, tls, pinned: false })
    }

    /// Returns the same as a configuration of the client library.
    pub fn remote(&self) -> ClientConfig {
        let mut config = ClientConfig::new(self.addrs.clone(), self.secret.clone()).with_pinned(self.pinned);
        config.tls.clone_from(&self.tls);
        config.login.clone_from(&self.login);
        config
    }

    /// Returns the same for one node alone.
    pub fn remote_at(&self, addr: &str) -> ClientConfig {
        let only = Self { addrs: vec![addr.to_owned()], pinned: true, ..self.clone() };
        only.remote()
    }

    /// Returns the cluster of the node that `file` configures.
    fn configured(file: &Path, args: &AccessArgs) -> Result<Self> {
        let access = Self::of_config(&settings::load(file)?.node, args.secret_file.as_deref(), args.ca.as_deref());
        if let Some(node) = &args.node {
            return Ok(Self { addrs: vec![node.clone()], pinned: true, ..access });
        }
        if access.addrs.is_empty() {
            let file = file.display();
            return Err(Error::new(format!("{file} does not say where the node listens: name the node with --node")));
        }
        Ok(access)
    }

    /// Returns all nodes of the cluster that `config` belongs to, with no address if the configuration names none.
    pub fn of_config(config: &Config, given: Option<&Path>, ca: Option<&Path>) -> Self {
        let secret = match (given, &config.secret) {
            (Some(file), _) => SecretSource::File(file.to_owned()),
            (None, SecretSource::Kept) => SecretSource::File(secret_file(&config.data_dir)),
            (None, secret) => secret.clone(),
        };
        let own = config.advertise.as_ref().or(config.listen.as_ref());
        let addrs = config.members.values().chain(own).cloned().collect();
        let tls = ca.map(of_ca).or_else(|| config.tls.as_ref().map(|tls| ClientTls::new(tls.ca.clone())));
        Self { addrs, secret, login: None, tls, pinned: false }
    }
}

fn given_secret(args: &AccessArgs) -> Option<SecretSource> {
    let file = args.secret_file.clone().map(SecretSource::File);
    file.or_else(|| std::env::var_os(VARIABLE).map(|_| SecretSource::Variable(VARIABLE.to_owned())))
}

fn given_tls(ca: Option<&Path>) -> Option<ClientTls> {
    ca.map(of_ca).or_else(|| std::env::var_os(CA_VARIABLE).map(|path| of_ca(Path::new(&path))))
}

fn of_ca(path: &Path) -> ClientTls {
    ClientTls::new(if path == Path::new(SYSTEM_CA) { Ca::System } else { Ca::File(path.to_owned()) })
}

/// Returns the secret of the cluster on this machine that the node belongs to.
fn secret_of(node: &str, data_dir: &Path) -> Result<SecretSource> {
    // Ignore a damaged cluster.json: the user named a node, not this directory.
    let here = ClusterFile::read(data_dir).ok().flatten();
    if here.is_some_and(|file| file.nodes.iter().any(|known| known.peer_addr == node)) {
        return Ok(SecretSource::File(secret_file(data_dir)));
    }
    registry::find(node).map(|dir| SecretSource::File(secret_file(&dir))).ok_or_else(|| {
        let ways =
            format!("give --user, --token-file, --secret-file, {VARIABLE}, or the --data-dir of its `quorate dev`");
        Error::new(format!("the secret of {node} is not known here: {ways}"))
    })
}
