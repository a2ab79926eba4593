//! Requests to the doors, and their answers.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE,
    WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Response, StatusCode};
use quorate::types::{Epoch, GroupId};
use quorate::users::Denied;
use quorate::{Error, Level, Position};
use serde_json::json;

use crate::asked::Asked;
use crate::error::Problem;
use crate::keys::tag;
use crate::options::IDEMPOTENCY_KEY_BYTES_MAX;

/// The header that names the level of the reads of a request.
pub(crate) const LEVEL: &str = "quorate-level";

/// The header that returns the position of the last write of a request.
pub(crate) const POSITION: &str = "quorate-position";

/// The header by which a client asks for an answer only when its writes are archived.
pub(crate) const ACKNOWLEDGE: &str = "quorate-acknowledge";

/// The header by which a client asks that a write be done once, however often it is sent.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// An answer.
pub type Answer = Response<AnswerBody>;

/// The body of an answer: whole, or in pieces that are read as they are sent.
pub type AnswerBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, io::Error>>;

/// A request whose body has been read.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query of the URL, without the `?`; empty if the URL has no query.
    pub query: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// The type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Json,
    Lines,
    Text,
    /// Bytes of any kind.
    Octets,
    /// A file of SQLite.
    Database,
    /// Server-Sent Events.
    Events,
}

/// Returns a body that is whole.
pub fn whole(body: impl Into<Bytes>) -> AnswerBody {
    Either::Left(Full::new(body.into()))
}

/// Returns an answer.
pub(crate) fn answer(status: StatusCode, content: Content, body: impl Into<Bytes>) -> Answer {
    answer_with(status, content, whole(body))
}

/// Returns an answer with a body that may come in pieces.
pub(crate) fn answer_with(status: StatusCode, content: Content, body: AnswerBody) -> Answer {
    let content = match content {
        Content::Json => "application/json",
        Content::Lines => "application/x-ndjson",
        Content::Text => "text/plain; charset=utf-8",
        Content::Octets => "application/octet-stream",
        Content::Database => "application/vnd.sqlite3",
        Content::Events => "text/event-stream",
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Returns an answer without a body.
pub(crate) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(whole(Bytes::new()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Returns the answer that says only why a request failed, in the words of Hrana and those of rqlite.
pub(crate) fn refusal(problem: &Problem) -> Answer {
    let text = problem.to_string();
    let body = json!({ "message": text, "code": problem.code(), "error": text }).to_string();
    let mut answer = answer(problem.status(), Content::Json, body);
    let headers = answer.headers_mut();
    match problem {
        Problem::Denied(Denied::TooMany(time)) => {
            headers.insert(RETRY_AFTER, HeaderValue::from(time.as_secs().saturating_add(1)));
        }
        _ if problem.status() == StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ if problem.status() == StatusCode::UNAUTHORIZED => {
            for scheme in ["Bearer realm=\"quorate\"", "Basic realm=\"quorate\", charset=\"UTF-8\""] {
                headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
            }
        }
        Problem::WebSocketVersion => {
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        Problem::Method(allowed) => {
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        Problem::Precondition(Some(version)) => {
            headers.insert(ETAG, tag(*version));
        }
        _ => {}
    }
    match problem {
        Problem::Sql(Error::NotArchived { position, .. }) => with_position(answer, Some(*position)),
        _ => answer,
    }
}

/// Adds the position of the last write to an answer.
pub(crate) fn with_position(mut answer: Answer, position: Option<Position>) -> Answer {
    if let Some(value) = position.and_then(|position| HeaderValue::from_str(&position.to_string()).ok()) {
        answer.headers_mut().insert(POSITION, value);
    }
    answer
}

/// Returns whether a method only reads a resource.
pub(crate) fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

/// Returns the level that a request names, if it does.
pub(crate) fn level_of(headers: &HeaderMap) -> Result<Option<Level>, Problem> {
    let Some(value) = headers.get(LEVEL) else { return Ok(None) };
    let level = value.to_str().ok().and_then(level);
    let help = "Quorate-Level is one of: local, linearizable, bounded=5s, at-least=POSITION";
    level.map(Some).ok_or_else(|| Problem::malformed(help))
}

impl Request {
    /// Returns whether the writes of the request are to be archived before it is answered.
    pub(crate) fn is_archived(&self) -> Result<bool, Problem> {
        let Some(value) = self.headers.get(ACKNOWLEDGE) else { return Ok(false) };
        if value == "archived" {
            return Ok(true);
        }
        Err(Problem::malformed("Quorate-Acknowledge is 'archived', or absent"))
    }

    /// Returns the key of the request, if it has one.
    pub(crate) fn key(&self) -> Result<Option<String>, Problem> {
        let Some(value) = self.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        let key = value.to_str().ok().filter(|key| (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()));
        let help =
            || Problem::malformed(format!("Idempotency-Key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} visible letters"));
        key.map(|key| Some(key.to_owned())).ok_or_else(help)
    }

    /// Returns the values of the query by name, decoded. A name without `=` has an empty value. Bytes that are not
    /// UTF-8 are replaced.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.byte_parameters().map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
    }

    /// Does so with the bytes of the values as they are.
    pub(crate) fn byte_parameters(&self) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
        self.raw_parameters()
            .map(|(name, value)| (String::from_utf8_lossy(&unescaped(name)).into_owned(), unescaped(value)))
    }

    /// Returns the values of the query by name, as they were sent.
    pub(crate) fn raw_parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

/// Reads a level: `local`, `linearizable`, `bounded=5s` or `at-least=POSITION`.
pub fn level(text: &str) -> Option<Level> {
    let text = text.trim();
    match text.split_once('=') {
        None if text.eq_ignore_ascii_case("local") => Some(Level::Local),
        None if text.eq_ignore_ascii_case("linearizable") => Some(Level::Linearizable),
        Some((name, age)) if name.trim().eq_ignore_ascii_case("bounded") => duration(age).map(Level::Bounded),
        Some((name, at)) if name.trim().eq_ignore_ascii_case("at-least") => position(at).map(Level::AtLeast),
        _ => None,
    }
}

/// Reads a position as [`Position`] displays it: the epoch, the group and the index, with dots.
fn position(text: &str) -> Option<Position> {
    let mut parts = text.trim().split('.');
    let (epoch, group, index) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    Some(Position {
        epoch: Epoch(epoch.parse().ok()?),
        group: GroupId(group.parse().ok()?),
        index: index.parse().ok()?,
    })
}

/// Reads a time such as `5s`, `1.5s`, `300ms` or `1m30s`, as programs in Go write them; a number alone means seconds.
pub fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let mut rest = text.trim();
    if let Ok(seconds) = rest.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?)?;
        rest = tail;
    }
    Some(total).filter(|_| !text.trim().is_empty())
}

/// Decodes `+` and `%20` of a query.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        let (byte, taken) = match (first, hex) {
            (b'%', Some(byte)) => (byte, 3),
            (b'+', _) => (b' ', 1),
            (byte, _) => (*byte, 1),
        };
        bytes.push(byte);
        rest = rest.get(taken..).unwrap_or_default();
    }
    bytes
}

