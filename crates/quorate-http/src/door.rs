//! Routes requests to the protocols.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::{HOST, ORIGIN};
use hyper::{HeaderMap, Method, StatusCode};
use quorate::users::{Credentials, UserRole};
use quorate::{Error, Level, Sql};
use quorate_env::{Env, timeout};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::Problem;
use crate::events;
use crate::hrana::{self, Streams, socket};
use crate::hustdb;
use crate::keys;
use crate::locks;
use crate::login::{Caller, credentials};
use crate::message::{ACKNOWLEDGE, Answer, Content, IDEMPOTENCY_KEY, Request, answer, is_read, level_of, refusal};
use crate::openapi::OPENAPI;
use crate::options::{BODY_BYTES_MAX, LARGE_BODIES_MAX, Options, SMALL_BODY_BYTES_MAX};
use crate::port::is_loopback;
use crate::resource::Resource;
use crate::rqlite;
use crate::work::Work;

/// The time within which the body of a request must arrive.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// The doors: all endpoints for one database. Cheap to clone; all clones share the streams of their clients.
#[derive(Clone)]
pub struct Doors(Arc<Inner>);

struct Inner {
    env: Env,
    sql: Sql,
    options: Options,
    streams: Streams,
    /// The turns of large bodies.
    large: Arc<Semaphore>,
    /// Whether other machines can reach the doors, so that nobody is let in while there are no users.
    is_exposed: bool,
    /// `http` or `https`.
    scheme: &'static str,
}

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    /// Hrana over WebSocket for those who ask for one.
    HranaVersion,
    Pipeline,
    Cursor,
    Execute1,
    Batch1,
    Events,
    OpenApi,
    Rqlite(rqlite::Endpoint),
    Keys(Resource),
    Locks(Resource),
    Hustdb(hustdb::Endpoint),
}

/// The paths of all endpoints but those of rqlite, of huststore, of keys and of locks.
const PATHS: [(&str, Endpoint); 10] = [
    ("/", Endpoint::HranaVersion),
    ("/v2", Endpoint::HranaVersion),
    ("/v3", Endpoint::HranaVersion),
    ("/v2/pipeline", Endpoint::Pipeline),
    ("/v3/pipeline", Endpoint::Pipeline),
    ("/v3/cursor", Endpoint::Cursor),
    ("/v1/execute", Endpoint::Execute1),
    ("/v1/batch", Endpoint::Batch1),
    (events::PATH, Endpoint::Events),
    ("/openapi.json", Endpoint::OpenApi),
];

impl Endpoint {
    fn of(path: &str) -> Option<Self> {
        let own = PATHS.iter().find(|(own, _)| *own == path).map(|(_, endpoint)| *endpoint);
        let rqlite = || rqlite::Endpoint::of(path).map(Self::Rqlite);
        let keys = || Resource::of(path, keys::ALL).map(Self::Keys);
        let locks = || Resource::of(path, locks::ALL).map(Self::Locks);
        let hustdb = || hustdb::Endpoint::of(path).map(Self::Hustdb);
        own.or_else(rqlite).or_else(keys).or_else(locks).or_else(hustdb)
    }

