//! The certificates of a process, read again when their files change.
//!
//! A new connection looks at the files if the last look was [`CHECK_EVERY`] ago or longer. Connections that are open
//! keep what they were made with.
//!
//! Invariant: if the files can't be used, that is logged once, and the certificates that were read before stay in
//! force.

use std::fmt;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use quorate_env::{Cause, Env, Instant, lock, unpoisoned};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::UnixTime;
use rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::{DAY_SECONDS, TlsError};
use crate::files::{Contents, Identity, TlsFiles};
use crate::inspect;
use crate::names::AnyName;

/// How often the files are looked at, at most; and, while connections are made, at least.
pub const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A certificate that ends within this time is worth a warning.
pub const ENDS_SOON: Duration = Duration::from_secs(30 * DAY_SECONDS);

/// The certificates of a process. Cheap to clone; all clones share the certificates that were read last.
#[derive(Clone)]
pub struct Keychain(Arc<Inner>);

struct Inner {
    env: Env,
    files: TlsFiles,
    current: RwLock<Arc<Configs>>,
    seen: Mutex<Seen>,
}

/// What the last look has found.
struct Seen {
    at: Instant,
    contents: Contents,
    /// Why the files could not be read; logged already.
    unreadable: Option<TlsError>,
}

/// The configurations of both sides of a connection.
pub(crate) struct Configs {
    pub client: Arc<ClientConfig>,
    /// For connections to this process itself.
    pub own: Arc<ClientConfig>,
    /// For connections of nodes and their clients: a certificate of the other end is asked for, and verified if it has
    /// one. `None` without a certificate of this end.
    pub for_nodes: Option<Arc<ServerConfig>>,
    /// For connections of others, which are not asked for a certificate.
    pub for_others: Option<Arc<ServerConfig>>,
}

impl Keychain {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    ///
    /// Returns a [`TlsError`] that names the file that can't be used.
    pub fn open(env: &Env, files: TlsFiles) -> Result<Self, TlsError> {
        let contents = files.read(env)?;
        let configs = Configs::new(env, &files, &contents)?;
        let seen = Seen { at: Instant::now(), contents, unreadable: None };
        let inner = Inner { env: env.clone(), files, current: RwLock::new(Arc::new(configs)), seen: Mutex::new(seen) };
        Ok(Self(Arc::new(inner)))
    }

    /// Returns what is in force, after a look at the files if one is due.
    pub(crate) async fn fresh(&self) -> Arc<Configs> {
        if self.is_due() {
            let keychain = self.clone();
            // There is no answer if the process is ending.
            let _ = self.0.env.blocking(move || keychain.look()).await;
        }
        let current = unpoisoned(self.0.current.read());
        Arc::clone(&current)
    }

    /// Returns whether the caller must look at the files.
    fn is_due(&self) -> bool {
        let (mut seen, now) = (lock(&self.0.seen), Instant::now());
        let is_due = now.saturating_duration_since(seen.at) >= CHECK_EVERY;
        if is_due {
            seen.at = now;
        }
        is_due
    }

    /// Looks at the files, and uses what is new in them. Blocks.
    pub(crate) fn look(&self) {
        let Inner { env, files, current, seen } = &*self.0;
        let contents = match files.read(env) {
            Ok(contents) => contents,
            Err(error) => {
                let mut seen = lock(seen);
                if seen.unreadable.as_ref() != Some(&error) {
                    warn_of(&error);
                    seen.unreadable = Some(error);
                }
                return;
            }
        };
        let is_new = {
            let mut seen = lock(seen);
            seen.unreadable = None;
            let is_new = seen.contents != contents;
            seen.contents = contents.clone();
            is_new
        };
        if !is_new {
            return;
        }
        match Configs::new(env, files, &contents) {
            Ok(configs) => {
                *unpoisoned(current.write()) = Arc::new(configs);
                tracing::info!(event = "certificates_read", "new certificates are in force for new connections");
            }
            Err(error) => warn_of(&error),
        }
    }
}

