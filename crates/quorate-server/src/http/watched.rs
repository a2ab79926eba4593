//! The port of a process that is no node: whether it is healthy, and its metrics.
//!
//! Invariant: an answer is made of what the process knows at that moment, and waits for nothing.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request};
use quorate_env::Env;
use quorate_http::port::{Handler, Port};
use quorate_http::{Answer, ServeError};

use super::answers;
use crate::metrics::Family;

/// A process that can be watched. Its methods don't block.
pub trait Watched: Send + Sync + 'static {
    /// Returns its metrics.
    fn metrics(&self) -> Vec<Family>;

    /// Returns why it is not healthy; nothing if it is.
    fn problems(&self) -> Vec<String>;
}

/// Opens a port on `host:port` that answers `/health` and `/metrics` without encryption; see [`Port::open`].
///
/// # Errors
///
/// Those of [`Port::open`].
pub async fn watch(env: &Env, listen: &str, watched: Arc<dyn Watched>) -> Result<Port, ServeError> {
    Port::open(env, listen, None, |_| Ok(Pages(watched))).await
}

#[derive(Clone)]
struct Pages(Arc<dyn Watched>);

impl Handler for Pages {
    const HALF_CLOSE: bool = true;

    async fn answer(&self, request: Request<Incoming>, _from: &str) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return answers::only_reads();
        }
        match request.uri().path() {
            "/health" => answers::health(&self.0.problems()),
            "/metrics" => answers::metrics_of(&self.0.metrics()),
            _ => answers::not_found("/health and /metrics"),
        }
    }
}
