//! The endpoints of huststore for keys, `/hustdb/...`, for its clients (`docs/huststore.md`). They are off unless an
//! option says otherwise.
//!
//! What huststore calls a key is a string in [`KEYS`]; a table is a hash, a set or a sorted set in [`TABLES`]. A key
//! and a field of a hash have versions of their own; a member of a set or of a sorted set has that of its table.
//!
//! # Invariants
//!
//! - A request that writes is one entry of the log. Of two that depend on the same version (`ver`), at most one is
//!   done.
//! - An answer never shows an older value than its `Version`.
//! - What is not understood is refused: a parameter, an unreadable escape.

mod list;
mod page;
mod read;
mod stat;
mod thing;
mod write;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Method, StatusCode};
use quorate::keys::{Space, Version};
use quorate::users::UserRole;
use quorate::{Error, FailureKind, Level};

use crate::asked::Asked;
use crate::error::Problem;
use crate::message::{Answer, Content, Request, answer, empty, refusal, with_position};
use crate::work::Work;
use thing::Thing;

/// What the paths start with.
const ROOT: &str = "/hustdb/";

/// The space of keys.
const KEYS: Space = 0;

/// The space of tables. In huststore, too, a key and a table may have the same name.
const TABLES: Space = 1;

/// The header with the version of what a request is about; 0 if it is missing.
const VERSION: HeaderName = HeaderName::from_static("version");

/// The header that says whether a write was not done because of the version.
const VERSION_ERROR: HeaderName = HeaderName::from_static("vererror");

/// The header by which a browser says where a request comes from.
const FETCH_SITE: &str = "sec-fetch-site";

/// What an endpoint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Key,
    Hash,
    Set,
    SortedSet,
}

/// What an endpoint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Exist,
    Get,
    Put,
    Delete,
    Increment,
    List,
    ListByScore,
    Stat,
    StatAll,
    FileCount,
}

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    of: Of,
    does: Does,
    /// Whether it reads at the level `linearizable`, whatever the request says.
    is_latest: bool,
}

/// The names of the endpoints that read the latest state, as those of both masters in huststore. Without the 2 they are
/// the others.
const LATEST: [&str; 4] = ["get2", "hget2", "sismember2", "zscore2"];

/// The names of all other endpoints.
const NAMES: [(&str, Of, Does); 24] = [
    ("exist", Of::Key, Does::Exist),
    ("get", Of::Key, Does::Get),
    ("put", Of::Key, Does::Put),
    ("del", Of::Key, Does::Delete),
    ("keys", Of::Key, Does::List),
    ("hexist", Of::Hash, Does::Exist),
    ("hget", Of::Hash, Does::Get),
    ("hset", Of::Hash, Does::Put),
    ("hdel", Of::Hash, Does::Delete),
    ("hincrby", Of::Hash, Does::Increment),
    ("hkeys", Of::Hash, Does::List),
    ("sismember", Of::Set, Does::Exist),
    ("sadd", Of::Set, Does::Put),
    ("srem", Of::Set, Does::Delete),
    ("smembers", Of::Set, Does::List),
    ("zismember", Of::SortedSet, Does::Exist),
    ("zscore", Of::SortedSet, Does::Get),
    ("zadd", Of::SortedSet, Does::Put),
    ("zrem", Of::SortedSet, Does::Delete),
    ("zrangebyrank", Of::SortedSet, Does::List),
    ("zrangebyscore", Of::SortedSet, Does::ListByScore),
    ("stat", Of::Key, Does::Stat),
    ("stat_all", Of::Key, Does::StatAll),
    ("file_count", Of::Key, Does::FileCount),
];

impl Endpoint {
    pub(crate) fn of(path: &str) -> Option<Self> {
        let name = path.strip_prefix(ROOT)?;
        let is_latest = LATEST.contains(&name);
        let name = if is_latest { name.strip_suffix('2')? } else { name };
        NAMES.iter().find(|(own, ..)| *own == name).map(|(_, of, does)| Self { of: *of, does: *does, is_latest })
    }

    /// Returns the methods that it allows, as the header `Allow` lists them: `POST` where a body may name an element or
    /// be a value.
    pub(crate) fn methods(self) -> &'static str {
        match (self.of, self.does) {
            (_, Does::Put) | (Of::Set | Of::SortedSet, Does::Exist | Does::Get | Does::Delete) => "GET, POST",
            _ => "GET",
        }
    }

    pub(crate) fn role(self) -> UserRole {
        if self.writes() { UserRole::Write } else { UserRole::Read }
    }

    fn writes(self) -> bool {
        matches!(self.does, Does::Put | Does::Delete | Does::Increment)
    }
}

