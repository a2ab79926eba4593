//! Who answers a request: the pages for operators or the doors.

use hyper::Request;
use hyper::body::Incoming;
use quorate_env::net::BoxStream;
use quorate_env::serving::Order;
use quorate_http::port::connection::{self, Limits};

use super::answers::Page;
use super::{CONNECTION_TIME_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX, Port, STOP_TIME_MAX, WRITE_STALL_MAX};

const LIMITS: Limits = Limits {
    head_bytes: HEAD_BYTES_MAX,
    headers: HEADERS_MAX,
    head_time: HEAD_TIME_MAX,
    write_stall: WRITE_STALL_MAX,
    age: CONNECTION_TIME_MAX,
    stop: STOP_TIME_MAX,
    half_close: true,
};

/// Serves a connection: pages for operators, and the doors, if they are open, for all other paths.
pub(super) async fn serve(port: &Port, stream: BoxStream, order: Order) {
    let answer = |request: Request<Incoming>| {
        let page = Page::of(&request);
        let doors = port.doors.borrow().clone().filter(|_| page == Page::Unknown);
        // A body that nobody reads is dropped at once, so that the answer does not wait for it.
        let asked = doors.map(|doors| (doors, request));
        async move {
            match asked {
                Some((doors, request)) => doors.serve(request).await,
                None => page.answer(port).await,
            }
        }
    };
    connection::serve(stream, order, &LIMITS, answer).await;
}
