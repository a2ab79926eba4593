//! Sockets: ordered, reliable byte streams between addresses.
//!
//! [`RealNet`] is TCP, and [`UnixNet`] connects processes of one machine. The simulated network delays, cuts and kills
//! streams. It never loses or reorders bytes within a stream, because TCP does not either: packet loss shows as a
//! stream that stalls or breaks.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

mod real;
mod unix;

pub use real::RealNet;
pub use unix::{OWNER_ONLY, UnixNet};

/// One end of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Completes the handshake of a channel that protects the stream, and returns what the handshake found out; `None`
    /// for a plain stream. Reads and writes complete the handshake too. There is no time limit; the caller sets one.
    ///
    /// An error of kind `InvalidData` lasts until one of the two ends is configured differently.
    fn poll_secure(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<Option<Security>>> {
        Poll::Ready(Ok(None))
    }
}

/// What both ends of a protected channel know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security {
    /// A value that only the two ends of this channel know. No two channels have the same one.
    pub binding: [u8; 32],
    /// Whether the other end has proved itself by a certificate that this end trusts. The end that accepted the
    /// connection may have asked in vain.
    pub is_certified: bool,
}

/// Completes the handshake of a stream; see [`Stream::poll_secure`].
pub async fn secure(stream: &mut BoxStream) -> io::Result<Option<Security>> {
    poll_fn(|cx| stream.poll_secure(cx)).await
}

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
