//! Lists keys in the order of their bytes, and what tables hold.

use std::ops::Bound;

use bytes::Bytes;
use quorate::keys::{KeyCommand, KeyEntry, Kind, Order, Page, Range, Span, Version};
use quorate::{Keys, Level};

use super::page::{COMMON, Row, Value, Window, answer_rows};
use super::{KEYS, Of, TABLES, parameter};
use crate::asked::Asked;
use crate::error::Problem;
use crate::message::Answer;

/// Answers with a page of keys, or of what a table holds.
pub(super) async fn list(keys: &Keys, of: Of, asked: &Asked<'_>, level: Level) -> Result<Answer, Problem> {
    let own: &[&str] = if of == Of::Key { &["file"] } else { &["tb"] };
    asked.only(&[own, &COMMON].concat())?;
    let rows = match of {
        Of::Key => all_keys(&keys.space(KEYS), asked).await?,
        Of::Hash => fields(&keys.space(TABLES), asked).await?,
        Of::Set => members(&keys.space(TABLES), asked).await?,
        Of::SortedSet => scored(&keys.space(TABLES), asked, Range::Rank(0, -1)).await?,
    };
    Ok(answer_rows(rows, of == Of::Key || level == Level::Linearizable))
}

/// Answers with a page of the members of a sorted set that have scores in a range.
pub(super) async fn by_score(keys: &Keys, asked: &Asked<'_>, level: Level) -> Result<Answer, Problem> {
    asked.only(&[&["tb", "min", "max"][..], &COMMON].concat())?;
    let end = |name| -> Result<Bound<f64>, Problem> {
        let score: f64 = asked.number(name)?.ok_or(Problem::NoParameter(name))?;
        if score.is_nan() {
            Err(Problem::malformed(format!("'{name}' is a number")))
        } else {
            Ok(Bound::Included(score))
        }
    };
    let range = Range::Score(end("min")?, end("max")?);
    Ok(answer_rows(scored(&keys.space(TABLES), asked, range).await?, level == Level::Linearizable))
}

async fn all_keys(keys: &Keys, asked: &Asked<'_>) -> Result<Vec<Row>, Problem> {
    let file: u64 = asked.number("file")?.ok_or(Problem::NoParameter("file"))?;
    if file != 0 {
        return Err(Problem::malformed("there is one file, so 'file' is 0"));
    }
    let window = Window::of(asked)?;
    let fetch = |from, limit, is_shown: bool| {
        let (span, values) = (Span { from, to: None }, is_shown && window.has_values);
        let scan = KeyCommand::Scan { span, order: Order::Up, limit, kind: Some(Kind::String), values };
        keys.run::<Page<KeyEntry>>(scan).into_future()
    };
    let bytes_of = |entry: &KeyEntry| entry.key.len().saturating_add(entry.value.as_ref().map_or(0, Bytes::len));
    let rows = window.read(fetch, bytes_of).await?.into_iter().map(|KeyEntry { key, info, value }| Row {
        key,
        value: value.map(Value::Bytes),
        version: info.version,
        expires_at: info.expires_at,
    });
    Ok(rows.collect())
}

async fn fields(keys: &Keys, asked: &Asked<'_>) -> Result<Vec<Row>, Problem> {
    let (table, window) = (parameter(asked, "tb")?, Window::of(asked)?);
    keys.describe(table.clone()).await?.ok_or(Problem::NoTable)?;
    let hash = keys.hash(table);
    let fetch = |from: Bytes, limit, _| hash.scan().starting_at(from).limit(limit).into_future();
    let names: Vec<_> = window.read(fetch, weight).await?.into_iter().map(|(field, _)| field).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    // The versions come first, so none is newer than its value.
    let described = hash.describe(names.clone()).await?;
    let values = if window.has_values { hash.get_each(names.clone()).await? } else { vec![None; names.len()] };
    let rows = names.into_iter().zip(described).zip(values).filter_map(|((key, described), value)| {
        let (version, expires_at) = described?;
        // What has gone since is left out.
        let is_there = value.is_some() || !window.has_values;
        is_there.then(|| Row { key, value: value.map(Value::Bytes), version, expires_at })
    });
    Ok(rows.collect())
}

/// Returns the bytes of a field with its value.
fn weight((field, value): &(Bytes, Bytes)) -> usize {
    field.len().saturating_add(value.len())
}

async fn members(keys: &Keys, asked: &Asked<'_>) -> Result<Vec<Row>, Problem> {
    let (table, window) = (parameter(asked, "tb")?, Window::of(asked)?);
    let version = keys.describe(table.clone()).await?.ok_or(Problem::NoTable)?.version;
    let set = keys.set_of(table);
    let fetch = |from: Bytes, limit, _| set.scan().starting_at(from).limit(limit).into_future();
    Ok(window.read(fetch, weight).await?.into_iter().map(|(member, _)| row(member, None, version)).collect())
}

async fn scored(keys: &Keys, asked: &Asked<'_>, range: Range) -> Result<Vec<Row>, Problem> {
    let (table, window) = (parameter(asked, "tb")?, Window::of(asked)?);
    let version = keys.describe(table.clone()).await?.ok_or(Problem::NoTable)?.version;
    let members = keys.sorted_set(table).range(range).skip(window.offset).limit(window.size).await?;
    let score = |score| window.has_values.then_some(Value::Score(score));
    Ok(members.into_iter().map(|(member, found)| row(member, score(found), version)).collect())
}

/// Returns the row of a member, which has the version of its table.
fn row(key: Bytes, value: Option<Value>, version: Version) -> Row {
    Row { key, value, version, expires_at: None }
}
