//! The messages of clients over WebSocket, from JSON.
//!
//! Invariant: no bytes cause a panic.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::decode::{Batch, CursorBody, StreamRequest, decode};
use crate::error::Problem;

/// A message of a client.
#[derive(Debug)]
pub(super) enum Message {
    /// Logs in, the first time or again.
    Hello { token: Option<String> },
    /// The answer has the same id.
    Request { id: i32, request: Result<Request, Problem> },
}

/// A request.
#[derive(Debug)]
pub(super) enum Request {
    StoreSql {
        sql_id: i32,
        sql: String,
    },
    CloseSql {
        sql_id: i32,
    },
    /// It is done when the earlier ones on the same stream are.
    OnStream {
        stream_id: i32,
        job: Job,
    },
    /// The same, on the stream of a cursor.
    OnCursor {
        cursor_id: i32,
        job: Job,
    },
}

/// What is to be done on a stream.
#[derive(Debug)]
pub(super) enum Job {
    Open,
    Close,
    Do(StreamRequest),
    OpenCursor { cursor_id: i32, batch: Batch },
    FetchCursor { cursor_id: i32, max_count: u32 },
    CloseCursor { cursor_id: i32 },
}

impl Job {
    /// Returns the name of the request, and of its response.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Open => "open_stream",
            Self::Close => "close_stream",
            Self::Do(request) => request.kind(),
            Self::OpenCursor { .. } => "open_cursor",
            Self::FetchCursor { .. } => "fetch_cursor",
            Self::CloseCursor { .. } => "close_cursor",
        }
    }
}

/// A message as it is written. The request is read on its own, because the id is needed to refuse it.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    jwt: Option<String>,
    #[serde(default)]
    request_id: Option<i32>,
    #[serde(default, borrow)]
    request: Option<&'a RawValue>,
}

/// What tells how to read a request.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    stream_id: Option<i32>,
    #[serde(default)]
    cursor_id: Option<i32>,
    #[serde(default)]
    max_count: Option<u32>,
}

impl Message {
    /// Reads a message. A request that can't be read is a message nevertheless, because it can be answered.
    pub(super) fn read(text: &[u8]) -> Result<Self, Problem> {
        let written: Written<'_> = decode(text)?;
        match (&*written.kind, written.request_id, written.request) {
            ("hello", ..) => Ok(Self::Hello { token: written.jwt }),
            ("request", Some(id), Some(request)) => Ok(Self::Request { id, request: Request::read(request) }),
            ("request", ..) => Err(Problem::malformed("a request has the fields \"request_id\" and \"request\"")),
            _ => Err(Problem::malformed("the type of a message is \"hello\" or \"request\"")),
        }
    }
}

impl Request {
    fn read(text: &RawValue) -> Result<Self, Problem> {
        let text = text.get().as_bytes();
        let head: Head<'_> = decode(text)?;
        let missing = |name: &str| Problem::malformed(format!("the field {name:?} is missing"));
        let stream_id = head.stream_id.ok_or_else(|| missing("stream_id"));
        let cursor_id = head.cursor_id.ok_or_else(|| missing("cursor_id"));
        let job = match &*head.kind {
            "open_stream" => Job::Open,
            "close_stream" => Job::Close,
            "open_cursor" => {
                let CursorBody { batch, .. } = decode(text)?;
                batch.check()?;
                Job::OpenCursor { cursor_id: cursor_id?, batch }
            }
            "fetch_cursor" => {
                let (cursor_id, max_count) = (cursor_id?, head.max_count.ok_or_else(|| missing("max_count"))?);
                return Ok(Self::OnCursor { cursor_id, job: Job::FetchCursor { cursor_id, max_count } });
            }
            "close_cursor" => {
                let cursor_id = cursor_id?;
                return Ok(Self::OnCursor { cursor_id, job: Job::CloseCursor { cursor_id } });
            }
            _ => match decode(text)? {
                // Its name over HTTP.
                StreamRequest::Close => return Err(Problem::malformed("use \"close_stream\"")),
                StreamRequest::StoreSql { sql_id, sql } => return Ok(Self::StoreSql { sql_id, sql }),
                StreamRequest::CloseSql { sql_id } => return Ok(Self::CloseSql { sql_id }),
                request => {
                    request.check()?;
                    Job::Do(request)
                }
            },
        };
        Ok(Self::OnStream { stream_id: stream_id?, job })
    }
}

/// Reads any bytes as a message, for fuzzing; returns whether they are one, and a request that can be done if they are
/// a request.
pub(crate) fn fuzz_message(text: &[u8]) -> bool {
    match Message::read(text) {
        Ok(Message::Hello { .. }) => true,
        Ok(Message::Request { request, .. }) => request.is_ok(),
        Err(_) => false,
    }
}
