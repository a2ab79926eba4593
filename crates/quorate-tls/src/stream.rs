//! A stream over TLS.
//!
//! Invariants:
//! - The handshake runs in the first poll of whatever kind, and under its caller's time limit.
//! - Once the handshake has failed, each further use fails with the same reason.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use quorate_env::net::{Security, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::{ChannelError, explained};
use crate::peek::Peeked;

/// A stream over TLS after its handshake.
type Channel = tokio_rustls::TlsStream<Peeked>;

/// The label of the binding (RFC 5705).
const BINDING_LABEL: &[u8] = b"EXPORTER-quorate-wire-v1";

/// The stream; see the module.
pub(crate) enum TlsStream {
    Shaking(BoxFuture<'static, io::Result<Channel>>),
    Open(Box<Channel>, Security),
    Failed(io::ErrorKind, Option<ChannelError>),
}

impl TlsStream {
    /// A stream whose handshake is this future.
    pub(crate) fn new(handshake: BoxFuture<'static, io::Result<Channel>>) -> Self {
        Self::Shaking(handshake)
    }

    /// Completes the handshake.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(&mut Channel, &Security)>> {
        if let Self::Shaking(handshake) = self {
            let opened = ready!(handshake.as_mut().poll(cx)).map_err(explained);
            match opened.and_then(|channel| Ok((security_of(&channel)?, channel))) {
                Ok((security, channel)) => *self = Self::Open(Box::new(channel), security),
                Err(error) => {
                    *self = Self::Failed(error.kind(), ChannelError::of(&error).cloned());
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match self {
            Self::Open(channel, security) => Ok((channel, security)),
            Self::Failed(_, Some(error)) => Err(error.clone().into()),
            Self::Failed(kind, None) => Err((*kind).into()),
            Self::Shaking(_) => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

fn security_of(channel: &Channel) -> io::Result<Security> {
    let (_, session) = channel.get_ref();
    let binding = match channel {
        tokio_rustls::TlsStream::Client(stream) => {
            stream.get_ref().1.export_keying_material([0; 32], BINDING_LABEL, None)
        }
        tokio_rustls::TlsStream::Server(stream) => {
            stream.get_ref().1.export_keying_material([0; 32], BINDING_LABEL, None)
        }
    };
    let binding = binding.map_err(ChannelError::from)?;
    Ok(Security { binding, is_certified: session.peer_certificates().is_some() })
}

impl Stream for TlsStream {
    fn poll_secure(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Security>>> {
        let (_, security) = ready!(self.poll_open(cx))?;
        Poll::Ready(Ok(Some(security.clone())))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (channel, _) = ready!(self.get_mut().poll_open(cx))?;
        match ready!(Pin::new(channel).poll_read(cx, buf)) {
            // The other end is gone without a farewell. Whatever is sent over these streams says itself where it ends.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read.map_err(explained)),
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let (channel, _) = ready!(self.get_mut().poll_open(cx))?;
        Pin::new(channel).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (channel, _) = ready!(self.get_mut().poll_open(cx))?;
        Pin::new(channel).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (channel, _) = ready!(self.get_mut().poll_open(cx))?;
        Pin::new(channel).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A stream whose handshake has not begun, or has failed, has nothing to say goodbye to.
        let Self::Open(channel, _) = self.get_mut() else { return Poll::Ready(Ok(())) };
        Pin::new(channel.as_mut()).poll_shutdown(cx)
    }
}
