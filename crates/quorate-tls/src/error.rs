//! The errors of files, and those of channels.
//!
//! Invariant: a [`ChannelError`] lasts until one of the two ends is configured differently. Its `io::Error` has the
//! kind `InvalidData`. Errors that may pass (a broken connection) keep their own kinds.

use std::io;
use std::path::PathBuf;

use quorate_env::Cause;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Why certificates can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: Cause,
    },
    /// A file has no item of the expected kind, or one that can't be decoded.
    #[error("{}: {source}; it must hold {expected} as PEM", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// The error of the decoder.
        source: Cause,
    },
    /// The certificate and the key don't belong together, or can't be used for TLS.
    #[error("{} and {} can't be used together: {source}", certificate.display(), key.display())]
    Identity {
        /// The file with the certificate.
        certificate: PathBuf,
        /// The file with its key.
        key: PathBuf,
        /// The error of the library.
        source: Cause,
    },
    /// The CAs can't be used.
    #[error("the trusted CAs can't be used: {0}")]
    Roots(#[source] Cause),
}

impl TlsError {
    /// Returns whether the same call may succeed later: only if the files change.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Why the two ends of a connection can't agree on a channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The certificate of the other end was issued by an unknown CA.
    #[error(
        "the certificate of the other end was issued by no CA that this end trusts: give this end the CA of the \
         cluster ('ca' in [tls], or --ca)"
    )]
    UnknownIssuer,
    /// The certificate of the other end has expired.
    #[error("the certificate of the other end expired{}: renew it, or correct the clock of this machine", ago(*days))]
    Expired {
        /// How many days ago, if that is known.
        days: Option<u64>,
    },
    /// The certificate of the other end is not valid yet.
    #[error("the certificate of the other end is not valid yet: correct the clock of this machine, or of its issuer")]
    NotYetValid,
    /// The certificate of the other end is for other names.
    #[error(
        "the certificate of the other end is for {presented}, not for '{expected}': call it by one of its names, or \
         issue a certificate for this one"
    )]
    WrongName {
        /// The name that this end called.
        expected: String,
        /// The names in the certificate.
        presented: String,
    },
    /// The certificate of the other end may not be used for what it was used for.
    #[error("the certificate of the other end is not meant for this use: nodes need one for servers and clients")]
    WrongUse,
    /// The other end does not speak TLS.
    #[error("the other end does not speak TLS: set up TLS on both ends, or on neither")]
    Plain,
    /// The other end refuses the certificate of this end.
    #[error("the other end refuses the certificate of this end: {0}")]
    Refused(&'static str),
    /// The host of an address can't be the name of a certificate.
    #[error("'{0}' is no name or address of a host, so no certificate can be for it")]
    BadName(String),
    /// This end has no certificate to accept connections with.
    #[error("this end has no certificate: name one to accept connections with TLS")]
    NoCertificate,
    /// Anything else.
    #[error("TLS failed: {0}")]
    Other(#[source] Cause),
}

fn ago(days: Option<u64>) -> String {
    match days {
        None => String::new(),
        Some(0) => " today".to_owned(),
        Some(1) => " yesterday".to_owned(),
        Some(days) => format!(" {days} days ago"),
    }
}

/// The seconds of a day.
pub(crate) const DAY_SECONDS: u64 = 86_400;

impl ChannelError {
    /// Returns the error of a channel inside an error of a stream, if there is one.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    fn of_certificate(error: &CertificateError) -> Option<Self> {
        Some(match error {
            // A CA of the same name, but with another key, shows as a bad signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::Expired => Self::Expired { days: None },
            CertificateError::ExpiredContext { time, not_after } => {
                let days = time.as_secs().saturating_sub(not_after.as_secs()) / DAY_SECONDS;
                Self::Expired { days: Some(days) }
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::NotValidForName => {
                Self::WrongName { expected: "the called host".to_owned(), presented: "other names".to_owned() }
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
                let presented = if names.is_empty() { "no host".to_owned() } else { names.join(", ") };
                Self::WrongName { expected: expected.to_str().into_owned(), presented }
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Self::WrongUse,
            _ => return None,
        })
    }

    fn of_alert(alert: AlertDescription) -> Option<Self> {
        Some(Self::Refused(match alert {
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                "it does not trust the CA that issued it; give it that CA"
            }
            AlertDescription::CertificateExpired => {
                "it has expired, or is not valid yet; renew it, or check the clocks"
            }
            AlertDescription::BadCertificate => {
                "it is not for the name by which the other end called; issue one that covers this name"
            }
            AlertDescription::UnsupportedCertificate => {
                "it is not meant for this use; issue one for servers and clients"
            }
            AlertDescription::CertificateRequired => "it wants one, and this end has none",
            AlertDescription::CertificateUnknown | AlertDescription::CertificateRevoked => "it was not accepted",
            _ => return None,
        }))
    }
}

/// Returns a name without its kind: `DnsName("a")` is `a`, `IpAddress(::1)` is `::1`.
fn bare(name: &str) -> &str {
    let inside = name.split_once('(').map_or(name, |(_, inside)| inside);
    inside.trim_end_matches(')').trim_matches('"')
}

impl From<Error> for ChannelError {
    fn from(error: Error) -> Self {
        let known = match &error {
            Error::InvalidCertificate(certificate) => Self::of_certificate(certificate),
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(Self::Plain),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Other(Cause::from(error)))
    }
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Turns an error of rustls inside an error of a stream into a [`ChannelError`].
pub(crate) fn explained(error: io::Error) -> io::Error {
    let rustls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).cloned();
    match rustls {
        Some(inner) => ChannelError::from(inner).into(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the other end closed the connection during the TLS handshake")
        }
        None => error,
    }
}
