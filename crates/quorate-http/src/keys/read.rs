//! Reads a key, or a field of a hash: strings and fields as they are, collections as JSON, a page at a time.

use std::ops::Bound;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use quorate::keys::{HashCommand, KeyCommand, KeyEntry, KeyInfo, Kind, Order, Page, Range, Span};
use quorate::{Keys, Level};

use super::conditions::{Found, of_read, tag};
use super::encode::{self, name};
use super::ranges::{Part, part};
use super::target::{Target, described};
use crate::asked::Asked;
use crate::error::Problem;
use crate::json::{Json, seconds};
use crate::message::{Answer, Content, answer, empty};
use crate::octets::encoded;
use crate::work::Work;

/// The header that says what a key holds.
const TYPE: HeaderName = HeaderName::from_static("quorate-type");

/// The header that says when a key, or a field, expires, in seconds since 1970.
const EXPIRES: HeaderName = HeaderName::from_static("quorate-expires");

/// The parameters of all reads.
const COMMON: [&str; 2] = ["space", "field"];

/// Answers with a key, or with a field of a hash.
pub(super) async fn get(work: &Work, asked: &Asked<'_>, level: Level) -> Result<Answer, Problem> {
    let target = Target::of(&work.sql().keys(), asked)?;
    if let Some(field) = target.field() {
        return get_field(&target, field, asked, level).await;
    }
    let Some(KeyEntry { info, value, .. }) = find(target.keys(), target.key()).await? else {
        of_read(asked.headers, None)?;
        return Err(Problem::NoKey);
    };
    if let Some(value) = value {
        asked.only(&COMMON)?;
        return raw(asked, &info, Some(value), true);
    }
    let is_tagged = level == Level::Linearizable;
    if of_read(asked.headers, is_tagged.then_some(info.version))? == Found::NotModified {
        return Ok(with_info(not_modified(), &info, is_tagged));
    }
    let body = page(&target, asked, &info).await?;
    Ok(with_info(answer(StatusCode::OK, Content::Json, body.into_bytes()), &info, is_tagged))
}

/// Reads a key, with its value if it is a string: one state.
pub(crate) async fn find(keys: &Keys, key: Bytes) -> Result<Option<KeyEntry>, Problem> {
    let next = Bytes::from([&key[..], &[0]].concat());
    let span = Span { from: key, to: Some(next) };
    let scan = KeyCommand::Scan { span, order: Order::Up, limit: 1, kind: None, values: true };
    let page: Page<KeyEntry> = keys.run(scan).await?;
    Ok(page.rows.into_iter().next())
}

/// Answers with a field. Its version is read before its value: only at the level `linearizable` the value is not older.
async fn get_field(target: &Target, field: &Bytes, asked: &Asked<'_>, level: Level) -> Result<Answer, Problem> {
    asked.only(&COMMON)?;
    let info = described(Some(target.describe().await?));
    let values =
        target.keys().run::<Vec<Option<Bytes>>>(HashCommand::Get { key: target.key(), fields: vec![field.clone()] });
    let (Some(info), Some(value)) = (info, values.await?.into_iter().next().flatten()) else {
        of_read(asked.headers, None)?;
        return Err(Problem::NoKey);
    };
    raw(asked, &info, Some(value), level == Level::Linearizable)
}

/// Answers with a value as it is, or with the part that is asked for.
fn raw(asked: &Asked<'_>, info: &KeyInfo, value: Option<Bytes>, is_tagged: bool) -> Result<Answer, Problem> {
    let (value, version) = (value.unwrap_or_default(), is_tagged.then_some(info.version));
    if of_read(asked.headers, version)? == Found::NotModified {
        return Ok(with_info(not_modified(), info, is_tagged));
    }
    let length = value.len();
    let mut answer = match part(asked.headers, version, length) {
        Part::All => answer(StatusCode::OK, Content::Octets, value),
        Part::Bytes(range) => {
            let place = format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1));
            placed(answer(StatusCode::PARTIAL_CONTENT, Content::Octets, value.slice(range)), &place)
        }
        Part::Outside => {
            let empty = answer(StatusCode::RANGE_NOT_SATISFIABLE, Content::Octets, Bytes::new());
            placed(empty, &format!("bytes */{length}"))
        }
    };
    answer.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    Ok(with_info(answer, info, is_tagged))
}

