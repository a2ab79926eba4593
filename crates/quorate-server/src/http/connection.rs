//! One HTTP connection.

use std::convert::Infallible;
use std::pin::pin;

use futures_util::future::{Either, select};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use quorate_env::net::BoxStream;
use quorate_env::{sleep, timeout};
use tokio::sync::watch;

use super::answers::Page;
use super::stream::{EnvTimer, HttpStream};
use super::{
    CONNECTION_TIME_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX, Order, Port, STOP_TIME_MAX, WRITE_STALL_MAX,
};

/// Serves a connection until it breaks, reaches its maximum age, or the port is closed.
pub(super) async fn serve(port: &Port, stream: BoxStream, mut order: watch::Receiver<Order>) {
    let service = service_fn(|request: Request<Incoming>| {
        let page = Page::of(&request);
        async move { Ok::<_, Infallible>(page.answer(port).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(EnvTimer)
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        // A client that has closed its sending side still gets an answer.
        .half_close(true)
        // hyper would read the date from the machine's clock instead of the `Env`.
        .auto_date_header(false);
    let mut connection = pin!(http.serve_connection(HttpStream::new(stream, WRITE_STALL_MAX), service));
    {
        let ordered = pin!(order.wait_for(|order| *order != Order::Serve));
        let expired = pin!(sleep(CONNECTION_TIME_MAX));
        match select(&mut connection, select(ordered, expired)).await {
            Either::Left(_) => return,
            // The sender of the order is gone: the port was dropped.
            Either::Right((Either::Left((Err(_), _)), _)) => return,
            Either::Right(_) => {}
        }
    }
    connection.as_mut().graceful_shutdown();
    let dropped = pin!(async { while order.changed().await.is_ok() {} });
    let _ = timeout(STOP_TIME_MAX, select(connection, dropped)).await;
}
