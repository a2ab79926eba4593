//! One HTTP connection, of any port.
//!
//! Invariant: each step of a connection has a limit; a client that exceeds one loses its connection.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use quorate_env::net::BoxStream;
use quorate_env::serving::Order;
use quorate_env::timeout;

use super::stream::{EnvTimer, HttpStream};
use crate::message::Answer;

/// The limits of the connections of a port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes of a request's head.
    pub head_bytes: usize,
    /// The most headers of a request.
    pub headers: usize,
    /// The time within which the head of a request must arrive, and within which an idle connection must send the next
    /// one.
    pub head_time: Duration,
    /// The time within which a write must make progress.
    pub write_stall: Duration,
    /// The maximum age of a connection. It is then closed after the answer to the current request.
    pub age: Duration,
    /// The time in which a stopping server completes current requests.
    pub stop: Duration,
    /// Whether a client that has closed its sending side still gets an answer. Otherwise its request is dropped.
    pub half_close: bool,
}

/// Serves a connection until it breaks, reaches its maximum age, or the port is closed.
pub async fn serve<F>(stream: BoxStream, mut order: Order, limits: &Limits, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = Answer>,
{
    let service = service_fn(|request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let mut http = http1::Builder::new();
    http.timer(EnvTimer)
        .header_read_timeout(limits.head_time)
        .max_headers(limits.headers)
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.head_bytes)
        .half_close(limits.half_close)
        // hyper would read the date from the machine's clock instead of the `Env`.
        .auto_date_header(false);
    let mut connection = pin!(http.serve_connection(HttpStream::new(stream, limits.write_stall), service));
    if let Some(Ok(_ended)) = order.until_stopped(timeout(limits.age, connection.as_mut())).await {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = order.until_dropped(timeout(limits.stop, connection)).await;
}
