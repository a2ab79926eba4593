//! One connection: HTTP, and what a request has put in its place.
//!
//! Invariant: each step of a connection has a limit; a client that exceeds one loses its connection.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use quorate_env::net::BoxStream;
use quorate_env::serving::{Order, Usage, Work};
use quorate_env::timeout;
use tokio::sync::oneshot;

use super::stream::{EnvTimer, HttpStream};
use super::takeover::{Job, Takeover};
use super::{CONNECTION_TIME_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX, Handler, STOP_TIME_MAX, WRITE_STALL_MAX};
use crate::message::AnswerBody;

/// Serves a connection until it breaks, reaches its maximum age, or the port is closed.
pub(super) async fn serve<H: Handler>(stream: BoxStream, mut order: Order, usage: &Usage, handler: &H, from: &str) {
    let takeover = Takeover::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(takeover.clone());
        async {
            let work = usage.work();
            let answer = handler.answer(request, from).await;
            Ok::<_, Infallible>(answer.map(|body| Sent { body, _work: work }))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(EnvTimer)
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .half_close(H::HALF_CLOSE)
        // hyper would read the date from the machine's clock instead of the `Env`.
        .auto_date_header(false);
    let mut connection = pin!(http.serve_connection(HttpStream::new(stream, WRITE_STALL_MAX), service).with_upgrades());
    if let Some(Ok(_ended)) = order.until_stopped(timeout(CONNECTION_TIME_MAX, connection.as_mut())).await {
        if let Some(job) = takeover.take() {
            let _work = usage.work();
            go_on(job, order).await;
        }
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = order.until_dropped(timeout(STOP_TIME_MAX, connection)).await;
}

/// The body of an answer. Its connection works until it has been sent.
struct Sent {
    body: AnswerBody,
    _work: Work,
}

impl Body for Sent {
    type Data = <AnswerBody as Body>::Data;
    type Error = <AnswerBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Runs what follows on HTTP, within the limits of a connection.
async fn go_on(job: Job, mut order: Order) {
    let (end, ending) = oneshot::channel();
    let mut running = job(ending);
    if let Some(Ok(())) = order.until_stopped(timeout(CONNECTION_TIME_MAX, running.as_mut())).await {
        return;
    }
    drop(end);
    let _ = order.until_dropped(timeout(STOP_TIME_MAX, running)).await;
}
