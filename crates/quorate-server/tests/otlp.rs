//! The messages that a collector receives from a real node.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;
#[path = "../../quorate/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Page, backups, show};
use quorate_resp::Notifications;
use quorate_server::otlp::{OtlpConfig, export};
use quorate_server::resp::serve;
use serde_json::Value;
use support::{Single, run, until};

/// A collector that stores the messages it receives, with their paths.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Value)>>>);

impl Collector {
    /// Answers requests on a listener until the process ends.
    fn listen(&self, listener: TcpListener) {
        let kept = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // The exporter may give a request up, and sends another one later.
                let _ = kept.receive(stream.unwrap());
            }
        });
    }

    /// Receives a request and answers it.
    fn receive(&self, stream: TcpStream) -> io::Result<()> {
        let (mut stream, mut head) = (BufReader::new(stream), Vec::new());
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!(header("content-type:"), "application/json");
        let mut body = vec![0; header("content-length:").parse().unwrap()];
        stream.read_exact(&mut body)?;
        let path = head.strip_prefix("post ").unwrap().split(' ').next().unwrap().to_owned();
        self.0.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    }

    fn received(&self, path: &str) -> Vec<Value> {
        let kept = self.0.lock().unwrap();
        kept.iter().filter(|(to, _)| to == path).map(|(_, message)| message.clone()).collect()
    }

    /// Returns the metrics of the latest message.
    fn metrics(&self) -> Vec<Value> {
        let last = self.received("/v1/metrics").pop();
        last.map(|last| last["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap().clone())
            .unwrap_or_default()
    }

    fn count(&self, name: &str) -> u64 {
        let metrics = self.metrics();
        let found = metrics.iter().find(|metric| metric["name"] == name);
        found.map_or(0, |metric| {
            let times = &metric["histogram"]["dataPoints"][0]["count"];
            let count = if times.is_null() { &metric["sum"]["dataPoints"][0]["asInt"] } else { times };
            count.as_str().unwrap().parse().unwrap()
        })
    }

    fn spans(&self) -> Vec<Value> {
        let messages = self.received("/v1/traces").into_iter();
        messages
            .flat_map(|message| message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone())
            .collect()
    }
}

fn config(addr: &str) -> OtlpConfig {
    let fast = Duration::from_millis(100);
    OtlpConfig { every: fast, trace_every: fast / 10, ..OtlpConfig::new(format!("http://{addr}")) }
}

#[test]
fn a_collector_receives_the_metrics_and_traces_of_writes() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (collector, addr) = (Collector::default(), listener.local_addr().unwrap().to_string());
        collector.listen(listener);
        let Single { dir: _dir, node } = Single::start().await;
        let exporter = export(&node, &config(&addr)).unwrap();
        exporter.show_backups(backups());
        exporter.show_redis(&serve("127.0.0.1:0", None, false, Notifications::default(), &node).await.unwrap());
        let sql = node.sql();
        sql.execute("CREATE TABLE t (x)", ()).await.unwrap();
        for x in 0..20 {
            sql.execute("INSERT INTO t VALUES (?)", (x,)).await.unwrap();
        }
        let page = Page::of(&show(&node).await);
        let writes = page.main("quorate_writes_total", "");
        // Writes are counted before callers get their answers, and their times are recorded shortly afterwards.
        let counts = ["quorate_writes_total", "quorate_write_seconds"];
        until("the writes", || counts.iter().all(|name| collector.count(name) as f64 >= writes)).await;

        let metrics = collector.metrics();
        let names: BTreeSet<&str> = metrics.iter().map(|metric| metric["name"].as_str().unwrap()).collect();
        assert_eq!(names, page.types.keys().map(String::as_str).collect(), "the same metrics as on the page");
        let total = metrics.iter().find(|metric| metric["name"] == "quorate_write_seconds").unwrap();
        let point = &total["histogram"]["dataPoints"][0];
        assert_eq!((&total["unit"], &total["histogram"]["aggregationTemporality"]), (&"s".into(), &2.into()));
        let counts = point["bucketCounts"].as_array().unwrap();
        assert_eq!(counts.len(), point["explicitBounds"].as_array().unwrap().len() + 1);
        let sum: u64 = counts.iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum.to_string(), point["count"].as_str().unwrap());
        assert!(sum as f64 >= writes && point["sum"].as_f64().unwrap() > 0.0);

        sql.execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
        until("a trace", || !collector.spans().is_empty()).await;
        check_spans(&collector.spans());
        exporter.stop().await;
        node.stop().await;
    });
}

/// Checks that each write has a span whose stages are child spans within its time.
fn check_spans(spans: &[Value]) {
    let nanos = |span: &Value, field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
    let roots: Vec<&Value> = spans.iter().filter(|span| span["parentSpanId"] == "").collect();
    for root in roots {
        assert_eq!((&root["name"], root["traceId"].as_str().unwrap().len()), (&"quorate.write".into(), 32));
        let below: Vec<&Value> = spans.iter().filter(|span| span["parentSpanId"] == root["spanId"]).collect();
        let (begun, ended) = (nanos(root, "startTimeUnixNano"), nanos(root, "endTimeUnixNano"));
        let stage = |name: &str| *below.iter().find(|span| span["name"] == format!("quorate.write.{name}")).unwrap();
        let mut at = begun;
        for name in ["queue", "append", "replicate", "apply"] {
            let span = stage(name);
            assert_eq!((&span["traceId"], nanos(span, "startTimeUnixNano")), (&root["traceId"], at), "{name}");
            at = nanos(span, "endTimeUnixNano");
        }
        assert_eq!(at, ended);
        assert_eq!(nanos(stage("fsync"), "startTimeUnixNano"), nanos(stage("replicate"), "startTimeUnixNano"));
    }
}

#[test]
fn a_late_collector_receives_what_it_missed() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let Single { dir: _dir, node } = Single::start().await;
        node.sql().execute("CREATE TABLE u (x)", ()).await.unwrap();
        let exporter = export(&node, &config(&listener.local_addr().unwrap().to_string())).unwrap();
        node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        // The collector breaks the first two connections.
        (0..2).for_each(|_| drop(listener.accept().unwrap()));
        let collector = Collector::default();
        collector.listen(listener);
        until("the traces", || !collector.spans().is_empty()).await;
        assert!(collector.count("quorate_writes_total") >= 1);
        exporter.stop().await;
        node.stop().await;
    });
}

#[test]
fn a_hanging_collector_does_not_block_the_node() {
    run(async {
        // The listener accepts through its backlog, and nothing reads.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let Single { dir, node } = Single::start().await;
        let exporter = export(&node, &config(&listener.local_addr().unwrap().to_string())).unwrap();
        node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        node.stop().await;
        // The directory is free, even if the exporter still waits for an answer.
        let again = quorate::Node::start(Single::config(&dir)).await.unwrap();
        again.stop().await;
        drop(exporter);
    });
}
