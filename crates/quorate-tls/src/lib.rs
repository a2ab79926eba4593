//! TLS below the connections of Quorate: 1.3 and 1.2, by rustls with the cryptography of ring.
//!
//! A [`Keychain`] holds a node's certificate and key, and the CAs that it trusts, and reads their files again when they
//! change. A [`TlsNet`] puts TLS on the streams of another [`Net`](quorate_env::net::Net). The handshake of a stream
//! runs at its first read or write, or in [`poll_secure`](quorate_env::net::Stream::poll_secure), so that a slow client
//! never delays the acceptance of others. [`inspect`] checks the files. With the feature `authority`, the module of
//! that name makes a CA and certificates.
//!
//! The simulator uses none of this: its streams are plain. TLS draws its randomness from the operating system, and the
//! time by which it judges certificates from the `Env`.
//!
//! # Invariants
//!
//! - The end that connects always verifies the certificate of the other end, and that it covers the called host; only
//!   a process that calls itself, perhaps at an address without a host, takes any name.
//! - No session is resumed: each connection proves both ends anew, under the certificates and the CAs of its time.
//! - Every channel has a binding of its own, which no third party can compute; so TLS 1.2 is spoken only with the
//!   extended master secret.
//! - If a file can't be used, the certificates that were read before stay in force.

#![forbid(unsafe_code)]

#[cfg(feature = "authority")]
pub mod authority;
mod error;
mod files;
mod inspect;
mod keychain;
mod names;
mod net;
mod peek;
mod stream;

pub use error::{ChannelError, TlsError};
pub use files::{Ca, IdentityFiles, TlsFiles};
pub use inspect::{Inspection, inspect};
pub use keychain::{CHECK_EVERY, ENDS_SOON, Keychain};
pub use net::TlsNet;

#[cfg(test)]
mod tests;
