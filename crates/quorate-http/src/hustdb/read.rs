//! Reads a key or an element. Its version is read with its value or before it; what is read after it may be older, but
//! not at the level `linearizable`, so at others the version is left out.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};
use quorate::Level;
use quorate::keys::Version;

use super::thing::{Element, Thing};
use super::with_version;
use crate::asked::Asked;
use crate::error::Problem;
use crate::keys::{Target, described, find};
use crate::message::{Answer, Content, answer, empty};

/// Answers whether there is such a thing.
pub(super) async fn exist(thing: &Thing, asked: &Asked<'_>, level: Level) -> Result<Answer, Problem> {
    asked.only(thing.parameters())?;
    let version = described(Some(thing.describe().await?)).map(|info| info.version);
    let is_there = match thing {
        Thing::Own(_) => version.is_some(),
        Thing::Member(Element { keys, table, member }) => keys.set_of(table.clone()).contains(member.clone()).await?,
        Thing::Scored(element) => score(element).await?.is_some(),
    };
    let Some(version) = version.filter(|_| is_there) else { return Err(thing.missing().await) };
    let is_known = level == Level::Linearizable || matches!(thing, Thing::Own(_));
    Ok(if is_known { with_version(empty(StatusCode::OK), version) } else { empty(StatusCode::OK) })
}

/// Answers with a value, or a score.
pub(super) async fn get(thing: &Thing, asked: &Asked<'_>, level: Level) -> Result<Answer, Problem> {
    asked.only(thing.parameters())?;
    let found = match thing {
        Thing::Own(target) => value(target).await?,
        Thing::Member(_) => None,
        Thing::Scored(element) => {
            let version = described(Some(element.describe().await?)).map(|info| info.version);
            let score = score(element).await?.map(|score| Bytes::from(score.to_string()));
            version.zip(score)
        }
    };
    let Some((version, value)) = found else { return Err(thing.missing().await) };
    let mut answer = answer(StatusCode::OK, Content::Octets, value);
    // A browser must not take what someone has stored for a page.
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let is_known = level == Level::Linearizable || matches!(thing, Thing::Own(target) if target.field().is_none());
    Ok(if is_known { with_version(answer, version) } else { answer })
}

/// Returns the version and the value of a key, or of a field.
async fn value(target: &Target) -> Result<Option<(Version, Bytes)>, Problem> {
    let Some(field) = target.field() else {
        let Some(found) = find(target.keys(), target.key()).await? else { return Ok(None) };
        let value = match found.value {
            Some(value) => Some(value),
            // It fails, unless the key has become a string since.
            None => target.keys().get(target.key()).await?,
        };
        return Ok(value.map(|value| (found.info.version, value)));
    };
    let version = described(Some(target.describe().await?)).map(|info| info.version);
    Ok(version.zip(target.keys().hash(target.key()).get(field.clone()).await?))
}

/// Returns the score of a member.
async fn score(Element { keys, table, member }: &Element) -> Result<Option<f64>, Problem> {
    Ok(keys.sorted_set(table.clone()).score(member.clone()).await?)
}
