//! The answers to requests (`docs/http.md`).

use std::borrow::Cow;

use bytes::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use quorate::{NotReady, Observer};
use quorate_http::{Answer, whole};
use serde_json::json;

use super::Pages;
use crate::ask::Unanswered;
use crate::metrics;
use crate::status::NodeStatus;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const READS: HeaderValue = HeaderValue::from_static("GET, HEAD");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The reason while no node is shown yet.
const STARTING: &str = "the node is starting";

/// The page that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Health,
    Ready,
    Status,
    Metrics,
    /// No such page exists.
    Unknown,
    /// The method is neither GET nor HEAD.
    NotAllowed,
}

impl Page {
    /// Returns the page that a request asks for. The body of the request is not read.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let page = match request.uri().path() {
            "/health" => Self::Health,
            "/ready" => Self::Ready,
            "/status" => Self::Status,
            "/metrics" => Self::Metrics,
            _ => return Self::Unknown,
        };
        if matches!(*request.method(), Method::GET | Method::HEAD) { page } else { Self::NotAllowed }
    }

    /// Returns whether only users may see it, once there are some. Those that watch over the node may always ask for
    /// `/health` and `/ready`.
    pub(super) fn is_for_users(self) -> bool {
        match self {
            Self::Status | Self::Metrics => true,
            Self::Health | Self::Ready | Self::Unknown | Self::NotAllowed => false,
        }
    }

    /// Returns the answer. For HEAD, hyper omits the body.
    pub(super) async fn answer(self, pages: &Pages) -> Answer {
        match self {
            Self::Health => healthy(),
            Self::Ready => ready_of(pages).await,
            Self::Status => status(pages).await,
            Self::Metrics => metrics(pages).await,
            Self::Unknown => not_found("/health, /ready, /status and /metrics"),
            Self::NotAllowed => only_reads(),
        }
    }
}

/// Answers that the process runs.
pub(super) fn healthy() -> Answer {
    text(StatusCode::OK, "ok\n")
}

/// Answers whether a process is healthy: it is if there are no problems.
pub(super) fn health(problems: &[String]) -> Answer {
    if problems.is_empty() { healthy() } else { text(StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n") }
}

/// Answers with metrics.
pub(super) fn metrics_of(families: &[metrics::Family]) -> Answer {
    respond(StatusCode::OK, PROMETHEUS, metrics::prometheus(families))
}

/// Answers that there is no such page.
pub(super) fn not_found(paths: &str) -> Answer {
    text(StatusCode::NOT_FOUND, format!("not found: the paths are {paths}\n"))
}

/// Refuses a method that would change something.
pub(super) fn only_reads() -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
    answer.headers_mut().insert(ALLOW, READS);
    answer
}

/// Answers whether something can serve: it can if there are no reasons against it.
pub(super) fn ready(reasons: &[String]) -> Answer {
    if reasons.is_empty() {
        return json(StatusCode::OK, &json!({ "ready": true }));
    }
    json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ready": false, "reasons": reasons }))
}

/// Answers whether the node can serve.
async fn ready_of(pages: &Pages) -> Answer {
    let reasons: Vec<String> = match ask(pages, Observer::not_ready).await {
        Ok(reasons) => reasons.iter().map(NotReady::to_string).collect(),
        Err(why) => vec![why.into_owned()],
    };
    ready(&reasons)
}

/// Answers with the status of the node and its cluster.
async fn status(pages: &Pages) -> Answer {
    match ask(pages, Observer::status).await.and_then(unless_ended) {
        Ok((status, silence_max)) => {
            let shown = NodeStatus::of(&status, silence_max).with_backups(pages.backups());
            json(StatusCode::OK, &shown)
        }
        Err(why) => json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": why })),
    }
}

/// Answers with the metrics of the node.
async fn metrics(pages: &Pages) -> Answer {
    let (backups, redis) = (pages.backups(), pages.redis());
    let page = move |observer: &Observer| {
        let families = |found| metrics::families(&found, backups.as_ref(), redis.as_deref());
        observer.metrics().map(families)
    };
    match ask(pages, page).await.and_then(unless_ended) {
        Ok(page) => metrics_of(&page),
        Err(why) => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, why.into_owned() + "\n"),
    }
}

/// Returns the answer of an observer, or an error if its node has ended.
fn unless_ended<T>(answer: Option<T>) -> Result<T, Cow<'static, str>> {
    answer.ok_or_else(|| Unanswered::Ended.to_string().into())
}

/// Queries the node, if one is shown.
async fn ask<T: Send + 'static>(
    pages: &Pages,
    ask: impl FnOnce(&Observer) -> T + Send + 'static,
) -> Result<T, Cow<'static, str>> {
    let observer = pages.shown().ok_or(STARTING)?.observer;
    pages.asks.ask(observer, ask).await.map_err(|error| error.to_string().into())
}

fn text(code: StatusCode, body: impl Into<Bytes>) -> Answer {
    respond(code, TEXT, body)
}

pub(super) fn json(code: StatusCode, body: &impl serde::Serialize) -> Answer {
    match serde_json::to_string(body) {
        Ok(body) => respond(code, JSON, body + "\n"),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the answer can't be encoded as JSON\n"),
    }
}

fn respond(code: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(whole(body));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    answer
}
