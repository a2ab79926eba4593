//! The socket by which other processes of this machine control one that is no node. Requests and answers are JSON.
//!
//! Invariants:
//! - What a request says is read before anything is done, within [`BODY_TIME_MAX`] and [`CONTROL_BODY_BYTES_MAX`].
//! - Who goes away gives up its request.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, StatusCode};
use quorate_env::net::UnixNet;
use quorate_env::{Env, timeout};
use quorate_http::port::{Handler, Port};
use quorate_http::{Answer, BODY_TIME_MAX, ServeError};
use serde_json::{Value, json};

use super::answers;

/// The most bytes of a request's body.
pub const CONTROL_BODY_BYTES_MAX: usize = 64 << 10;

/// A process that can be controlled.
pub trait Controlled: Clone + Send + Sync + 'static {
    /// The requests that it answers: methods and paths.
    const REQUESTS: &'static [(&'static str, &'static str)];

    /// Answers a request for a path. The body is `null` if there is none.
    fn answer(&self, path: &str, body: Value) -> impl Future<Output = Result<Value, Refusal>> + Send;
}

/// Why a request is not fulfilled, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It says nothing that has a meaning.
    #[error("{0}")]
    Malformed(String),
    /// What it names is not there.
    #[error("{0}")]
    Unknown(String),
    /// What it asks for does not fit the state of the process.
    #[error("{0}")]
    Conflict(String),
    /// It was tried, and failed.
    #[error("{0}")]
    Failed(String),
    /// It was not fulfilled in time.
    #[error("{0}")]
    Late(String),
}

impl Refusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

/// Opens a socket whose file has this path and mode, by which a process is controlled. There is no login:
/// whoever may open the file may do everything.
///
/// # Errors
///
/// Those of [`Port::open`], also if another process listens there. The file of one that is gone is replaced.
pub async fn control<C: Controlled>(env: &Env, path: &str, mode: u32, controlled: C) -> Result<Port, ServeError> {
    let env = env.with_net(Arc::new(UnixNet::with_mode(mode)));
    Port::open(&env, path, None, |_| Ok(Door(controlled))).await
}

#[derive(Clone)]
struct Door<C>(C);

impl<C: Controlled> Handler for Door<C> {
    const HALF_CLOSE: bool = false;

    async fn answer(&self, request: Request<Incoming>, _from: &str) -> Answer {
        let path = request.uri().path().to_owned();
        let method = C::REQUESTS.iter().find(|(_, known)| *known == path).map(|(method, _)| *method);
        if let Some(method) = method.filter(|method| *request.method() != **method) {
            let why = json!({"error": format!("send {method} {path}")});
            let mut answer = answers::json(StatusCode::METHOD_NOT_ALLOWED, &why);
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
            return answer;
        }
        let answered = async {
            if method.is_none() {
                let known: Vec<_> = C::REQUESTS.iter().map(|(method, path)| format!("{method} {path}")).collect();
                return Err(Refusal::Unknown(format!("there is no {path}, but {}", known.join(", "))));
            }
            let body = body_of(request).await?;
            self.0.answer(&path, body).await
        };
        match answered.await {
            Ok(value) => answers::json(StatusCode::OK, &value),
            Err(refusal) => answers::json(refusal.code(), &json!({"error": refusal.to_string()})),
        }
    }
}

/// Reads the body of a request.
async fn body_of(request: Request<Incoming>) -> Result<Value, Refusal> {
    if matches!(*request.method(), Method::GET) {
        return Ok(Value::Null);
    }
    let malformed = |why: String| Refusal::Malformed(format!("the body {why}"));
    let body = timeout(BODY_TIME_MAX, Limited::new(request.into_body(), CONTROL_BODY_BYTES_MAX).collect()).await;
    let body: Bytes = match body {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return Err(malformed(format!("broke, or has more than {CONTROL_BODY_BYTES_MAX} bytes"))),
        Err(_) => return Err(malformed(format!("did not arrive within {BODY_TIME_MAX:?}"))),
    };
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&body).map_err(|error| malformed(format!("is no JSON: {error}")))
}
