//! A stream whose first byte was read already, to find out whether the other end speaks TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use quorate_env::net::BoxStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::error::ChannelError;

/// The first byte of a TLS handshake.
const HANDSHAKE_RECORD: u8 = 22;

/// The most bytes that are read of a client that does not speak TLS, so that it can read the answer.
const PLAIN_MAX: usize = 64 << 10;

/// The stream; see the module.
pub(crate) struct Peeked {
    first: Option<u8>,
    stream: BoxStream,
}

impl Peeked {
    /// A stream of which nothing was read.
    pub(crate) fn untouched(stream: BoxStream) -> Self {
        Self { first: None, stream }
    }

    /// Reads the first byte. If it is not one of TLS, sends `answer` in the clear, and fails.
    pub(crate) async fn expect_tls(mut stream: BoxStream, answer: &[u8]) -> io::Result<Self> {
        let first = stream.read_u8().await?;
        if first == HANDSHAKE_RECORD {
            return Ok(Self { first: Some(first), stream });
        }
        refuse(stream, answer).await;
        Err(ChannelError::Plain.into())
    }
}

/// Sends an answer, and reads until the other end has closed the connection: to close first, with bytes unread, would
/// take the answer away from the other end.
async fn refuse(mut stream: BoxStream, answer: &[u8]) {
    if answer.is_empty() || stream.write_all(answer).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let (mut buffer, mut left) = ([0; 1 << 10], PLAIN_MAX);
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let Some(rest) = left.checked_sub(read) else { return };
        left = rest;
    }
}

impl AsyncRead for Peeked {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buf.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Peeked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
