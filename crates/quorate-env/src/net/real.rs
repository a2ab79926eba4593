//! TCP.

use std::io;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};

use super::{BoxStream, Listener, Net, Stream};

/// The TCP network of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNet;

#[derive(Debug)]
struct RealListener {
    socket: TcpListener,
    addr: String,
}

impl Stream for TcpStream {}

impl Net for RealNet {
    #[expect(clippy::disallowed_methods, reason = "the one place that connects sockets")]
    fn connect(&self, addr: &str) -> BoxFuture<'static, io::Result<BoxStream>> {
        let addr = addr.to_owned();
        async move { boxed(TcpStream::connect(addr).await?) }.boxed()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that opens listening sockets")]
    fn listen(&self, addr: &str) -> BoxFuture<'static, io::Result<Arc<dyn Listener>>> {
        let addr = addr.to_owned();
        async move {
            let socket = TcpListener::bind(addr).await?;
            let addr = socket.local_addr()?.to_string();
            Ok(Arc::new(RealListener { socket, addr }) as Arc<dyn Listener>)
        }
        .boxed()
    }
}

impl Listener for RealListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxStream, String)>> {
        async move {
            let (stream, from) = self.socket.accept().await?;
            Ok((boxed(stream)?, from.to_string()))
        }
        .boxed()
    }

    fn local_addr(&self) -> String {
        self.addr.clone()
    }
}

fn boxed(stream: TcpStream) -> io::Result<BoxStream> {
    // Frames are written whole, so waiting to fill a packet would only delay them.
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}
