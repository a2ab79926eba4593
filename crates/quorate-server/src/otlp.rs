//! Sends the metrics of a node and traces of its writes to an OpenTelemetry collector, as OTLP over HTTP in JSON.
//!
//! The metrics are those in `docs/metrics.md`. A trace covers one write that the node proposed as the leader: a span
//! for the write, with a child span for each stage. At most one write per [`OtlpConfig::trace_every`] is traced, the
//! latest one that was answered.
//!
//! Invariants:
//! - The exporter has a thread of its own and limited memory, so a slow or missing collector does not slow the node.
//! - Metrics are cumulative, so the next delivery makes up for a failed one.
//! - The exporter speaks HTTP without TLS. The collector should be on the same machine or on a trusted network.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate::{
    Node, Observer,
    metrics::{WriteTrace, WriteTraces},
};
use quorate_backup::schedule::State;
use quorate_env::{Env, Instant, sleep_until, unpoisoned};
use tokio::sync::oneshot;

use crate::ask::{Asks, Unanswered};
use crate::metrics::families;
use crate::resp::{Counts, RespServer};

mod encode;
mod post;

use encode::Resource;
use post::Collector;

/// The maximum number of traces that wait to be delivered. Beyond it, the oldest are dropped.
pub const TRACES_MAX: usize = 512;

/// The configuration of an exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The collector: `http://host:port`, optionally with a path that precedes `/v1/metrics` and `/v1/traces`. The
    /// default port is 4318.
    pub endpoint: String,
    /// The interval at which metrics and traces are sent. The minimum is 100 ms.
    pub every: Duration,
    /// The interval in which at most one write is traced. The minimum is 10 ms.
    pub trace_every: Duration,
}

impl OtlpConfig {
    /// Creates a configuration that sends every ten seconds and traces one write per second.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), every: Duration::from_secs(10), trace_every: Duration::from_secs(1) }
    }
}

/// The minimum of [`OtlpConfig::every`].
const EVERY_MIN: Duration = Duration::from_millis(100);

/// The minimum of [`OtlpConfig::trace_every`].
const TRACE_EVERY_MIN: Duration = Duration::from_millis(10);

/// Why an exporter could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// The endpoint is invalid.
    #[error("the OTLP endpoint '{endpoint}' {why}: use http://host:port")]
    Endpoint {
        /// The configured endpoint.
        endpoint: String,
        /// What is wrong with it, as the rest of a sentence.
        why: &'static str,
    },
    /// The operating system could not start a thread.
    #[error("can't start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl OtlpError {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Thread(_))
    }
}

/// Sends the metrics and traces of a node until the node ends or the exporter is dropped.
#[derive(Debug)]
pub struct Exporter {
    stop: oneshot::Sender<()>,
    /// Its sender sends nothing. It is dropped when the exporter's thread has ended.
    ended: oneshot::Receiver<()>,
    backups: Scheduled,
    redis: Redis,
}

/// The scheduled backups of a node, if there are some.
type Scheduled = Arc<RwLock<Option<Arc<State>>>>;

/// What the port for the clients of Redis has counted, if there is one.
type Redis = Arc<RwLock<Option<Arc<Counts>>>>;

impl Exporter {
    /// Sends the metrics of the port for the clients of Redis too from now on.
    pub fn show_redis(&self, redis: &RespServer) {
        *unpoisoned(self.redis.write()) = Some(redis.counts());
    }

    /// Sends the metrics of the node's scheduled backups too from now on.
    pub fn show_backups(&self, backups: Arc<State>) {
        *unpoisoned(self.backups.write()) = Some(backups);
    }

    /// Sends once more and ends. Takes up to 15 seconds if the collector or the disk hangs.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.ended.await;
    }
}

/// Starts an exporter for a node. If the collector can't be reached, the exporter logs that and keeps trying.
///
/// # Errors
///
/// If the endpoint is invalid, or no thread can be started.
pub fn export(node: &Node, config: &OtlpConfig) -> Result<Exporter, OtlpError> {
    export_in(&Env::real(), node, config)
}

