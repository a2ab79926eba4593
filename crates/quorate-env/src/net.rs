//! Sockets: ordered, reliable streams of bytes between addresses.
//!
//! [`RealNet`] is TCP. The simulated net delays, cuts and kills streams; it never loses or reorders bytes within one,
//! because TCP does not either: loss shows as a stream that stalls or breaks.

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

/// The network as one node sees it. Addresses are `host:port`; port 0 of a listener means any free one.
pub trait Net: Send + Sync + fmt::Debug {
    /// Connects to an address. Without a limit of its own: the caller sets a timeout.
    fn connect(&self, addr: &str) -> BoxFuture<'static, io::Result<BoxStream>>;

    /// Listens on an address.
    fn listen(&self, addr: &str) -> BoxFuture<'static, io::Result<Arc<dyn Listener>>>;
}

/// A listening socket. It stops listening when its last clone is dropped.
pub trait Listener: Send + Sync + fmt::Debug {
    /// The next connection, and where it comes from.
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxStream, String)>>;

    /// The address that it listens on, with the port that was chosen.
    fn local_addr(&self) -> String;
}
