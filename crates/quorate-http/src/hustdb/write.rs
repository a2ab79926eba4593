//! Changes a key or an element: what it depends on, the change, and the version afterwards are one entry.

use std::time::Duration;

use bytes::Bytes;
use quorate::keys::limits::TIME_MAX;
use quorate::keys::{
    AddOptions, Condition, Expiry, ExpiryCondition, KeyCommand, KeysReply, Replies, SetCommand, SortedSetCommand,
    Version,
};
use quorate::sql::BatchStep;
use quorate::{Error, FailureKind, Level, steps};

use super::thing::{Element, Thing};
use super::{body_or, written};
use crate::asked::Asked;
use crate::error::Problem;
use crate::keys::{Target, described, is_done};
use crate::message::{Answer, Request};
use crate::work::Work;

/// The highest score, and below 0 the lowest: scores are doubles, which have all integers up to here.
const SCORE_MAX: u64 = 1 << 53;

/// Sets a key or a field to a value, or adds a member.
pub(super) async fn put(
    work: &mut Work,
    thing: &Thing,
    asked: &Asked<'_>,
    request: &Request,
) -> Result<Answer, Problem> {
    match thing {
        Thing::Own(target) => {
            asked.only(&[thing.parameters(), &["val", "ttl", "ver"]].concat())?;
            let value = body_or(request, asked, "val")?;
            let version = set(work, target, value, asked.version()?, asked.ttl()?).await?;
            Ok(written(version, None))
        }
        Thing::Member(element) => {
            asked.only(&[thing.parameters(), &["ttl", "ver"]].concat())?;
            let Element { keys, table, member } = element;
            let expiry = asked.ttl()?;
            let add = SetCommand::Add { key: table.clone(), members: vec![member.clone()], expiry };
            let mut steps = steps![keys.run::<KeysReply>(add)].to_vec();
            if expiry == Expiry::Never {
                // To add a member that is there leaves its expiry.
                steps.push(keys.set_of(table.clone()).persist([member.clone()]).into());
            }
            let (_, version) = change(work, element, asked.version()?, steps).await?;
            Ok(written(version.unwrap_or_default(), None))
        }
        Thing::Scored(element) => {
            asked.only(&[thing.parameters(), &["score", "opt", "ttl", "ver"]].concat())?;
            let (score, steps) = scored(element, asked)?;
            let (replies, version) = change(work, element, asked.version()?, steps).await?;
            let score = replies.get::<f64>(1).unwrap_or(score);
            Ok(written(version.unwrap_or_default(), Some(score.to_string())))
        }
    }
}

/// Returns the score that a member is given, or that is added to its own, and the steps: for the score, and for the
/// expiry if one is asked for.
fn scored(element: &Element, asked: &Asked<'_>) -> Result<(f64, Vec<BatchStep>), Problem> {
    let expiry = asked.ttl()?;
    let score: i64 = asked.number("score")?.ok_or(Problem::NoParameter("score"))?;
    if score.unsigned_abs() > SCORE_MAX {
        return Err(Problem::malformed(format!("'score' is at most {SCORE_MAX}")));
    }
    #[expect(clippy::cast_precision_loss, reason = "a double has each of these integers")]
    let score = score as f64;
    let Element { keys, table, member } = element;
    let (key, member, options) = (table.clone(), member.clone(), AddOptions::default());
    let command = match asked.number("opt")?.unwrap_or(0_i32) {
        0 => SortedSetCommand::Add { key, members: vec![(score, member.clone())], options, count_changed: false },
        opt => {
            let by = if opt > 0 { score } else { -score };
            SortedSetCommand::Increment { key, member: member.clone(), by, options }
        }
    };
    let mut steps = steps![keys.run::<KeysReply>(command)].to_vec();
    let set = keys.sorted_set(table.clone());
    match expiry {
        Expiry::In(nanos) => steps.push(set.expire([member], Duration::from_nanos(nanos)).into()),
        _ if asked.bytes("ttl").is_some() => steps.push(set.persist([member]).into()),
        // A cluster with nodes that know no expiries of members takes the score alone.
        _ => {}
    }
    Ok((score, steps))
}

/// Removes a key, a field or a member.
pub(super) async fn delete(work: &mut Work, thing: &Thing, asked: &Asked<'_>) -> Result<Answer, Problem> {
    asked.only(&[thing.parameters(), &["ver"]].concat())?;
    let expected = asked.version()?;
    let before = match thing {
        Thing::Own(target) => {
            let condition = expected.map_or(Condition::Always, Condition::Version);
            let remove = target.remove(condition);
            let replies = work.change(steps![target.describe(), remove, target.describe()]).await?;
            let [before, after] = [0, 2].map(|place| described(replies.get(place)).map(|info| info.version));
            if after.is_some() {
                return Err(Problem::Precondition(after));
            }
            before
        }
        Thing::Member(element @ Element { keys, table, member }) => {
            let remove = keys.set_of(table.clone()).remove([member.clone()]);
            removed(work, element, expected, remove.into()).await?
        }
        Thing::Scored(element @ Element { keys, table, member }) => {
            let remove = keys.sorted_set(table.clone()).remove([member.clone()]);
            removed(work, element, expected, remove.into()).await?
        }
    };
    match before {
        Some(version) => Ok(written(version, None)),
        None => Err(thing.missing().await),
    }
}