/// Reads the level and the query of a request, for fuzzing; returns the number of values in the query.
pub(crate) fn fuzz_request(text: &str, query: &str) -> usize {
    let _ = (level(text), duration(text));
    let request = Request { query: query.to_owned(), ..Request::default() };
    let _ = Asked::literal(&request);
    request.parameters().count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn levels_are_read_as_they_are_documented() {
        let at = Position { epoch: Epoch(2), group: GroupId::MAIN, index: 77 };
        for (text, found) in [
            ("local", Some(Level::Local)),
            (" Linearizable ", Some(Level::Linearizable)),
            ("bounded=5s", Some(Level::Bounded(Duration::from_secs(5)))),
            ("bounded = 1m1.5s", Some(Level::Bounded(Duration::from_millis(61_500)))),
            (&format!("at-least={at}"), Some(Level::AtLeast(at))),
            ("strong", None),
            ("bounded=", None),
            ("bounded=5 parsecs", None),
            ("at-least=1.2", None),
            ("at-least=1.1.2.3", None),
        ] {
            assert_eq!(level(text), found, "{text}");
        }
    }

    #[test]
    fn the_query_is_decoded() {
        let query = "q=SELECT+%22a%26b%22%2C1&pretty&level=none&x=%zz%4".to_owned();
        let request = Request { query, ..Request::default() };
        let found: Vec<_> = request.parameters().collect();
        let expected = [("q", "SELECT \"a&b\",1"), ("pretty", ""), ("level", "none"), ("x", "%zz%4")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    proptest! {
        #[test]
        fn any_text_is_a_level_or_none(text in "\\PC{0,30}|(bounded|at-least)=[0-9.a-zµ]{0,20}") {
            let _ = (level(&text), unescaped(&text));
        }

        #[test]
        fn positions_are_read_as_they_are_shown(epoch: u64, group: u32, index: u64) {
            let at = Position { epoch: Epoch(epoch), group: GroupId(group), index };
            prop_assert_eq!(position(&at.to_string()), Some(at));
        }
    }
}
