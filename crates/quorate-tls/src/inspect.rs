//! Checks of certificates, for those who look after them.
//!
//! How long a certificate is valid is found out by verifying it at times in the future, by the same code that verifies
//! it in a handshake.

use std::sync::Arc;
use std::time::Duration;

use quorate_env::{Cause, Env};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, Error, RootCertStore};

use crate::error::{ChannelError, TlsError};
use crate::files::TlsFiles;
use crate::keychain::{Keychain, provider};
use crate::names::is_name;
use crate::net::host_of;

/// The last second of the year 9999, beyond which no certificate is valid.
const END_OF_TIME: u64 = 253_402_300_799;

/// The most certificates of a chain whose ends are looked at.
const CHAIN_MAX: usize = 8;

/// What the files of a node hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Why other ends refuse the certificate now, whatever the name by which they call.
    pub refused: Option<ChannelError>,
    /// Why nodes refuse the certificate when this node calls them.
    pub refused_as_client: Option<ChannelError>,
    /// The hosts that the certificate does not cover.
    pub uncovered: Vec<String>,
    /// When the certificate, or one between it and its CA, expires: seconds since 1970-01-01 UTC. `None` if it leads to
    /// no trusted CA.
    pub end: Option<u64>,
}

/// Checks the files of a node whose addresses (`host:port`) are `addrs`. Blocks.
///
/// # Errors
///
/// Returns a [`TlsError`] if the files can't be read, or don't belong together; a node could then not start.
pub fn inspect(env: &Env, files: &TlsFiles, addrs: &[String]) -> Result<Inspection, TlsError> {
    Keychain::open(env, files.clone())?;
    let contents = files.read(env)?;
    let roots = Arc::new(files.roots(&contents)?);
    let Some((chain, _)) = files.identity(&contents)? else {
        return Err(TlsError::Roots("there is no certificate to check".into()));
    };
    let now = env.unix_nanos() / 1_000_000_000;
    let found = |error: Option<Error>| error.map(ChannelError::from);
    let is_uncovered = |host: &String| {
        let Ok(name) = ServerName::try_from(host.clone()) else { return true };
        matches!(verify(&roots, &chain, &name, now), Some(Error::InvalidCertificate(error)) if is_name(&error))
    };
    let mut uncovered: Vec<String> = addrs.iter().map(|addr| host_of(addr).to_owned()).filter(is_uncovered).collect();
    uncovered.sort_unstable();
    uncovered.dedup();
    Ok(Inspection {
        refused: found(verify_chain(&roots, &chain, now)),
        refused_as_client: found(verify_as_client(&roots, &chain, now).err()),
        uncovered,
        end: end_of(&roots, &chain),
    })
}

/// Returns when a certificate, or the chain to its CA, expires; `None` if it leads to no trusted CA.
pub(crate) fn end_of(roots: &Arc<RootCertStore>, chain: &[CertificateDer<'static>]) -> Option<u64> {
    let mut end = END_OF_TIME;
    for _ in 0..CHAIN_MAX {
        match verify_chain(roots, chain, end) {
            None => return Some(end),
            Some(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }))
                if not_after.as_secs() < end =>
            {
                end = not_after.as_secs();
            }
            // At its last second it is not valid yet, or not trusted at all.
            Some(_) => return None,
        }
    }
    None
}

/// Verifies a chain at some time, whatever its names.
fn verify_chain(roots: &Arc<RootCertStore>, chain: &[CertificateDer<'static>], at: u64) -> Option<Error> {
    let any = ServerName::try_from("any.invalid").ok()?;
    match verify(roots, chain, &any, at) {
        Some(Error::InvalidCertificate(error)) if is_name(&error) => None,
        verified => verified,
    }
}

/// Returns why a client refuses a chain at some time. It checks names last.
fn verify(
    roots: &Arc<RootCertStore>,
    chain: &[CertificateDer<'static>],
    name: &ServerName<'_>,
    at: u64,
) -> Option<Error> {
    let verifier = match WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider()).build() {
        Ok(verifier) => verifier,
        Err(error) => return Some(Error::General(error.to_string())),
    };
    let Some((own, between)) = chain.split_first() else { return Some(Error::NoCertificatesPresented) };
    verifier.verify_server_cert(own, between, name, &[], time(at)).err()
}

fn verify_as_client(roots: &Arc<RootCertStore>, chain: &[CertificateDer<'static>], at: u64) -> Result<(), Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider()).build();
    let verifier = verifier.map_err(|error| Error::General(Cause::from(error).to_string()))?;
    let (own, between) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
    verifier.verify_client_cert(own, between, time(at)).map(drop)
}

fn time(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}
