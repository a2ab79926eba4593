//! `quorate proxy`: SQL over HTTP to a cluster that runs elsewhere.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quorate::{Ca, Client, TlsConfig};
use quorate_http::Options;
use quorate_server::LogConfig;
use quorate_server::http::Proxy;
use tokio::time::sleep;

use crate::access::Access;
use crate::error::{Context as _, Error, Result};
use crate::log;
use crate::options::AccessArgs;
use crate::stop::{self, Stop};

/// The pause after no node of the cluster has answered.
const PAUSE: Duration = Duration::from_secs(1);

/// The options of the command.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate proxy --config cluster/a.toml
  quorate proxy --listen 0.0.0.0:8080 --certificate proxy.crt --key proxy.key --node 10.0.0.1:7001 --ca ca.crt \
--token-file token")]
pub struct ProxyArgs {
    /// host:port to serve HTTP on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// A file with the certificate of this port, and of those between it and its CA, as PEM: serve over TLS
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// A file with the private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Serve other machines without TLS, and without users if the cluster has none
    #[arg(long)]
    pub insecure: bool,
    /// The URL of this port as its clients see it, if a load balancer stands before several proxies
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Stop when standard input closes, as it does when the parent process ends
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// Runs the command.
pub async fn run(args: &ProxyArgs) -> Result<()> {
    log::begin(LogConfig::default())?;
    let mut stop = Stop::take(args.until_stdin_closes)?;
    let access = Access::find(&args.access)?;
    // Clients of HTTP are not asked for certificates, so the CA is not used: the certificate itself will do.
    let tls = args.certificate.as_ref().zip(args.key.as_ref());
    let tls = tls.map(|(certificate, key)| TlsConfig::new(certificate, key, Ca::File(certificate.clone())));
    let proxy = Proxy::open(&args.listen, tls.as_ref(), args.insecure).await.context(|| "the proxy can't start")?;
    tracing::info!(event = "listening", addr = proxy.local_addr(), "the proxy listens for HTTP");
    let client = tokio::select! {
        client = connect(&access) => client?,
        () = stop.requested() => return Ok(()),
    };
    let mut options = Options::default().with_insecure(args.insecure);
    options.base_url.clone_from(&args.base_url);
    proxy.connect(&client, options);
    tracing::info!(event = "connected", "the cluster has answered");
    stop.requested().await;
    stop::end_soon("a request");
    proxy.stop().await;
    client.close().await;
    Ok(())
}

/// Connects to the cluster, and tries until a node answers.
async fn connect(access: &Access) -> Result<Client> {
    loop {
        let error = match Client::connect(access.remote()).await {
            Ok(client) => return check(client).await,
            Err(error) if error.is_retryable() => error,
            Err(error) => return Err(Error::of(error)),
        };
        tracing::warn!(event = "unreachable", %error, "no node has answered yet");
        sleep(PAUSE).await;
    }
}

/// Checks that the proxy may ask about users.
async fn check(client: Client) -> Result<Client> {
    let listed = client.admin().users().await;
    listed.context(|| "a proxy logs in as an administrator, or with the secret of the cluster").map(|_| client)
}
