//! Sockets: ordered, reliable byte streams between addresses.
//!
//! [`RealNet`] is TCP. The simulated network delays, cuts and kills streams. It never loses or reorders bytes within a
//! stream, because TCP does not either: packet loss shows as a stream that stalls or breaks.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

mod real;

pub use real::RealNet;

/// One end of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A boxed end of a connection.
pub type BoxStream = Box<dyn Stream>;

/// The network as one node sees it. Addresses are `host:port`; a listener with port 0 gets any free port.
pub trait Net: Send + Sync + fmt::Debug {
    /// Connects to an address. There is no time limit; the caller sets a timeout.
    fn connect(&self, addr: &str) -> BoxFuture<'static, io::Result<BoxStream>>;

    /// Listens on an address.
    fn listen(&self, addr: &str) -> BoxFuture<'static, io::Result<Arc<dyn Listener>>>;
}

/// A listening socket. It stops listening when its last clone is dropped.
pub trait Listener: Send + Sync + fmt::Debug {
    /// Waits for the next connection and returns it with the address of the peer.
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxStream, String)>>;

    /// The address that it listens on, with the actual port.
    fn local_addr(&self) -> String;
}
