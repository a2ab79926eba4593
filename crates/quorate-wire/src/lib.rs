//! Frames, handshake and calls between Quorate's processes.
//!
//! A node [`serve`]s calls; nodes and clients make them with a [`Client`], which a [`Dialer`] connects. Both ends of a
//! connection first prove that they know the same [`Secret`] and exchange their identities ([`PeerInfo`]). After that,
//! many calls can be in flight at once, each with its own deadline, next to ordered streams of items. Each [`Purpose`]
//! has its own connections, so that a heartbeat never waits behind an image.
//!
//! Bodies are opaque: this crate knows neither Raft nor SQL. `docs/wire-format.md` describes the format byte by byte.
//!
//! # Invariants
//!
//! - No input from the network can make this process panic, or hold more memory than [`Limits`] allow.
//! - [`CallError::NotSent`] means that the call has no effect and may be made again. After [`CallError::Broken`] or
//!   [`CallError::TimedOut`] the caller can't know whether the call took effect.
//! - A secret never leaves the process and is never printed.

#![forbid(unsafe_code)]

mod client;
mod dialer;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod identity;
mod limits;
mod link;
mod message;
mod outbox;
mod server;
mod stream;

pub use client::Client;
pub use dialer::{Dialer, DialerConfig};
pub use error::{
    CallError, CallFailure, ConnectError, FailureKind, HandshakeError, NotSent, SecretTooShort, StreamError,
};
pub use handshake::tls_only_frame;
pub use identity::{Identity, Keys, PeerInfo, Purpose, Role, SECRET_BYTES_MIN, Secret, User};
pub use limits::{
    BINDING_MAX, CONNECT_MAX, FAILURE_TEXT_MAX, KEEPALIVE, Limits, SILENCES_MAX, VERSION, WRITE_STALL_MAX,
};
pub use server::{Connections, Handler, Server, ServerConfig, serve};
pub use stream::{StreamReceiver, StreamSender};

#[cfg(test)]
mod hostile;