fn placed(mut answer: Answer, place: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(place) {
        answer.headers_mut().insert(CONTENT_RANGE, value);
    }
    answer
}

fn not_modified() -> Answer {
    empty(StatusCode::NOT_MODIFIED)
}

/// Adds what there is to know of a key to an answer.
pub(super) fn with_info(mut answer: Answer, info: &KeyInfo, is_tagged: bool) -> Answer {
    let headers = answer.headers_mut();
    headers.insert(TYPE, HeaderValue::from_static(name(info.kind)));
    // A browser must not take what someone has stored for a page.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_tagged {
        headers.insert(ETAG, tag(info.version));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    }
    if let Some(value) = info.expires_at.and_then(|at| HeaderValue::from_str(&seconds(at)).ok()) {
        headers.insert(EXPIRES, value);
    }
    answer
}

/// Reads a page of a collection.
async fn page(target: &Target, asked: &Asked<'_>, info: &KeyInfo) -> Result<Json, Problem> {
    let (keys, key, limit) = (target.keys(), target.key(), asked.limit()?);
    let mut json = Json::default();
    json.raw("{");
    encode::info(&mut json, info);
    let next = match info.kind {
        Kind::Hash | Kind::Set => {
            asked.only(&["space", "field", "from", "limit"])?;
            let from = asked.bytes("from").cloned().unwrap_or_default();
            let scan = match info.kind {
                Kind::Hash => keys.hash(key).scan(),
                _ => keys.set_of(key).scan(),
            };
            let Page { rows, next } = scan.starting_at(from).limit(limit).await?;
            match info.kind {
                Kind::Hash => json.raw(",\"fields\":").list(rows, encode::pair),
                _ => json.raw(",\"members\":").list(rows, |json, (member, _)| encode::bytes(json, member)),
            };
            next.map(|next| ("from", encoded(&next)))
        }
        Kind::SortedSet => {
            asked.only(&["space", "field", "min", "max", "reverse", "offset", "limit"])?;
            let offset = asked.number("offset")?.unwrap_or(0_u64);
            let range = keys.sorted_set(key).range(scores(asked)?).skip(offset).limit(limit);
            let rows = if asked.flag("reverse")? { range.reverse().await? } else { range.await? };
            let next = is_full(rows.len(), limit).then(|| ("offset", offset.saturating_add(limit).to_string()));
            json.raw(",\"members\":").list(rows, encode::scored);
            next
        }
        // A string is read with its version; it has become a collection, and a string again.
        Kind::List | Kind::String => {
            asked.only(&["space", "field", "offset", "limit"])?;
            let offset = asked.number("offset")?.unwrap_or(0_i64);
            let end = offset.saturating_add_unsigned(limit);
            let last = if offset < 0 && end >= 0 { -1 } else { end.saturating_sub(1) };
            let items = keys.list(key).range(offset, last).await?;
            let next = (is_full(items.len(), limit) && end != 0).then(|| ("offset", end.to_string()));
            json.raw(",\"items\":").list(items, encode::bytes);
            next
        }
    };
    asked.write_next(&mut json, next.as_ref().map(|(name, value)| (*name, value.as_str())));
    Ok(json)
}

fn is_full(rows: usize, limit: u64) -> bool {
    u64::try_from(rows).is_ok_and(|rows| rows >= limit)
}

/// Returns the range of scores that is asked for: all members, if none is. Both ends are inside.
fn scores(asked: &Asked<'_>) -> Result<Range, Problem> {
    let end = |name| -> Result<Option<f64>, Problem> {
        let score = asked.number::<f64>(name)?;
        if score.is_some_and(f64::is_nan) {
            Err(Problem::malformed(format!("'{name}' is a number")))
        } else {
            Ok(score)
        }
    };
    let bound = |score: Option<f64>| score.map_or(Bound::Unbounded, Bound::Included);
    match (end("min")?, end("max")?) {
        (None, None) => Ok(Range::Rank(0, -1)),
        (min, max) => Ok(Range::Score(bound(min), bound(max))),
    }
}