/// [`export`] with another [`Env`], for simulations.
///
/// # Errors
///
/// Those of [`export`].
pub fn export_in(env: &Env, node: &Node, config: &OtlpConfig) -> Result<Exporter, OtlpError> {
    let collector = Collector::new(env, &config.endpoint)?;
    let (observer, backups, redis) = (node.observer(), Scheduled::default(), Redis::default());
    let sender = Sender {
        env: env.clone(),
        asks: Asks::new(env, 1),
        sampled: observer.write_traces(),
        observer,
        backups: Arc::clone(&backups),
        redis: Arc::clone(&redis),
        collector,
        traces: VecDeque::new(),
        began_unix_nanos: None,
        is_failing: false,
    };
    let (every, trace_every) = (config.every.max(EVERY_MIN), config.trace_every.max(TRACE_EVERY_MIN));
    let ((stop, stopping), (end, ended)) = (oneshot::channel(), oneshot::channel::<()>());
    let root = async move {
        sender.run(every, trace_every, stopping).await;
        end
    };
    env.start_runtime("quorate-otlp", root).map_err(OtlpError::Thread)?;
    Ok(Exporter { stop, ended, backups, redis })
}

struct Sender {
    env: Env,
    asks: Asks,
    observer: Observer,
    backups: Scheduled,
    redis: Redis,
    /// The source of traces; none if the node has already ended.
    sampled: Option<WriteTraces>,
    collector: Collector,
    traces: VecDeque<WriteTrace>,
    /// The start of the node, from which metrics count. Computed only once, because clocks may jump.
    began_unix_nanos: Option<u64>,
    is_failing: bool,
}

impl Sender {
    /// Works until asked to stop, and then sends once more.
    async fn run(mut self, every: Duration, trace_every: Duration, stopping: oneshot::Receiver<()>) {
        let stop_requested = {
            let working = pin!(self.work(every, trace_every));
            // An error means that the exporter was dropped, which ends it at once.
            matches!(select(stopping, working).await, Either::Left((Ok(()), _)))
        };
        if stop_requested {
            self.sample();
            self.send().await;
        }
    }

    /// Collects traces and sends until the node has ended.
    async fn work(&mut self, every: Duration, trace_every: Duration) {
        let (mut next_send, mut next_sample) = (Instant::now() + every, Instant::now() + trace_every);
        loop {
            sleep_until(next_send.min(next_sample)).await;
            let now = Instant::now();
            if now >= next_sample {
                self.sample();
                next_sample = now + trace_every;
            }
            if now >= next_send {
                if !self.send().await {
                    return;
                }
                next_send = now + every;
            }
        }
    }

    /// Takes the latest trace if it is new.
    fn sample(&mut self) {
        let Some(trace) = self.sampled.as_mut().and_then(WriteTraces::latest) else { return };
        if self.traces.len() >= TRACES_MAX {
            self.traces.pop_front();
        }
        self.traces.push_back(trace);
    }

    /// Sends all metrics and waiting traces. Returns false once the node has ended.
    async fn send(&mut self) -> bool {
        let metrics = match self.asks.ask(self.observer.clone(), Observer::metrics).await {
            Ok(Some(metrics)) => metrics,
            Ok(None) | Err(Unanswered::Ended) => return false,
            Err(Unanswered::Slow) => return true,
        };
        let now = self.env.unix_nanos();
        let uptime = u64::try_from(metrics.uptime.as_nanos()).unwrap_or(u64::MAX);
        let began = *self.began_unix_nanos.get_or_insert(now.saturating_sub(uptime));
        let resource = Resource::of(&metrics);
        let backups = unpoisoned(self.backups.read()).as_ref().map(|backups| backups.seen());
        let redis = unpoisoned(self.redis.read()).clone();
        let found = families(&metrics, backups.as_ref(), redis.as_deref());
        let message = encode::metrics(&resource, &found, began, now);
        let mut sent = self.collector.post("/v1/metrics", message).await;
        if sent.is_ok() && !self.traces.is_empty() {
            let traces = encode::traces(&resource, &self.traces, self.env.rng());
            sent = self.collector.post("/v1/traces", traces).await;
            if sent.is_ok() {
                self.traces.clear();
            }
        }
        self.log_change(sent.err());
        true
    }

    /// Logs when sending starts to fail, and when it works again.
    fn log_change(&mut self, error: Option<post::PostError>) {
        match error {
            Some(error) if !self.is_failing => {
                tracing::warn!(collector = %self.collector, %error, "could not deliver metrics; trying again");
            }
            None if self.is_failing => tracing::info!(collector = %self.collector, "metrics are delivered again"),
            _ => return,
        }
        self.is_failing = !self.is_failing;
    }
}
