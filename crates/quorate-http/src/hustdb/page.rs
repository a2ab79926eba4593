//! What a listing asks for, and what it answers with.

use std::future::Future;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use quorate::Error;
use quorate::keys::limits::READ_ROWS_MAX;
use quorate::keys::{Page, Version};

use crate::asked::Asked;
use crate::error::Problem;
use crate::json::Json;
use crate::message::{Answer, Content, answer};
use crate::options::{ANSWER_BYTES_MAX, HUSTSTORE_OFFSET_MAX, HUSTSTORE_ROWS_MAX};
use crate::work::too_large;

/// The number of slots that huststore sorts keys into.
const SLOTS: u64 = 1_024;

/// The header with the number of rows of a page.
const ROWS: HeaderName = HeaderName::from_static("keys");

/// The header with the number of rows of a snapshot; 0, because there are none.
const TOTAL: HeaderName = HeaderName::from_static("totalcount");

/// The parameters of all listings.
pub(super) const COMMON: [&str; 6] = ["offset", "size", "start", "end", "noval", "async"];

/// Which rows of a list are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) has_values: bool,
}

/// A row of a list.
pub(super) struct Row {
    pub(super) key: Bytes,
    pub(super) value: Option<Value>,
    pub(super) version: Version,
    pub(super) expires_at: Option<u64>,
}

/// The value of a row.
pub(super) enum Value {
    Bytes(Bytes),
    Score(f64),
}

impl Window {
    pub(super) fn of(asked: &Asked<'_>) -> Result<Self, Problem> {
        let number = |name, max| {
            let number: u64 = asked.number(name)?.ok_or(Problem::NoParameter(name))?;
            if number <= max { Ok(number) } else { Err(Problem::malformed(format!("'{name}' is at most {max}"))) }
        };
        let (offset, size) = (number("offset", HUSTSTORE_OFFSET_MAX)?, number("size", HUSTSTORE_ROWS_MAX)?);
        let slots = asked.number("start")?.unwrap_or(0)..asked.number("end")?.unwrap_or(SLOTS);
        if slots != (0..SLOTS) {
            return Err(Problem::malformed(format!("there are no slots, so 'start' is 0 and 'end' is {SLOTS}")));
        }
        if asked.flag("async")? {
            return Err(Problem::malformed("there are no exports, so 'async' is false"));
        }
        let has_values = !asked.flag("noval")? && asked.text("noval")?.is_some();
        Ok(Self { offset, size, has_values })
    }

    /// Reads the rows, by pages that start at a row, have a number of rows, and are before or in the window.
    pub(super) async fn read<T, F>(
        self,
        mut fetch: impl FnMut(Bytes, u64, bool) -> F,
        bytes_of: impl Fn(&T) -> usize,
    ) -> Result<Vec<T>, Problem>
    where
        F: Future<Output = Result<Page<T>, Error>>,
    {
        let count = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
        let (mut from, mut passed, mut rows, mut bytes) = (Bytes::new(), 0, Vec::new(), 0_usize);
        loop {
            let before = self.offset.saturating_sub(passed);
            let left = if before > 0 { before } else { self.size.saturating_sub(count(rows.len())) };
            if left == 0 {
                return Ok(rows);
            }
            let page = fetch(from, left.min(READ_ROWS_MAX), before == 0).await?;
            if before > 0 {
                passed = passed.saturating_add(count(page.rows.len()));
            } else {
                bytes = page.rows.iter().fold(bytes, |bytes, row| bytes.saturating_add(bytes_of(row)));
                rows.extend(page.rows);
            }
            if bytes > ANSWER_BYTES_MAX {
                return Err(too_large().into());
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(rows),
            }
        }
    }
}

/// Answers with rows, with their versions if these are not newer than the rows.
pub(super) fn answer_rows(rows: Vec<Row>, has_versions: bool) -> Answer {
    let count = rows.len();
    let mut json = Json::default();
    json.list(rows, |json, row| write(json, row, has_versions));
    let mut answer = answer(StatusCode::OK, Content::Json, json.into_bytes());
    answer.headers_mut().insert(ROWS, HeaderValue::from(count));
    answer.headers_mut().insert(TOTAL, HeaderValue::from(0));
    answer
}

fn write(json: &mut Json, row: Row, has_versions: bool) {
    json.raw("{\"key\":").base64(&row.key, true);
    match row.value {
        Some(Value::Bytes(value)) => _ = json.raw(",\"val\":").base64(&value, true),
        Some(Value::Score(score)) => _ = json.raw(",\"val\":").string(&score.to_string()),
        None => {}
    }
    if has_versions {
        json.raw(",\"ver\":").integer(row.version.0);
    }
    if let Some(at) = row.expires_at {
        json.raw(",\"ttl\":").integer(at / 1_000_000_000);
    }
    json.raw("}");
}
