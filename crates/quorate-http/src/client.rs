//! One request to an HTTP server, and its answer.
//!
//! Invariant: of an answer, no more is kept than the caller allows. There is no time limit for the whole; the caller
//! sets one.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use quorate_env::net::BoxStream;

use crate::port::stream::HttpStream;

/// The time within which a write must make progress.
const WRITE_STALL_MAX: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP exchange failed: {source}")]
pub struct ExchangeError {
    source: quorate_env::Cause,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The name of the server.
    pub host: &'a str,
    /// The path, with the query.
    pub path: &'a str,
    /// What is posted, which is JSON. Without it, something is got.
    pub json: Option<String>,
}

/// Sends a request over a connection of its own. Returns the code of the answer and its body; `None` if that has more
/// than `bytes_max`, or breaks.
///
/// # Errors
///
/// If the connection breaks, or what arrives is not HTTP.
pub async fn exchange(
    stream: BoxStream,
    call: Call<'_>,
    bytes_max: usize,
) -> Result<(StatusCode, Option<Bytes>), ExchangeError> {
    let failed = |source: quorate_env::Cause| ExchangeError { source };
    let method = if call.json.is_some() { Method::POST } else { Method::GET };
    let request = Request::builder().method(method).uri(call.path).header(HOST, call.host);
    let request = match call.json {
        Some(json) => request.header(CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(json))),
        None => request.body(Full::default()),
    };
    let request = request.map_err(|error| failed(error.into()))?;
    let stream = HttpStream::new(stream, WRITE_STALL_MAX);
    let shaken = hyper::client::conn::http1::handshake(stream).await;
    let (mut sender, connection) = shaken.map_err(|error| failed(error.into()))?;
    let answered = async {
        let answer = sender.send_request(request).await.map_err(|error| failed(error.into()))?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), bytes_max).collect().await;
        Ok((code, body.ok().map(http_body_util::Collected::to_bytes)))
    };
    match select(pin!(answered), pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        // The connection has ended, but the answer may have arrived before.
        Either::Right((_, answered)) => answered.await,
    }
}
