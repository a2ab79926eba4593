//! The HTTP API of rqlite, for its clients.
//!
//! Where rqlite weakens a guarantee, this does not: queued writes are done when they are answered, and a statement that
//! could leave a transaction open is refused. Any node serves any request, so none is redirected.

mod asked;
mod backup;
mod cluster;
mod decode;
mod encode;
mod run;

pub(crate) use decode::fuzz_statements;

use std::time::Duration;

use hyper::{Method, StatusCode};
use quorate::users::UserRole;
use quorate_env::Instant;

use crate::door::Doors;
use crate::error::Problem;
use crate::json::Json;
use crate::message::{Answer, Content, Request, answer, with_position};
use crate::text::{Kind, bind, split};
use crate::work::{Bound, Work};
use asked::Asked;
use run::Mode;

/// The beginning of a file of SQLite.
const SQLITE_FILE: &[u8] = b"SQLite format 3\0";

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Execute,
    Query,
    Request,
    Load,
    Backup,
    Boot,
    Ready,
    Status,
    Nodes,
    Leader,
    Licenses,
}

/// The paths of all endpoints.
pub(crate) const PATHS: [(&str, Endpoint); 11] = [
    ("/db/execute", Endpoint::Execute),
    ("/db/query", Endpoint::Query),
    ("/db/request", Endpoint::Request),
    ("/db/load", Endpoint::Load),
    ("/db/backup", Endpoint::Backup),
    ("/boot", Endpoint::Boot),
    ("/readyz", Endpoint::Ready),
    ("/status", Endpoint::Status),
    ("/nodes", Endpoint::Nodes),
    ("/leader", Endpoint::Leader),
    ("/licenses", Endpoint::Licenses),
];

impl Endpoint {
    pub(crate) fn of(path: &str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        PATHS.iter().find(|(own, _)| *own == path).map(|(_, endpoint)| *endpoint)
    }

    /// Returns the role that a user needs; `None` if everyone may use it.
    pub(crate) fn role(self) -> Option<UserRole> {
        match self {
            // For load balancers.
            Self::Ready => None,
            Self::Query | Self::Request | Self::Status | Self::Nodes | Self::Leader | Self::Licenses => {
                Some(UserRole::Read)
            }
            Self::Execute | Self::Load => Some(UserRole::Write),
            Self::Backup | Self::Boot => Some(UserRole::Admin),
        }
    }

    pub(crate) fn methods(self) -> &'static str {
        match self {
            Self::Execute | Self::Request | Self::Load | Self::Boot => "POST",
            Self::Query | Self::Leader => "GET, HEAD, POST",
            Self::Backup => "GET",
            Self::Ready | Self::Status | Self::Nodes | Self::Licenses => "GET, HEAD",
        }
    }
}

/// Answers a request.
pub(crate) async fn serve(doors: &Doors, work: Work, endpoint: Endpoint, request: &Request) -> Result<Answer, Problem> {
    let asked = Asked::of(request)?;
    match endpoint {
        Endpoint::Execute => data(work, Mode::Execute, &asked, decode::statements(request)?).await,
        Endpoint::Query => {
            let statements =
                if request.method == Method::POST { decode::statements(request)? } else { asked.query()? };
            data(work, Mode::Query, &asked, statements).await
        }
        Endpoint::Request => data(work, Mode::Unified, &asked, decode::statements(request)?).await,
        Endpoint::Load => load(work, &request.body).await,
        Endpoint::Backup => backup::backup(doors, &asked).await,
        Endpoint::Boot => {
            let text = "a running cluster can't be replaced by a file; use `quorate restore`, or /db/load for a script";
            Err(Problem::NotOffered(text))
        }
        Endpoint::Leader if request.method == Method::POST => {
            Err(Problem::NotOffered("leadership is not handed over by this port; use `quorate members`"))
        }
        Endpoint::Ready | Endpoint::Status | Endpoint::Nodes | Endpoint::Leader | Endpoint::Licenses => {
            Ok(cluster::page(doors, endpoint, &asked, doors.url(&request.headers)).await)
        }
    }
}

/// Runs statements and answers with their results.
async fn data(work: Work, mode: Mode, asked: &Asked, statements: Vec<decode::Statement>) -> Result<Answer, Problem> {
    let begun = Instant::now();
    let mut work = asked.limits(work);
    let results = run::run(&mut work, mode, asked, statements).await?;
    let mut json = Json::default();
    // A queued write was done before this answer, so its number is where it stands in the log.
    let has_failed = results.iter().any(|result| result.ran.is_err());
    let shown = if asked.queue && !has_failed { &[][..] } else { &results[..] };
    json.raw("{\"results\":").list(shown, |json, result| encode::write(json, result, asked));
    if let Some(position) = work.position().filter(|_| asked.queue || asked.raft_index) {
        json.raw(if asked.queue { ",\"sequence_number\":" } else { ",\"raft_index\":" }).integer(position.index);
    }
    if asked.timings {
        json.raw(",\"time\":").float(begun.elapsed().as_secs_f64());
    }
    json.raw("}");
    let body = if asked.pretty { encode::pretty(&json.into_bytes()) } else { json.into_bytes() };
    Ok(with_position(answer(StatusCode::OK, Content::Json, body), work.position()))
}

/// Runs a script as one transaction, such as a dump of `sqlite3`.
async fn load(mut work: Work, body: &[u8]) -> Result<Answer, Problem> {
    if body.starts_with(SQLITE_FILE) {
        let text = "files of SQLite can't be loaded into a running cluster; load a script, use `quorate import`, or \
                    found a cluster with `quorate restore`";
        return Err(Problem::NotOffered(text));
    }
    let script = std::str::from_utf8(body).map_err(|error| Problem::malformed(error.to_string()))?;
    let frame = |statement: &&str| matches!(Kind::of(statement), Kind::Begin(_) | Kind::Commit | Kind::ForeignKeys(_));
    let statements = split(script).into_iter().filter(|statement| !frame(statement));
    let bound = statements.map(|statement| Ok((statement.to_owned(), bind(statement, Vec::new(), Vec::new())?)));
    let bound = bound.collect::<Result<Vec<Bound>, Problem>>()?;
    if !bound.is_empty() {
        work.batch(bound).await?;
    }
    Ok(with_position(answer(StatusCode::OK, Content::Json, "{\"results\":[]}"), work.position()))
}

/// The time that one result took, if times are asked for.
fn since(begun: Instant) -> Duration {
    begun.elapsed()
}
