//! What is answered to which request (`docs/http.md`).

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use quorate::{NotReady, Observer};
use quorate_env::timeout;
use serde_json::json;

use super::{ANSWER_TIME_MAX, Door};
use crate::metrics;
use crate::status::NodeStatus;

pub(super) type Answer = Response<Full<Bytes>>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const READS: HeaderValue = HeaderValue::from_static("GET, HEAD");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Why there is nothing to show.
const STARTING: &str = "the node is starting";
const ENDED: &str = "the node has ended";
const SLOW: &str = "the node does not tell how it is: its disk may hang";

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Health,
    Ready,
    Status,
    Metrics,
    /// There is no such page.
    Unknown,
    /// It can only be read.
    Changed,
}

impl Page {
    /// What a request asks for. Its body, if it has one, is not looked at.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let page = match request.uri().path() {
            "/health" => Self::Health,
            "/ready" => Self::Ready,
            "/status" => Self::Status,
            "/metrics" => Self::Metrics,
            _ => return Self::Unknown,
        };
        if matches!(*request.method(), Method::GET | Method::HEAD) { page } else { Self::Changed }
    }

    /// The answer. For HEAD hyper leaves the body out.
    pub(super) async fn answer(self, door: &Door) -> Answer {
        match self {
            Self::Health => text(StatusCode::OK, "ok\n"),
            Self::Ready => ready(door).await,
            Self::Status => status(door).await,
            Self::Metrics => metrics(door).await,
            Self::Unknown => text(StatusCode::NOT_FOUND, "there are /health, /ready, /status and /metrics\n"),
            Self::Changed => {
                let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
                answer.headers_mut().insert(ALLOW, READS);
                answer
            }
        }
    }
}

/// Whether the node can serve.
async fn ready(door: &Door) -> Answer {
    let reasons = match ask(door, Observer::not_ready).await {
        Ok(reasons) => reasons.iter().map(NotReady::to_string).collect(),
        Err(why) => vec![why.to_owned()],
    };
    if reasons.is_empty() {
        return json(StatusCode::OK, &json!({ "ready": true }));
    }
    json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ready": false, "reasons": reasons }))
}

/// How the node and its cluster stand.
async fn status(door: &Door) -> Answer {
    match ask(door, Observer::status).await.and_then(|status| status.ok_or(ENDED)) {
        Ok((status, silence_max)) => json(StatusCode::OK, &NodeStatus::of(&status, silence_max)),
        Err(why) => json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": why })),
    }
}

/// What the node measures.
async fn metrics(door: &Door) -> Answer {
    let page = |observer: &Observer| observer.metrics().map(|found| metrics::prometheus(&metrics::families(&found)));
    match ask(door, page).await.and_then(|page| page.ok_or(ENDED)) {
        Ok(page) => respond(StatusCode::OK, PROMETHEUS, page),
        Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Asks the node beside this thread: it may have to ask its disk.
async fn ask<T: Send + 'static>(
    door: &Door,
    ask: impl FnOnce(&Observer) -> T + Send + 'static,
) -> Result<T, &'static str> {
    let observer = door.shown.get().ok_or(STARTING)?;
    let asks = Arc::clone(&door.asks);
    let asking = async {
        let asked = asks.acquire_owned().await.ok()?;
        let answer = door.env.blocking(move || (ask(&observer), asked)).await;
        answer.map(|(answer, _)| answer)
    };
    timeout(ANSWER_TIME_MAX, asking).await.map_err(|_| SLOW)?.ok_or(ENDED)
}

fn text(code: StatusCode, body: &'static str) -> Answer {
    respond(code, TEXT, body)
}

fn json(code: StatusCode, body: &impl serde::Serialize) -> Answer {
    match serde_json::to_string(body) {
        Ok(body) => respond(code, JSON, body + "\n"),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the answer can't be written as JSON\n"),
    }
}

fn respond(code: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    answer
}
