//! The files with certificates and keys, and what is in them.
//!
//! Invariant: no file is read beyond [`FILE_MAX`] bytes.

use std::path::{Path, PathBuf};

use quorate_env::disk::read_file;
use quorate_env::{Cause, Env};
use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::TlsError;

/// The most bytes of a file; a bundle of all public CAs has about 250 KB.
const FILE_MAX: u64 = 4 << 20;

/// The CAs that one end trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ca {
    /// Those that the operating system trusts, as they are when the process starts.
    System,
    /// The certificates in this file, as PEM.
    File(PathBuf),
}

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificate, and those that lead from it to its CA, as PEM.
    pub certificate: PathBuf,
    /// The private key, as PEM.
    pub key: PathBuf,
}

/// Everything that an end of TLS connections needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The trusted CAs.
    pub ca: Ca,
    /// The certificate of this end. An end that only connects may do without.
    pub identity: Option<IdentityFiles>,
}

/// The bytes of all files.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Nothing for the CAs of the system.
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// A certificate with those that lead to its CA, and its key.
pub(crate) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl TlsFiles {
    /// Reads all files. Blocks.
    pub(crate) fn read(&self, env: &Env) -> Result<Contents, TlsError> {
        let read = |path: &Path| {
            let failed = |error| TlsError::File { path: path.to_owned(), source: Cause::from(error) };
            read_file(env.disk().as_ref(), path, FILE_MAX).map_err(failed)
        };
        let ca = match &self.ca {
            Ca::System => None,
            Ca::File(path) => Some(read(path)?),
        };
        let identity = match &self.identity {
            None => None,
            Some(files) => Some((read(&files.certificate)?, read(&files.key)?)),
        };
        Ok(Contents { ca, identity })
    }

    /// Returns the trusted CAs. Blocks for those of the system.
    pub(crate) fn roots(&self, contents: &Contents) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        match (&self.ca, &contents.ca) {
            (Ca::File(path), Some(bytes)) => {
                for certificate in certificates(path, bytes)? {
                    let bad =
                        |error| TlsError::Content { path: path.clone(), expected: CA, source: Cause::from(error) };
                    roots.add(certificate).map_err(bad)?;
                }
            }
            _ => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    let why = found.errors.first().map_or_else(|| "it has none".to_owned(), ToString::to_string);
                    let text = format!("this machine trusts no CA ({why}); name a file with the CA");
                    return Err(TlsError::Roots(text.into()));
                }
            }
        }
        Ok(roots)
    }

    /// Returns the certificate and the key of this end, if it has some.
    pub(crate) fn identity(&self, contents: &Contents) -> Result<Option<Identity>, TlsError> {
        let (Some(files), Some((chain, key))) = (&self.identity, &contents.identity) else { return Ok(None) };
        let chain = certificates(&files.certificate, chain)?;
        let bad_key = |error| TlsError::Content {
            path: files.key.clone(),
            expected: "a private key",
            // The library's error may quote the file.
            source: Cause::from(pem_problem(&error)),
        };
        Ok(Some((chain, PrivateKeyDer::from_pem_slice(key).map_err(bad_key)?)))
    }
}

const CA: &str = "the certificates of CAs";

/// Decodes the certificates of a file, of which there is at least one.
fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |error: &PemError| TlsError::Content {
        path: path.to_owned(),
        expected: "certificates",
        source: Cause::from(pem_problem(error)),
    };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let all = all.map_err(|error| bad(&error))?;
    if all.is_empty() { Err(bad(&PemError::NoItemsFound)) } else { Ok(all) }
}

fn pem_problem(error: &PemError) -> &'static str {
    match error {
        PemError::NoItemsFound => "the file contains none",
        _ => "it is damaged",
    }
}
