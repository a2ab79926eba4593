//! Routes requests to the protocols.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::{ALLOW, HeaderValue, ORIGIN};
use hyper::{Method, StatusCode};
use quorate::{Error, Sql};
use quorate_env::{Env, timeout};
use tokio::sync::Semaphore;

use crate::error::Problem;
use crate::hrana::{self, Streams};
use crate::message::{Answer, Content, IDEMPOTENCY_KEY, Request, answer, refusal};
use crate::openapi::OPENAPI;
use crate::options::{BODY_BYTES_MAX, LARGE_BODIES_MAX, Options, SMALL_BODY_BYTES_MAX};
use crate::rqlite;
use crate::work::Work;

/// The time within which the body of a request must arrive.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// The doors: all endpoints for one database. Cheap to clone; all clones share the streams of their clients.
#[derive(Clone)]
pub struct Doors(Arc<Inner>);

struct Inner {
    sql: Sql,
    options: Options,
    streams: Streams,
    /// The turns of large bodies.
    large: Semaphore,
}

/// The endpoints. Each arm of [`Endpoint::of`] names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    HranaVersion,
    Pipeline,
    Cursor,
    Execute1,
    Batch1,
    OpenApi,
    Rqlite(rqlite::Endpoint),
}

impl Endpoint {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/v2" | "/v3" => Self::HranaVersion,
            "/v2/pipeline" | "/v3/pipeline" => Self::Pipeline,
            "/v3/cursor" => Self::Cursor,
            "/v1/execute" => Self::Execute1,
            "/v1/batch" => Self::Batch1,
            "/openapi.json" => Self::OpenApi,
            path => Self::Rqlite(rqlite::Endpoint::of(path)?),
        })
    }

    /// Returns the methods that it allows, as the header `Allow` lists them.
    fn methods(self) -> &'static str {
        match self {
            Self::HranaVersion | Self::OpenApi => "GET, HEAD",
            Self::Pipeline | Self::Cursor | Self::Execute1 | Self::Batch1 => "POST",
            Self::Rqlite(endpoint) => endpoint.methods(),
        }
    }
}

impl Doors {
    /// Returns the doors to a database. `sql` may belong to a node of this process or to a client.
    pub fn new(sql: Sql, options: Options) -> Self {
        Self::new_in(&Env::real(), sql, options)
    }

    /// [`Doors::new`] with another [`Env`], for simulations.
    pub fn new_in(env: &Env, sql: Sql, options: Options) -> Self {
        let streams = Streams::new(env, options.stream_idle, options.transaction_time);
        Self(Arc::new(Inner { sql, options, streams, large: Semaphore::new(LARGE_BODIES_MAX) }))
    }

    /// Returns whether the doors have an endpoint at a path.
    pub fn has(&self, path: &str) -> bool {
        Endpoint::of(path).is_some()
    }

    /// Answers a request whose body has not been read. Reads at most [`BODY_BYTES_MAX`] within [`BODY_TIME_MAX`].
    ///
    /// If the future is dropped, so are the request's transaction and its stream.
    pub async fn serve<B>(&self, request: hyper::Request<B>) -> Answer
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let is_small = body.size_hint().upper().is_some_and(|bytes| bytes <= SMALL_BODY_BYTES_MAX as u64);
        // Held until the answer is there, because until then the body is in memory.
        let turn = if is_small { None } else { Some(timeout(BODY_TIME_MAX, self.0.large.acquire()).await) };
        if matches!(turn, Some(Err(_))) {
            return refusal(&Error::Overloaded("too many large requests were waiting".into()).into());
        }
        let body = match timeout(BODY_TIME_MAX, Limited::new(body, BODY_BYTES_MAX).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return refusal(&Problem::BodyTooLarge(BODY_BYTES_MAX)),
            Ok(Err(_)) => return refusal(&Problem::malformed("the connection broke")),
            Err(_) => return refusal(&Problem::malformed(format!("it did not arrive within {BODY_TIME_MAX:?}"))),
        };
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        self.answer(Request { method: head.method, path, query, headers: head.headers, body }).await
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request) -> Answer {
        // Boxed, because the future of a request is large.
        let answered = self.dispatch(&request).boxed().await;
        answered.unwrap_or_else(|problem| {
            let mut answer = refusal(&problem);
            if let Problem::Method(allowed) = problem {
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            }
            answer
        })
    }

    /// Drops the streams of Hrana that their clients have left, as they expire. It never returns, so run it beside the
    /// server. Without it, they are dropped when other streams are used.
    pub async fn sweep(&self) {
        self.0.streams.sweep().await;
    }

    async fn dispatch(&self, request: &Request) -> Result<Answer, Problem> {
        let endpoint = Endpoint::of(&request.path).ok_or(Problem::NotFound)?;
        let allowed = endpoint.methods();
        if !allowed.split(", ").any(|method| method == request.method.as_str()) {
            return Err(Problem::Method(allowed));
        }
        self.check_origin(request)?;
        if request.headers.contains_key(IDEMPOTENCY_KEY) && request.method != Method::GET {
            let text =
                "Idempotency-Key is not supported: without it, each request is done once, but a repeated one again";
            return Err(Problem::NotOffered(text));
        }
        let level = request.level()?.unwrap_or(self.0.options.level);
        let sql = self.0.sql.at(level);
        let work = Work::new(sql, self.0.options.transaction_time);
        match endpoint {
            Endpoint::HranaVersion => Ok(answer(StatusCode::OK, Content::Text, "Hrana over HTTP, with JSON\n")),
            Endpoint::Pipeline => hrana::pipeline(self, work, &request.body).await,
            Endpoint::Cursor => hrana::cursor(self, work, &request.body).await,
            Endpoint::Execute1 => hrana::stateless(work, &request.body, false).await,
            Endpoint::Batch1 => hrana::stateless(work, &request.body, true).await,
            Endpoint::OpenApi => Ok(answer(StatusCode::OK, Content::Json, OPENAPI)),
            Endpoint::Rqlite(endpoint) => rqlite::serve(self, work, endpoint, request).await,
        }
    }

    /// Refuses requests of web pages whose origin is not allowed.
    fn check_origin(&self, request: &Request) -> Result<(), Problem> {
        let Some(origin) = request.headers.get(ORIGIN) else { return Ok(()) };
        let origin = String::from_utf8_lossy(origin.as_bytes());
        if self.0.options.origins.iter().any(|allowed| allowed == &origin) {
            return Ok(());
        }
        Err(Problem::Origin(origin.into_owned()))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
    }
}

impl fmt::Debug for Doors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doors").field("options", &self.0.options).finish_non_exhaustive()
    }
}
