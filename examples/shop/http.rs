//! A small HTTP/1.1 server, whose answers are a status and JSON, and a client for it.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

/// The maximum bytes of a body.
const BODY_MAX: usize = 1 << 20;
/// The time limits for receiving a request's head and for the answer to a request.
const HEAD_MAX: Duration = Duration::from_secs(10);
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// An answer: its status and its body.
pub type Reply = (StatusCode, Value);

/// A received request: the method, the path and the body.
pub struct Call {
    pub method: Method,
    pub path: String,
    pub body: Bytes,
}

impl Call {
    /// Decodes the body from JSON.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Reply> {
        serde_json::from_slice(&self.body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string().into()))
    }
}

/// Accepts connections and answers their requests, for ever.
pub async fn serve<F, A>(listener: TcpListener, answer: F) -> Result<()>
where
    F: Fn(Call) -> A + Clone + Send + 'static,
    A: Future<Output = Reply> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await?;
        let answer = answer.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer.clone();
            async move {
                let (head, body) = request.into_parts();
                let (status, json) = match Limited::new(body, BODY_MAX).collect().await {
                    Ok(body) => {
                        let (method, path) = (head.method, head.uri.path().to_owned());
                        answer(Call { method, path, body: body.to_bytes() }).await
                    }
                    Err(error) => (StatusCode::BAD_REQUEST, error.to_string().into()),
                };
                let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
                Ok::<_, Infallible>(response.body(Full::new(Bytes::from(json.to_string()))).unwrap_or_default())
            }
        });
        tokio::spawn(async move {
            let mut connection = hyper::server::conn::http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
            // It is not an error if a client closes the connection.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// A connection to a server, which is opened when it is needed, and again after it broke.
pub struct Client {
    addr: String,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// Creates a client for a server at `host:port`, without a connection yet.
    pub fn new(addr: &str) -> Self {
        Self { addr: addr.to_owned(), open: None }
    }

    /// Sends a request and waits for the answer.
    pub async fn call(&mut self, method: Method, path: &str, body: &impl Serialize) -> Result<Reply> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        let called = tokio::time::timeout(ANSWER_MAX, self.try_call(method, path, body)).await;
        let reply = called.map_err(Into::into).flatten();
        if reply.is_err() {
            self.open = None;
        }
        reply
    }

    async fn try_call(&mut self, method: Method, path: &str, body: Bytes) -> Result<Reply> {
        if self.open.as_ref().is_none_or(SendRequest::is_closed) {
            let stream = TcpStream::connect(&self.addr).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            self.open = Some(sender);
        }
        let open = self.open.as_mut().ok_or("there is no connection")?;
        open.ready().await?;
        let request = Request::builder().method(method).uri(path).header(HOST, self.addr.as_str());
        let response = open.send_request(request.body(Full::new(body))?).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body)?))
    }
}