/// Answers a request, whose reads have this level.
pub(crate) async fn serve(work: Work, endpoint: Endpoint, level: Level, request: &Request) -> Result<Answer, Problem> {
    if endpoint.writes() {
        check_page(&request.headers)?;
    }
    let level = if endpoint.is_latest { Level::Linearizable } else { level };
    let mut work = work.with(|sql| sql.at(level));
    let asked = Asked::literal(request)?;
    let answered = run(&mut work, endpoint, level, request, &asked).await;
    let answered = answered.or_else(|problem| refused(problem, endpoint))?;
    Ok(with_position(answered, work.position()))
}

async fn run(
    work: &mut Work,
    Endpoint { of, does, .. }: Endpoint,
    level: Level,
    request: &Request,
    asked: &Asked<'_>,
) -> Result<Answer, Problem> {
    let keys = work.sql().keys();
    let thing = || Thing::of(&keys, of, asked, request);
    match does {
        Does::Exist => read::exist(&thing()?, asked, level).await,
        Does::Get => read::get(&thing()?, asked, level).await,
        Does::Put => write::put(work, &thing()?, asked, request).await,
        Does::Delete => write::delete(work, &thing()?, asked).await,
        Does::Increment => write::increment(work, &thing()?, asked).await,
        Does::List => list::list(&keys, of, asked, level).await,
        Does::ListByScore => list::by_score(&keys, asked, level).await,
        Does::Stat => stat::one(&keys, asked).await,
        Does::StatAll => stat::all(&keys, asked).await,
        Does::FileCount => stat::file_count(asked),
    }
}

/// Refuses a write of a web page. A browser sends no `Origin`, which is checked for all requests, with a `GET` for the
/// picture of a page, and a `GET` writes here.
fn check_page(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get(FETCH_SITE).filter(|_| !headers.contains_key(ORIGIN)) {
        Some(site) if site != "none" && site != "same-origin" => Err(Problem::Origin("another site".into())),
        _ => Ok(()),
    }
}

/// Says with the status of huststore why a request failed, if it has one for that.
fn refused(problem: Problem, endpoint: Endpoint) -> Result<Answer, Problem> {
    let (status, version) = match &problem {
        Problem::Precondition(version) => (StatusCode::UNAUTHORIZED, *version),
        Problem::NoKey => (StatusCode::NOT_FOUND, None),
        Problem::NoTable => (StatusCode::PRECONDITION_FAILED, None),
        Problem::NotInteger => (StatusCode::FORBIDDEN, None),
        Problem::Sql(Error::Failed(failure)) => match failure.kind {
            FailureKind::WrongType => (StatusCode::PRECONDITION_FAILED, None),
            FailureKind::InvalidValue => (StatusCode::FORBIDDEN, None),
            _ => return Err(problem),
        },
        _ => return Err(problem),
    };
    let mut answer = refusal(&problem);
    *answer.status_mut() = status;
    let is_conflict = matches!(problem, Problem::Precondition(_));
    let answer = with_version(answer, version.unwrap_or_default());
    Ok(if endpoint.writes() { with_version_error(answer, is_conflict) } else { answer })
}

/// Answers a write that was done.
fn written(version: Version, text: Option<String>) -> Answer {
    let done = match text {
        Some(text) => answer(StatusCode::OK, Content::Text, text),
        None => empty(StatusCode::OK),
    };
    with_version_error(with_version(done, version), false)
}

fn with_version(mut answer: Answer, version: Version) -> Answer {
    answer.headers_mut().insert(VERSION, HeaderValue::from(version.0));
    answer
}

fn with_version_error(mut answer: Answer, is_error: bool) -> Answer {
    answer.headers_mut().insert(VERSION_ERROR, HeaderValue::from_static(if is_error { "true" } else { "false" }));
    answer
}

/// Returns the body of a request, or else a parameter; a `POST` needs a body.
fn body_or(request: &Request, asked: &Asked<'_>, name: &'static str) -> Result<Bytes, Problem> {
    if !request.body.is_empty() {
        return Ok(request.body.clone());
    }
    if request.method == Method::POST {
        return Err(Problem::NoParameter("body"));
    }
    parameter(asked, name)
}

/// Returns a parameter that must be there. It is not empty.
fn parameter(asked: &Asked<'_>, name: &'static str) -> Result<Bytes, Problem> {
    let given = asked.bytes(name).cloned().ok_or(Problem::NoParameter(name))?;
    if given.is_empty() {
        return Err(Problem::malformed(format!("'{name}' is empty")));
    }
    Ok(given)
}
