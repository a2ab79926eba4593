//! One HTTP connection.

use std::convert::Infallible;
use std::pin::pin;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use quorate_env::net::BoxStream;
use quorate_env::serving::Order;
use quorate_env::timeout;

use quorate_http::port::stream::{EnvTimer, HttpStream};

use super::answers::Page;
use super::{CONNECTION_TIME_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX, Port, STOP_TIME_MAX, WRITE_STALL_MAX};

/// Serves a connection until it breaks, reaches its maximum age, or the port is closed: pages for operators, and the
/// doors, if they are open, for all other paths.
pub(super) async fn serve(port: &Port, stream: BoxStream, mut order: Order) {
    let service = service_fn(|request: Request<Incoming>| {
        let page = Page::of(&request);
        let doors = port.doors.borrow().clone().filter(|_| page == Page::Unknown);
        // A body that nobody reads is dropped at once, so that the answer does not wait for it.
        let asked = doors.map(|doors| (doors, request));
        async move {
            Ok::<_, Infallible>(match asked {
                Some((doors, request)) => doors.serve(request).await,
                None => page.answer(port).await,
            })
        }
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
    if let Some(Ok(_ended)) = order.until_stopped(timeout(CONNECTION_TIME_MAX, connection.as_mut())).await {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = order.until_dropped(timeout(STOP_TIME_MAX, connection)).await;
}
