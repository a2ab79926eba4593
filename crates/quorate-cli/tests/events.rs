//! Events while leaders are killed: listeners over HTTP and through a client hear each acknowledged event once, in
//! order.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use quorate::events::EventId;
use quorate::{Client, ClientConfig, Events, SecretSource};
use serde_json::Value;
use support::{Dev, succeeded};

/// How many events are added, and how many of them between two kills.
const EVENTS: usize = 90;
const BETWEEN_KILLS: usize = 30;

/// How long all of it may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// The events that a listener has received: the number and the payload of each.
type Heard = Vec<(String, String)>;

/// Reads from one node after another, each until its connection breaks or after some events, and goes on after the last
/// event each time.
fn listen_by_http(addrs: &[String], first: usize, start: EventId) -> Heard {
    let (mut heard, mut last, deadline) = (Heard::new(), start.to_string(), Instant::now() + DEADLINE);
    for addr in addrs.iter().cycle().skip(first) {
        assert!(Instant::now() < deadline, "not in time, after {heard:?}");
        let part = listen_to(addr, &last, EVENTS - heard.len());
        heard.extend(part);
        if let Some((id, _)) = heard.last() {
            last.clone_from(id);
        }
        if heard.len() >= EVENTS {
            break;
        }
    }
    heard
}

/// Reads events until the connection breaks or there are enough.
fn listen_to(addr: &str, last: &str, max: usize) -> Heard {
    let mut heard = Heard::new();
    let Ok(mut stream) = TcpStream::connect(addr) else { return heard };
    // Two seconds without anything: another node is asked.
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let ask = format!("GET /v1/events?channel=c HTTP/1.1\r\nhost: x\r\nlast-event-id: {last}\r\n\r\n");
    if stream.write_all(ask.as_bytes()).is_err() {
        return heard;
    }
    let (mut lines, mut id) = (BufReader::new(stream).lines(), String::new());
    if !lines.next().is_some_and(|line| line.is_ok_and(|line| line.contains(" 200 "))) {
        return heard;
    }
    for line in lines.map_while(Result::ok) {
        if let Some(found) = line.strip_prefix("id: ") {
            found.clone_into(&mut id);
        }
        if let Some(data) = line.strip_prefix("data: ") {
            // A connection that breaks may end a message in the middle: it counts from its last line on, which is data.
            let Ok(data) = serde_json::from_str::<Value>(data) else { break };
            heard.push((id.clone(), data["payload"].as_str().expect("no gap").to_owned()));
            if heard.len() >= max {
                break;
            }
        }
    }
    heard
}

/// Listens through the client, and begins anew after some events.
async fn listen_by_client(events: Events, start: EventId) -> Heard {
    let (mut heard, mut listener) = (Heard::new(), events.listen(["c"]).after(start));
    while heard.len() < EVENTS {
        match listener.next().await {
            Ok(event) => {
                heard.push((event.id.to_string(), String::from_utf8(event.payload.into()).unwrap()));
                if heard.len() % 8 == 0 {
                    listener = events.listen(["c"]).after(event.id);
                }
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    heard
}

#[test]
fn listeners_hear_each_acknowledged_event_once_while_leaders_are_killed() {
    let dev = Dev::start(3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let secret = SecretSource::File(dev.dir.path().join("secret"));
    let config = ClientConfig::new(dev.ids().into_iter().map(|id| dev.addr(id)), secret);
    let events = runtime.block_on(Client::connect(config)).unwrap().events().with_deadline(DEADLINE);
    let start = runtime.block_on(async { events.notify("c", "start").await }).unwrap();
    let http: Vec<String> = dev.nodes().iter().map(|node| node["http_addr"].as_str().unwrap().to_owned()).collect();
    let (by_http, by_client, acknowledged) = thread::scope(|scope| {
        let by_http = [0, 1, 2].map(|first| {
            scope.spawn({
                let http = &http;
                move || listen_by_http(http, first, start)
            })
        });
        let by_client = runtime.spawn(listen_by_client(events.clone(), start));
        let mut acknowledged = Heard::new();
        for number in 0..EVENTS {
            if number % BETWEEN_KILLS == BETWEEN_KILLS / 2 {
                let leader = dev.leader();
                dev.kill(leader);
                let id = runtime.block_on(async { events.notify("c", number.to_string()).await }).unwrap();
                acknowledged.push((id.to_string(), number.to_string()));
                succeeded(&dev.restart(leader));
            } else {
                let id = runtime.block_on(async { events.notify("c", number.to_string()).await }).unwrap();
                acknowledged.push((id.to_string(), number.to_string()));
            }
        }
        let by_client = runtime.block_on(async { tokio::time::timeout(DEADLINE, by_client).await });
        (by_http.map(|heard| heard.join().unwrap()), by_client.expect("heard in time").unwrap(), acknowledged)
    });
    assert_eq!(by_client, acknowledged);
    for heard in by_http {
        assert_eq!(heard, acknowledged);
    }
}
