//! Makes a CA and the certificates of its nodes, for new clusters and for tests.
//!
//! Keys are ECDSA on P-256, which all implementations of TLS know.

use std::time::Duration;

use quorate_env::{Cause, Env};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

use crate::error::DAY_SECONDS;

/// How long a certificate is valid: ten years, because what `quorate init` made is not renewed by anything.
pub const VALID_FOR: Duration = Duration::from_secs(3652 * DAY_SECONDS);

/// How long before its making a certificate is valid, for machines whose clocks are slow.
const CLOCK_MARGIN: Duration = Duration::from_secs(DAY_SECONDS);

/// A certificate could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't make a certificate: {0}")]
pub struct AuthorityError(#[source] Cause);

/// A CA with its key. It issues certificates as long as it is not dropped.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    now: OffsetDateTime,
}

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Authority {
    /// Makes a CA of this name.
    ///
    /// # Errors
    ///
    /// Returns an [`AuthorityError`] if the machine has no randomness.
    pub fn new(env: &Env, name: &str) -> Result<Self, AuthorityError> {
        let now = OffsetDateTime::UNIX_EPOCH + Duration::from_nanos(env.unix_nanos());
        let mut params = of_subject(name);
        params.not_before = now - CLOCK_MARGIN;
        params.not_after = now + VALID_FOR;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?).map_err(failed)?;
        Ok(Self { issuer, now })
    }

    /// Returns the certificate of the CA, as PEM.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Returns the key of the CA, as PEM.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate for a node that is reached at these hosts, valid for [`VALID_FOR`] from now on.
    ///
    /// # Errors
    ///
    /// Returns an [`AuthorityError`] if a host is no name that a certificate can hold.
    pub fn issue(&self, name: &str, hosts: &[String]) -> Result<Issued, AuthorityError> {
        self.issue_for(name, hosts, 0, VALID_FOR)
    }

    /// Issues a certificate that begins `days` ago and is valid for a time from then on.
    ///
    /// # Errors
    ///
    /// Those of [`Authority::issue`].
    pub fn issue_for(&self, name: &str, hosts: &[String], days: u64, time: Duration) -> Result<Issued, AuthorityError> {
        let mut params = CertificateParams::new(hosts).map_err(failed)?;
        params.distinguished_name = of_subject(name).distinguished_name;
        params.not_before = self.now - Duration::from_secs(days * DAY_SECONDS) - CLOCK_MARGIN;
        params.not_after = self.now - Duration::from_secs(days * DAY_SECONDS) + time;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn of_subject(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Quorate");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn failed(error: rcgen::Error) -> AuthorityError {
    AuthorityError(Cause::from(error))
}
