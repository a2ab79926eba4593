//! Sends what a node measures, and traces of its writes, to an OpenTelemetry collector: OTLP over HTTP, as JSON.
//!
//! The metrics are those of `docs/metrics.md`. A trace is of one write that the node proposed as the leader: a span
//! with one below it for each stage. In [`OtlpConfig::trace_every`] at most one write is traced, of those answered
//! last.
//!
//! Invariants:
//! - It has a thread of its own; a collector that is slow or gone costs the node nothing, and memory is bounded.
//! - Metrics are cumulative, so that what was not delivered is made good by the next delivery.
//! - It speaks HTTP in the clear: to a collector on the same machine, or on a network that one trusts.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate::{Node, Observer, WriteTrace, WriteTraces};
use quorate_env::{Env, Instant, sleep_until};
use tokio::sync::oneshot;

use crate::ask::{Asks, Unanswered};
use crate::metrics::families;

mod encode;
mod post;

use encode::Resource;
use post::Collector;

/// Traces that wait to be delivered; older ones are dropped.
pub const TRACES_MAX: usize = 512;

/// How a node's figures are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The collector: `http://host:port`, 4318 where no port is given, and a path before `/v1/metrics` and `/v1/traces`
    /// if it has one.
    pub endpoint: String,
    /// How often metrics and traces are sent. At least 100 ms.
    pub every: Duration,
    /// At most one write in so much time is traced. At least 10 ms.
    pub trace_every: Duration,
}

impl OtlpConfig {
    /// Sends every ten seconds, and traces a write a second.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), every: Duration::from_secs(10), trace_every: Duration::from_secs(1) }
    }
}

/// The shortest of [`OtlpConfig::every`].
const EVERY_MIN: Duration = Duration::from_millis(100);

/// The shortest of [`OtlpConfig::trace_every`].
const TRACE_EVERY_MIN: Duration = Duration::from_millis(10);

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// The endpoint can't be used.
    #[error("the OTLP endpoint '{endpoint}': {why}; write http://host:port")]
    Endpoint {
        /// As it was given.
        endpoint: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system refused a thread.
    #[error("can't start a thread: {0}")]
    Thread(std::io::Error),
}

impl OtlpError {
    /// Whether the same call may succeed later without help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Thread(_))
    }
}

/// Sends the figures of a node until the node ends, or this is dropped.
#[derive(Debug)]
pub struct Exporter {
    stop: oneshot::Sender<()>,
    /// The other end is only ever dropped.
    ended: oneshot::Receiver<()>,
}

impl Exporter {
    /// Sends once more, and ends. Takes up to 15 seconds if the collector or the disk hangs.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.ended.await;
    }
}

/// Starts to send the figures of a node. Whether there is a collector shows only later, in the log of the process.
///
/// # Errors
///
/// When the endpoint can't be used.
pub fn export(node: &Node, config: &OtlpConfig) -> Result<Exporter, OtlpError> {
    export_in(&Env::real(), node, config)
}

/// [`export`] in another world: for simulations.
///
/// # Errors
///
/// Those of [`export`].
pub fn export_in(env: &Env, node: &Node, config: &OtlpConfig) -> Result<Exporter, OtlpError> {
    let collector = Collector::new(env, &config.endpoint)?;
    let observer = node.observer();
    let sender = Sender {
        env: env.clone(),
        asks: Asks::new(env, 1),
        sampled: observer.write_traces(),
        observer,
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
    Ok(Exporter { stop, ended })
}

struct Sender {
    env: Env,
    asks: Asks,
    observer: Observer,
    /// Where traces come from; none if the node had ended at once.
    sampled: Option<WriteTraces>,
    collector: Collector,
    traces: VecDeque<WriteTrace>,
    /// When counting began: the node's start. Told once, because clocks may jump.
    began_unix_nanos: Option<u64>,
    is_failing: bool,
}

impl Sender {
    /// Works until told to stop, and then sends once more.
    async fn run(mut self, every: Duration, trace_every: Duration, stopping: oneshot::Receiver<()>) {
        let is_told = {
            let working = pin!(self.work(every, trace_every));
            // An error says that the exporter was dropped: that ends everything at once.
            matches!(select(stopping, working).await, Either::Left((Ok(()), _)))
        };
        if is_told {
            self.sample();
            self.send().await;
        }
    }

    /// Samples and sends until the node has ended.
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

    /// Takes the latest trace, if there is a new one.
    fn sample(&mut self) {
        let Some(trace) = self.sampled.as_mut().and_then(WriteTraces::latest) else { return };
        if self.traces.len() >= TRACES_MAX {
            self.traces.pop_front();
        }
        self.traces.push_back(trace);
    }

    /// Sends everything, and says whether the node is still there.
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
        let message = encode::metrics(&resource, &families(&metrics), began, now);
        let mut sent = self.collector.post("/v1/metrics", message).await;
        if sent.is_ok() && !self.traces.is_empty() {
            let traces = encode::traces(&resource, &self.traces, self.env.rng());
            sent = self.collector.post("/v1/traces", traces).await;
            if sent.is_ok() {
                self.traces.clear();
            }
        }
        self.tell(sent.err());
        true
    }

    /// Tells when sending begins to fail, and when it works again.
    fn tell(&mut self, error: Option<post::PostError>) {
        match error {
            Some(error) if !self.is_failing => {
                tracing::warn!(collector = %self.collector, %error, "metrics are not delivered; trying on");
            }
            None if self.is_failing => tracing::info!(collector = %self.collector, "metrics are delivered again"),
            _ => return,
        }
        self.is_failing = !self.is_failing;
    }
}