    /// Returns the methods that it allows, as the header `Allow` lists them.
    fn methods(self) -> &'static str {
        match self {
            Self::HranaVersion | Self::OpenApi => "GET, HEAD",
            Self::Pipeline | Self::Cursor | Self::Execute1 | Self::Batch1 => "POST",
            Self::Events => "GET, POST",
            Self::Rqlite(endpoint) => endpoint.methods(),
            Self::Keys(resource) => keys::methods(resource),
            Self::Locks(resource) => locks::methods(resource),
            Self::Hustdb(endpoint) => endpoint.methods(),
        }
    }

    /// Returns the role that a user needs; `None` if everyone may use it. The statements of a request may need more,
    /// which its handle checks ([`Sql::with_role`]).
    fn role(self, method: &Method) -> Option<UserRole> {
        match self {
            Self::HranaVersion | Self::OpenApi => None,
            Self::Pipeline | Self::Cursor | Self::Execute1 | Self::Batch1 => Some(UserRole::Read),
            Self::Events => Some(UserRole::Read),
            Self::Rqlite(endpoint) => endpoint.role(),
            Self::Hustdb(endpoint) => Some(endpoint.role()),
            Self::Keys(_) | Self::Locks(_) => Some(if is_read(method) { UserRole::Read } else { UserRole::Write }),
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
        Self::make(env, sql, options, false, "http")
    }

    /// Returns the doors to a database on a port at this URL, such as `https://10.0.0.1:8001`. If other machines can
    /// reach it, nobody is let in while there are no users, unless the options are insecure.
    pub fn at(env: &Env, url: &str, sql: Sql, options: Options) -> Self {
        let (scheme, addr) = match url.split_once("://") {
            Some(("https", addr)) => ("https", addr),
            Some((_, addr)) => ("http", addr),
            None => ("http", url),
        };
        let is_exposed = !is_loopback(addr) && !options.insecure;
        Self::make(env, sql, options, is_exposed, scheme)
    }

    fn make(env: &Env, sql: Sql, options: Options, is_exposed: bool, scheme: &'static str) -> Self {
        let streams = Streams::new(env, options.stream_idle, options.transaction_time);
        let large = Arc::new(Semaphore::new(LARGE_BODIES_MAX));
        Self(Arc::new(Inner { env: env.clone(), sql, options, streams, large, is_exposed, scheme }))
    }

    /// Returns whether the doors have an endpoint at a path.
    pub fn has(&self, path: &str) -> bool {
        self.endpoint(path).is_some()
    }

    fn endpoint(&self, path: &str) -> Option<Endpoint> {
        let is_on = |endpoint: &Endpoint| self.0.options.huststore || !matches!(endpoint, Endpoint::Hustdb(_));
        Endpoint::of(path).filter(is_on)
    }

    /// Answers a request from an address (`host:port`) whose body has not been read. Reads at most [`BODY_BYTES_MAX`]
    /// within [`BODY_TIME_MAX`], and nothing of someone who is not let in.
    ///
    /// If the future is dropped, so are the request's transaction and its stream.
    pub async fn serve<B>(&self, mut request: hyper::Request<B>, from: &str) -> Answer
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        if socket::is_asked_for(&request) && self.endpoint(request.uri().path()) == Some(Endpoint::HranaVersion) {
            let opened = self.open_socket(&mut request, from).await;
            return opened.unwrap_or_else(|problem| refusal(&problem));
        }
        let (head, body) = request.into_parts();
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let mut request = Request { method: head.method, path, query, headers: head.headers, body: Bytes::new() };
        let answered = async {
            let admitted = self.admit(&request, from).await?;
            let (body, _turn) = self.read(body).await?;
            request.body = body;
            // Boxed, because the future of a request is large.
            self.dispatch(admitted, &request).boxed().await
        };
        answered.await.unwrap_or_else(|problem| refusal(&problem))
    }

    /// Answers a request from an address (`host:port`).
    pub async fn answer(&self, request: Request, from: &str) -> Answer {
        let answered = async { self.dispatch(self.admit(&request, from).await?, &request).boxed().await };
        answered.await.unwrap_or_else(|problem| refusal(&problem))
    }

    /// Drops the streams of Hrana that their clients have left, as they expire. It never returns, so run it beside the
    /// server. Without it, they are dropped when other streams are used.
    pub async fn sweep(&self) {
        self.0.streams.sweep().await;
    }

    /// Decides whether a request is let in, by all but its body.
    async fn admit(&self, request: &Request, from: &str) -> Result<(Endpoint, Caller), Problem> {
        let endpoint = self.endpoint(&request.path).ok_or(Problem::NotFound)?;
        let allowed = endpoint.methods();
        if !allowed.split(", ").any(|method| method == request.method.as_str()) {
            return Err(Problem::Method(allowed));
        }
        self.check_origin(&request.headers)?;
        let Some(role) = endpoint.role(&request.method) else { return Ok((endpoint, Caller::anyone())) };
        let caller = Caller::of(self.0.options.users.as_ref(), &request.headers, from, role).await?;
        Ok((endpoint, self.let_in(caller)?))
    }

    /// Refuses everyone while there are no users, if other machines can reach the doors.
    fn let_in(&self, caller: Caller) -> Result<Caller, Problem> {
        if caller.name.is_none() && self.0.is_exposed { Err(Problem::Open) } else { Ok(caller) }
    }

    /// Returns who shows these credentials, or nothing, from this address, if the role permits it.
    pub(crate) async fn caller(
        &self,
        shown: Option<&Credentials>,
        from: &str,
        needs: UserRole,
    ) -> Result<Caller, Problem> {
        self.let_in(Caller::by(self.0.options.users.as_ref(), shown, from, needs).await?)
    }

    /// Makes a request a WebSocket. Someone who shows nothing to log in has to do so by a hello.
    async fn open_socket<B>(&self, request: &mut hyper::Request<B>, from: &str) -> Result<Answer, Problem> {
        self.check_origin(request.headers())?;
        if request.headers().contains_key(IDEMPOTENCY_KEY) {
            return Err(Problem::NotOffered(
                "Idempotency-Key is not offered over WebSocket; send the request over HTTP",
            ));
        }
        if request.headers().contains_key(ACKNOWLEDGE) {
            return Err(Problem::NotOffered(
                "Quorate-Acknowledge is not offered over WebSocket; send the request over HTTP",
            ));
        }
        let level = level_of(request.headers())?.unwrap_or(self.0.options.level);
        let shown = match self.0.options.users {
            Some(_) => credentials(request.headers())?,
            None => None,
        };
        if shown.is_some() {
            self.caller(shown.as_ref(), from, UserRole::Read).await?;
        }
        socket::open(self, request, level, shown, from)
    }

    /// Reads a body. What is returned with it is held until the answer is there, because until then the body is in
    /// memory.
    async fn read<B>(&self, body: B) -> Result<(Bytes, Option<SemaphorePermit<'_>>), Problem>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let is_small = body.size_hint().upper().is_some_and(|bytes| bytes <= SMALL_BODY_BYTES_MAX as u64);
        let turn = if is_small {
            None
        } else {
            // The semaphore is never closed.
            let turn = timeout(BODY_TIME_MAX, self.0.large.acquire()).await.ok().and_then(Result::ok);
            Some(turn.ok_or(Error::Overloaded("too many large requests were waiting".into()))?)
        };
        match timeout(BODY_TIME_MAX, Limited::new(body, BODY_BYTES_MAX).collect()).await {
            Ok(Ok(body)) => Ok((body.to_bytes(), turn)),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::BodyTooLarge(BODY_BYTES_MAX)),
            Ok(Err(_)) => Err(Problem::malformed("the connection broke")),
            Err(_) => Err(Problem::malformed(format!("it did not arrive within {BODY_TIME_MAX:?}"))),
        }
    }

    async fn dispatch(&self, (endpoint, caller): (Endpoint, Caller), request: &Request) -> Result<Answer, Problem> {
        let level = level_of(&request.headers)?.unwrap_or(self.0.options.level);
        let mut work = self.work(level, caller).with_key(request.key()?).archived(request.is_archived()?);
        match endpoint {
            Endpoint::HranaVersion => {
                Ok(answer(StatusCode::OK, Content::Text, "Hrana over HTTP and WebSocket, with JSON\n"))
            }
            Endpoint::Pipeline => hrana::pipeline(self, work, &request.body).await,
            Endpoint::Cursor => hrana::cursor(self, work, &request.body).await,
            Endpoint::Execute1 => hrana::stateless(work, &request.body, false).await,
            Endpoint::Batch1 => hrana::stateless(work, &request.body, true).await,
            Endpoint::Events => events::serve(work, request).await,
            Endpoint::OpenApi => Ok(answer(StatusCode::OK, Content::Json, OPENAPI)),
            Endpoint::Rqlite(endpoint) => rqlite::serve(self, work, endpoint, request).await,
            Endpoint::Keys(resource) => keys::serve(work, resource, level, request).await,
            Endpoint::Locks(resource) => locks::serve(&mut work, resource, request).await,
            Endpoint::Hustdb(endpoint) => hustdb::serve(work, endpoint, level, request).await,
        }
    }

    /// Refuses requests of web pages whose origin is not allowed.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = String::from_utf8_lossy(origin.as_bytes());
        if self.0.options.origins.iter().any(|allowed| allowed == &origin) {
            return Ok(());
        }
        Err(Problem::Origin(origin.into_owned()))
    }

    /// Returns what a request does with its handle.
    pub(crate) fn work(&self, level: Level, caller: Caller) -> Work {
        Work::new(self.0.sql.at(level), caller, self.0.options.transaction_time)
    }

    /// Returns the turns of large bodies and messages.
    pub(crate) fn large(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.large)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.env
    }

    /// Returns the URL of the server as the sender of a request knows it.
    pub(crate) fn url(&self, headers: &HeaderMap) -> Option<String> {
        let of_host = || Some(format!("{}://{}", self.0.scheme, headers.get(HOST)?.to_str().ok()?));
        self.0.options.base_url.clone().or_else(of_host)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use std::collections::BTreeSet;

    use super::*;

    /// So the tests that ask each path of the description leave none out. Those of huststore are not described: they
    /// are off unless an option says otherwise, and `docs/huststore.md` has them.
    #[test]
    fn the_description_lists_each_endpoint() {
        let described: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let described: BTreeSet<&str> = described["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let served = PATHS.iter().map(|(path, _)| *path).chain(rqlite::PATHS.iter().map(|(path, _)| *path));
        let served = served.chain(keys::PATHS).chain(locks::PATHS);
        assert_eq!(described, served.collect());
    }
}
