//! What is answered to which request (`docs/http.md`).

use std::borrow::Cow;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use quorate::{NotReady, Observer};
use serde_json::json;

use super::Door;
use crate::ask::Unanswered;
use crate::metrics;
use crate::status::NodeStatus;

pub(super) type Answer = Response<Full<Bytes>>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const READS: HeaderValue = HeaderValue::from_static("GET, HEAD");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Why there is nothing to show yet.
const STARTING: &str = "the node is starting";

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
        Err(why) => vec![why.into_owned()],
    };
    if reasons.is_empty() {
        return json(StatusCode::OK, &json!({ "ready": true }));
    }
    json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ready": false, "reasons": reasons }))
}

/// How the node and its cluster stand.
async fn status(door: &Door) -> Answer {
    match ask(door, Observer::status).await.and_then(still_there) {
        Ok((status, silence_max)) => json(StatusCode::OK, &NodeStatus::of(&status, silence_max)),
        Err(why) => json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": why })),
    }
}

/// What the node measures.
async fn metrics(door: &Door) -> Answer {
    let page = |observer: &Observer| observer.metrics().map(|found| metrics::prometheus(&metrics::families(&found)));
    match ask(door, page).await.and_then(still_there) {
        Ok(page) => respond(StatusCode::OK, PROMETHEUS, page),
        Err(why) => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, why.into_owned() + "\n"),
    }
}

/// What an observer tells, unless its node has ended.
fn still_there<T>(told: Option<T>) -> Result<T, Cow<'static, str>> {
    told.ok_or_else(|| Unanswered::Ended.to_string().into())
}

/// Asks the node, if there is one yet.
async fn ask<T: Send + 'static>(
    door: &Door,
    ask: impl FnOnce(&Observer) -> T + Send + 'static,
) -> Result<T, Cow<'static, str>> {
    let observer = door.shown.get().ok_or(STARTING)?;
    door.asks.ask(observer, ask).await.map_err(|error| error.to_string().into())
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
