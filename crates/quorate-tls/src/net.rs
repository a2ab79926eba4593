//! TLS on the streams of another network.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_env::Env;
use quorate_env::net::{BoxStream, Listener, Net};
use rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::error::ChannelError;
use crate::keychain::Keychain;
use crate::peek::Peeked;
use crate::stream::TlsStream;

/// TLS on the streams of another network.
///
/// Connecting is the TCP connection alone; the handshake follows in the stream. A call to `host:port` accepts only a
/// certificate for `host`, unless one of the setters says otherwise.
#[derive(Clone)]
pub struct TlsNet {
    below: Arc<dyn Net>,
    keychain: Keychain,
    names: Names,
    side: Side,
}

/// The names that certificates must have.
#[derive(Clone, Default)]
struct Names {
    /// Of whichever node is called.
    all: Option<String>,
    /// The address of this process itself, which may name no host.
    own: Option<String>,
}

/// How listeners treat those that connect.
#[derive(Clone)]
struct Side {
    asks_for_certificate: bool,
    /// The answer in the clear to those that don't speak TLS; none if empty.
    to_plain: Arc<[u8]>,
}

impl TlsNet {
    /// Puts TLS on the network of `env`. Listeners ask for a certificate, and accept connections without one.
    pub fn new(env: &Env, keychain: Keychain) -> Self {
        let side = Side { asks_for_certificate: true, to_plain: Arc::default() };
        Self { below: Arc::clone(env.net()), keychain, names: Names::default(), side }
    }

    /// Expects certificates for this name, whatever the address.
    #[must_use]
    pub fn with_server_name(mut self, name: Option<String>) -> Self {
        self.names.all = name;
        self
    }

    /// Expects a certificate of any name at this address, that of a listener of this process. It may name no host.
    #[must_use]
    pub fn with_own_addr(mut self, addr: impl Into<String>) -> Self {
        self.names.own = Some(addr.into());
        self
    }

    /// Listeners don't ask for a certificate.
    #[must_use]
    pub fn without_client_certificates(mut self) -> Self {
        self.side.asks_for_certificate = false;
        self
    }

    /// Listeners send these bytes, in the clear, to those that don't speak TLS.
    #[must_use]
    pub fn with_answer_to_plain(mut self, answer: &[u8]) -> Self {
        self.side.to_plain = answer.into();
        self
    }

    /// Returns `env` with this network.
    pub fn env(self, env: &Env) -> Env {
        env.with_net(Arc::new(self))
    }
}

impl Names {
    /// Returns the name that the certificate at an address must have.
    fn at(&self, addr: &str) -> Result<ServerName<'static>, ChannelError> {
        let name = self.all.as_deref().unwrap_or_else(|| host_of(addr));
        ServerName::try_from(name.to_owned()).map_err(|_| ChannelError::BadName(name.to_owned()))
    }
}

/// Returns the host of `host:port`, without the brackets of an IPv6 address.
pub(crate) fn host_of(addr: &str) -> &str {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl Net for TlsNet {
    fn connect(&self, addr: &str) -> BoxFuture<'static, io::Result<BoxStream>> {
        let (connecting, name, keychain) = (self.below.connect(addr), self.names.at(addr), self.keychain.clone());
        let is_own = self.names.own.as_deref() == Some(addr);
        async move {
            let stream = connecting.await?;
            let handshake = async move {
                let configs = keychain.fresh().await;
                let connector = TlsConnector::from(Arc::clone(if is_own { &configs.own } else { &configs.client }));
                Ok(connector.connect(name?, Peeked::untouched(stream)).await?.into())
            };
            Ok(Box::new(TlsStream::new(handshake.boxed())) as BoxStream)
        }
        .boxed()
    }

    fn listen(&self, addr: &str) -> BoxFuture<'static, io::Result<Arc<dyn Listener>>> {
        let (listening, keychain, side) = (self.below.listen(addr), self.keychain.clone(), self.side.clone());
        async move {
            let below = listening.await?;
            Ok(Arc::new(TlsListener { below, keychain, side }) as Arc<dyn Listener>)
        }
        .boxed()
    }
}

struct TlsListener {
    below: Arc<dyn Listener>,
    keychain: Keychain,
    side: Side,
}

impl Listener for TlsListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxStream, String)>> {
        async move {
            let (stream, from) = self.below.accept().await?;
            let (keychain, side) = (self.keychain.clone(), self.side.clone());
            let handshake = async move {
                let stream = Peeked::expect_tls(stream, &side.to_plain).await?;
                let configs = keychain.fresh().await;
                let config = if side.asks_for_certificate { &configs.for_nodes } else { &configs.for_others };
                let config = config.as_ref().ok_or(ChannelError::NoCertificate)?;
                Ok(TlsAcceptor::from(Arc::clone(config)).accept(stream).await?.into())
            };
            Ok((Box::new(TlsStream::new(handshake.boxed())) as BoxStream, from))
        }
        .boxed()
    }

    fn local_addr(&self) -> String {
        self.below.local_addr()
    }
}

impl fmt::Debug for TlsNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsNet").field("below", &self.below).field("keychain", &self.keychain).finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsListener").field(&self.below).finish()
    }
}