/// Removes a member, and returns the version that its table had; none if there was no such member.
async fn removed(
    work: &mut Work,
    element: &Element,
    expected: Option<Version>,
    remove: BatchStep,
) -> Result<Option<Version>, Problem> {
    let (replies, _) = match change(work, element, expected, steps![remove]).await {
        Err(Problem::Precondition(None)) => return Ok(None),
        changed => changed?,
    };
    let before = expected.or_else(|| described(replies.get(0)).map(|info| info.version));
    Ok(before.filter(|_| replies.get::<u64>(1).is_some_and(|count| count > 0)))
}

/// Adds to the integer of a field.
pub(super) async fn increment(work: &mut Work, thing: &Thing, asked: &Asked<'_>) -> Result<Answer, Problem> {
    asked.only(&[thing.parameters(), &["val", "ttl", "ver"]].concat())?;
    let by: i64 = asked.number("val")?.ok_or(Problem::NoParameter("val"))?;
    let (expected, expiry) = (asked.version()?, asked.ttl()?);
    let Thing::Own(target) = thing else { return Err(Problem::NoTable) };
    let Some(expected) = expected else {
        let expires = match expiry {
            Expiry::In(nanos) => (Some(nanos), true),
            _ => (None, false),
        };
        let add = target.increment(&by.to_string().into());
        let steps = steps![add, target.expire(expires, ExpiryCondition::Always), target.describe()];
        let replies = work.change(steps).await?;
        let version = described(replies.get(2)).map(|info| info.version).unwrap_or_default();
        return Ok(written(version, replies.get::<i64>(0).map(|sum| sum.to_string())));
    };
    // Sent again, it would find another version, and not its first answer.
    work.unkeyed("hincrby with 'ver' has no Idempotency-Key: its version says whether it was done")?;
    let sum = sum_at(target, expected, by).await?.to_string();
    let version = set(work, target, sum.clone().into(), Some(expected), expiry).await?;
    Ok(written(version, Some(sum)))
}

/// Returns the sum of what a field with a version holds and of what is added to it.
async fn sum_at(target: &Target, expected: Version, by: i64) -> Result<i64, Problem> {
    let keys = target.keys().at(Level::Linearizable);
    let hash = keys.hash(target.key());
    let field = target.field().cloned().unwrap_or_default();
    let found = hash.describe([field.clone()]).await?.into_iter().next().flatten().map(|(version, _)| version);
    if found != Some(expected) {
        return Err(Problem::Precondition(found));
    }
    // If it is newer than the version, the sum is not written.
    let value = hash.get(field).await?.unwrap_or_default();
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse::<i64>().ok());
    number.and_then(|number| number.checked_add(by)).ok_or(Problem::NotInteger)
}

/// Sets a key or a field, and returns its new version.
async fn set(
    work: &mut Work,
    target: &Target,
    value: Bytes,
    expected: Option<Version>,
    expiry: Expiry,
) -> Result<Version, Problem> {
    let condition = expected.map_or(Condition::Always, Condition::Version);
    let replies = work.change(steps![target.put(value, condition, expiry), target.describe()]).await?;
    let version = described(replies.get(1)).map(|info| info.version);
    if is_done(&replies, 0) { Ok(version.unwrap_or_default()) } else { Err(Problem::Precondition(version)) }
}

/// Changes an element if its table has a version, and returns the replies from 1 on, and the new version of the table.
async fn change(
    work: &mut Work,
    element: &Element,
    expected: Option<Version>,
    steps: impl IntoIterator<Item = BatchStep>,
) -> Result<(Replies, Option<Version>), Problem> {
    let first = match expected {
        Some(version) => {
            let expect = KeyCommand::Expect { key: element.table.clone(), version: Some(version) };
            element.keys.run::<KeysReply>(expect).into()
        }
        None => element.describe().into(),
    };
    let steps: Vec<BatchStep> = std::iter::once(first).chain(steps).chain([element.describe().into()]).collect();
    let last = steps.len().saturating_sub(1);
    match work.change(steps).await {
        Ok(replies) => {
            let version = described(replies.get(last)).map(|info| info.version);
            Ok((replies, version))
        }
        Err(Error::Failed(failure)) if failure.kind == FailureKind::Conflict => {
            let found = element.keys.at(Level::Linearizable).describe(element.table.clone()).await?;
            Err(Problem::Precondition(found.map(|info| info.version)))
        }
        Err(error) => Err(error.into()),
    }
}

impl Asked<'_> {
    /// Returns the version that a write depends on, if it does.
    fn version(&self) -> Result<Option<Version>, Problem> {
        Ok(self.number("ver")?.filter(|version| *version != 0).map(Version))
    }

    /// Returns when what is written expires, by a number of seconds; 0 for never.
    fn ttl(&self) -> Result<Expiry, Problem> {
        let seconds = self.number("ttl")?.unwrap_or(0);
        let nanos = u64::try_from(Duration::from_secs(seconds).as_nanos()).unwrap_or(u64::MAX);
        Ok(if seconds == 0 { Expiry::Never } else { Expiry::In(nanos.min(TIME_MAX)) })
    }
}
