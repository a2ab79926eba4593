//! Changes a key, or a field of a hash: the change, what it depends on, and what there is afterwards are one entry.

use hyper::{Method, StatusCode};
use quorate::keys::limits::VALUE_BYTES_MAX;
use quorate::keys::{Condition, ExpiryCondition, KeysReply, StringCommand};
use quorate::sql::BatchStep;
use quorate::steps;

use super::commands::parts;
use super::conditions::{none, of_write};
use super::read::with_info;
use super::target::{Target, described, is_done};
use crate::asked::Asked;
use crate::error::Problem;
use crate::message::{Answer, Content, Request, answer, empty, with_position};
use crate::work::Work;

/// Changes what a request is about.
pub(super) async fn change(work: &mut Work, asked: &Asked<'_>, request: &Request) -> Result<Answer, Problem> {
    let target = Target::of(&work.sql().keys(), asked)?;
    let answer = match request.method {
        Method::PUT => put(work, asked, &target, request).await?,
        Method::DELETE => delete(work, asked, &target).await?,
        _ => post(work, asked, &target, request).await?,
    };
    Ok(with_position(answer, work.position()))
}

/// Sets it to the body.
async fn put(work: &mut Work, asked: &Asked<'_>, target: &Target, request: &Request) -> Result<Answer, Problem> {
    asked.only(&["space", "field", "ttl", "expires", "keep_ttl"])?;
    let (condition, expiry) = (of_write(asked.headers)?, asked.expiry()?);
    let value = value(request)?;
    let replies =
        work.change(steps![target.describe(), target.put(value, condition, expiry), target.describe()]).await?;
    let (before, after) = (described(replies.get(0)), described(replies.get(2)));
    if !is_done(&replies, 1) {
        return Err(Problem::Precondition(after.map(|info| info.version)));
    }
    let status = if before.is_none() { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok(match after {
        Some(info) => with_info(empty(status), &info, true),
        // Its time had come.
        None => empty(status),
    })
}

/// Returns the body, if it can be a value.
fn value(request: &Request) -> Result<bytes::Bytes, Problem> {
    if request.body.len() > VALUE_BYTES_MAX {
        return Err(Problem::BodyTooLarge(VALUE_BYTES_MAX));
    }
    Ok(request.body.clone())
}

/// Removes it.
async fn delete(work: &mut Work, asked: &Asked<'_>, target: &Target) -> Result<Answer, Problem> {
    asked.only(&["space", "field"])?;
    let condition = of_write(asked.headers)?;
    let is_free = condition == Condition::Always;
    if condition == Condition::Missing {
        return Err(Problem::NotOffered("what is missing can't be removed; leave If-None-Match out"));
    }
    let replies = work.change(steps![target.describe(), target.remove(condition), target.describe()]).await?;
    match (described(replies.get(0)), described(replies.get(2))) {
        (Some(_), None) => Ok(empty(StatusCode::NO_CONTENT)),
        (None, _) if is_free => Err(Problem::NoKey),
        (_, after) => Err(Problem::Precondition(after.map(|info| info.version))),
    }
}

/// Adds to a number, appends to a string, or sets an expiry.
async fn post(work: &mut Work, asked: &Asked<'_>, target: &Target, request: &Request) -> Result<Answer, Problem> {
    none(asked.headers)?;
    asked.only(&["space", "field", "increment", "append", "ttl", "expires", "persist"])?;
    let (at, relative) = parts(asked.expiry()?);
    let added = match (asked.bytes("increment"), asked.flag("append")?, asked.flag("persist")?) {
        (Some(by), false, false) => target.increment(by),
        (None, true, false) if target.field().is_some() => {
            return Err(Problem::NotOffered("only strings can be appended to, not fields"));
        }
        (None, true, false) => {
            let (key, value) = (target.key(), value(request)?);
            target.keys().run(StringCommand::Append { key, value })
        }
        (None, false, persists) if persists != at.is_some() => {
            return expire(work, target, (at, relative)).await;
        }
        _ => {
            let help = "POST of a key has one of the parameters 'increment', 'append' and 'persist', or sets an \
                        expiry by 'ttl' or 'expires'; 'ttl' and 'expires' can go with the first two";
            return Err(Problem::malformed(help));
        }
    };
    let mut steps: Vec<BatchStep> = vec![added.into()];
    steps.extend(at.map(|at| target.expire((Some(at), relative), ExpiryCondition::Missing).into()));
    steps.push(target.describe().into());
    let last = steps.len().saturating_sub(1);
    let replies = work.change(steps).await?;
    let text = match replies.get(0) {
        Some(KeysReply::Integer(sum)) => sum.to_string().into(),
        Some(KeysReply::Count(length)) => length.to_string().into(),
        Some(KeysReply::Value(sum)) => sum,
        _ => bytes::Bytes::new(),
    };
    let answer = answer(StatusCode::OK, Content::Text, text);
    Ok(match described(replies.get(last)) {
        Some(info) => with_info(answer, &info, true),
        None => answer,
    })
}

/// Sets an expiry, or removes it.
async fn expire(work: &mut Work, target: &Target, time: (Option<u64>, bool)) -> Result<Answer, Problem> {
    let expire = target.expire(time, ExpiryCondition::Always);
    let replies = work.change(steps![target.describe(), expire, target.describe()]).await?;
    if described(replies.get(0)).is_none() {
        return Err(Problem::NoKey);
    }
    let answer = empty(StatusCode::NO_CONTENT);
    Ok(match described(replies.get(2)) {
        Some(info) => with_info(answer, &info, true),
        None => answer,
    })
}