fn warn_of(error: &TlsError) {
    tracing::warn!(event = "certificates_bad", %error, "new certificates can't be used: the former ones stay in force");
}

impl Configs {
    fn new(env: &Env, files: &TlsFiles, contents: &Contents) -> Result<Self, TlsError> {
        let roots = Arc::new(files.roots(contents)?);
        let identity = files.identity(contents)?;
        if let Some((chain, _)) = &identity {
            warn_of_end(env, &roots, chain);
        }
        let maker = Maker { files, clock: Arc::new(Clock(env.clone())), roots };
        let (client, own) = (maker.client(identity.as_ref(), false)?, maker.client(identity.as_ref(), true)?);
        let (for_nodes, for_others) = match &identity {
            None => (None, None),
            Some(identity) => {
                let for_nodes = maker.server(maker.verifier()?, identity)?;
                (Some(for_nodes), Some(maker.server(Arc::new(NoClientAuth), identity)?))
            }
        };
        Ok(Self { client, own, for_nodes, for_others })
    }
}

/// Warns if the certificate of this end has expired or does so soon.
fn warn_of_end(env: &Env, roots: &Arc<RootCertStore>, chain: &[rustls::pki_types::CertificateDer<'static>]) {
    let now = env.unix_nanos() / 1_000_000_000;
    let Some(end) = inspect::end_of(roots, chain) else { return };
    if end <= now {
        tracing::error!(event = "certificate_expired", "the certificate of this node has expired: renew it");
    } else if end - now <= ENDS_SOON.as_secs() {
        let days = (end - now) / DAY_SECONDS;
        tracing::warn!(event = "certificate_ends", days, "the certificate of this node expires soon: renew it");
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Makes configurations from the same files.
struct Maker<'a> {
    files: &'a TlsFiles,
    clock: Arc<Clock>,
    roots: Arc<RootCertStore>,
}

impl Maker<'_> {
    fn client(&self, identity: Option<&Identity>, has_any_name: bool) -> Result<Arc<ClientConfig>, TlsError> {
        let clock = Arc::clone(&self.clock);
        let builder = ClientConfig::builder_with_details(provider(), clock).with_safe_default_protocol_versions();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&self.roots), provider()).build();
        let verifier = verifier.map_err(|error| TlsError::Roots(Cause::from(error)))?;
        let builder = builder.map_err(|error| self.unusable(error))?;
        let builder = if has_any_name {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(verifier)))
        } else {
            builder.with_webpki_verifier(verifier)
        };
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let config = builder.with_client_auth_cert(chain.clone(), key.clone_key());
                config.map_err(|error| self.unusable(error))?
            }
        };
        config.resumption = Resumption::disabled();
        config.require_ems = true;
        Ok(Arc::new(config))
    }

    /// Returns the verifier of certificates that connecting ends may present.
    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider());
        // The names of all CAs of a system would be sent to each client.
        let verifier = builder.allow_unauthenticated().clear_root_hint_subjects().build();
        verifier.map_err(|error| TlsError::Roots(Cause::from(error)))
    }

    fn server(
        &self,
        verifier: Arc<dyn ClientCertVerifier>,
        (chain, key): &Identity,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let clock = Arc::clone(&self.clock);
        let builder = ServerConfig::builder_with_details(provider(), clock).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| self.unusable(error))?.with_client_cert_verifier(verifier);
        let config = builder.with_single_cert(chain.clone(), key.clone_key());
        let mut config = config.map_err(|error| self.unusable(error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.require_ems = true;
        Ok(Arc::new(config))
    }

    fn unusable(&self, error: rustls::Error) -> TlsError {
        let source = Cause::from(error);
        match &self.files.identity {
            None => TlsError::Roots(source),
            Some(files) => {
                TlsError::Identity { certificate: files.certificate.clone(), key: files.key.clone(), source }
            }
        }
    }
}

/// The wall clock of an `Env`, which judges whether certificates have expired.
#[derive(Debug)]
struct Clock(Env);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(self.0.unix_nanos())))
    }
}

impl fmt::Debug for Keychain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keychain").field(&self.0.files).finish()
    }
}
