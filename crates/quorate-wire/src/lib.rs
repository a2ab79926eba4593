//! Frames, handshake and calls between Quorate's processes.
//!
//! A node [`serve`]s calls; nodes and clients make them by a [`Client`], which a [`Dialer`] connects. Both ends of a
//! connection prove that they know the same [`Secret`] and say who they are ([`PeerInfo`]) before anything else. Then
//! many calls are on the way at once, each with its deadline, beside streams of items in order. Each [`Purpose`] has
//! its own connections, so that a heartbeat never waits behind an image.
//!
//! Bodies are opaque: this crate knows neither Raft nor SQL. `docs/wire-format.md` has the format byte by byte.
//!
//! # Invariants
//!
//! - Nothing that comes in can make this process panic, or hold more memory than [`Limits`] say.
//! - [`CallError::NotSent`] means that the call has no effect and may be made again; [`CallError::Broken`] and
//!   [`CallError::TimedOut`] mean that nobody here can know.
//! - A secret never leaves the process, and never prints.

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
pub use identity::{Identity, Keys, PeerInfo, Purpose, Role, SECRET_BYTES_MIN, Secret};
pub use limits::{BINDING_MAX, FAILURE_TEXT_MAX, KEEPALIVE, Limits, SILENCES_MAX, VERSION, WRITE_STALL_MAX};
pub use server::{Connections, Handler, Server, ServerConfig, serve};
pub use stream::{StreamReceiver, StreamSender};

#[cfg(test)]
mod hostile;
