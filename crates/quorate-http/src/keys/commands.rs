//! `POST /keys`: any number of commands on any keys, in JSON. All of them take effect, or none.
//!
//! A command says what it is on (`on`) and what it does (`do`); the rest are its arguments. An argument that is not
//! known is refused.

mod collections;
mod ordered;
mod strings;

use bytes::Bytes;
use hyper::StatusCode;
use quorate::keys::limits::READ_ROWS_MAX;
use quorate::keys::{Condition, Expiry, KeysCommand, KeysReply, Version};
use quorate::sql::BatchStep;
use quorate::{Error, FailureKind};
use serde::Deserialize;

use super::{conditions, encode};
use crate::asked::Asked;
use crate::error::Problem;
use crate::json::Json;
use crate::message::{Answer, Content, answer, with_position};
use crate::octets::Text;
use crate::options::STATEMENTS_MAX;
use crate::work::Work;

/// A command.
#[derive(Debug, Deserialize)]
#[serde(tag = "on")]
enum Command {
    #[serde(rename = "key")]
    Key(strings::Key),
    #[serde(rename = "string")]
    String(strings::Text),
    #[serde(rename = "hash")]
    Hash(collections::Hash),
    #[serde(rename = "set")]
    Set(collections::Set),
    #[serde(rename = "sorted set")]
    SortedSet(ordered::SortedSet),
    #[serde(rename = "list")]
    List(ordered::List),
}

/// What has to hold for a command.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum If {
    #[default]
    Always,
    Missing,
    Exists,
    Version(String),
    Value(Text),
}

/// Runs the commands of a body, and answers with the reply to each.
pub(super) async fn run(work: &mut Work, asked: &Asked<'_>, body: &[u8]) -> Result<Answer, Problem> {
    conditions::none(asked.headers)?;
    asked.only(&["space"])?;
    let keys = work.sql().keys().space(asked.space()?);
    let commands = read(body)?.into_iter().map(|command| command.command(asked));
    let steps = commands.map(|command| Ok(BatchStep::from(keys.run::<KeysReply>(command?))));
    let steps = steps.collect::<Result<Vec<BatchStep>, Problem>>()?;
    let count = steps.len();
    let replies = work.change(steps).await.map_err(of_command)?;
    let mut json = Json::default();
    json.raw("{\"results\":").list(0..count, |json, number| {
        encode::reply(json, replies.get(number).unwrap_or(KeysReply::Done));
    });
    json.raw("}");
    Ok(with_position(answer(StatusCode::OK, Content::Json, json.into_bytes()), work.position()))
}

/// An expectation that does not hold is a precondition, not a conflict that the same request could win later.
fn of_command(error: Error) -> Problem {
    match error {
        Error::Failed(failure) if failure.kind == FailureKind::Conflict => Problem::Precondition(None),
        error => error.into(),
    }
}

fn read(body: &[u8]) -> Result<Vec<Command>, Problem> {
    let commands: Vec<Command> = serde_json::from_slice(body).map_err(|error| Problem::malformed(error.to_string()))?;
    if commands.is_empty() || commands.len() > STATEMENTS_MAX {
        return Err(Problem::malformed(format!("it has 1 to {STATEMENTS_MAX} commands")));
    }
    Ok(commands)
}

impl Command {
    fn command(self, asked: &Asked<'_>) -> Result<KeysCommand, Problem> {
        match self {
            Self::Key(command) => command.command(asked),
            Self::String(command) => command.command(asked),
            Self::Hash(command) => command.command(asked),
            Self::Set(command) => command.command(asked),
            Self::SortedSet(command) => command.command(asked),
            Self::List(command) => Ok(command.command()),
        }
    }
}

impl If {
    fn condition(self) -> Result<Condition, Problem> {
        Ok(match self {
            Self::Always => Condition::Always,
            Self::Missing => Condition::Missing,
            Self::Exists => Condition::Exists,
            Self::Version(text) => Condition::Version(version(&text)?),
            Self::Value(value) => Condition::Value(value.0),
        })
    }
}

fn version(text: &str) -> Result<Version, Problem> {
    text.parse().map(Version).map_err(|_| Problem::malformed("a version is a string of decimal digits"))
}

/// Returns the time of an expiry, which must be given, and whether it counts from the entry.
fn time(asked: &Asked<'_>, ttl: Option<&str>, expires: Option<f64>) -> Result<(Option<u64>, bool), Problem> {
    match parts(asked.expiry_of(ttl, expires, false)?) {
        (None, _) => Err(Problem::malformed("'expire' needs 'ttl' or 'expires'")),
        time => Ok(time),
    }
}

/// Returns the time of an expiry, if it has one, and whether it counts from the entry.
pub(super) fn parts(expiry: Expiry) -> (Option<u64>, bool) {
    match expiry {
        Expiry::At(at) => (Some(at), false),
        Expiry::In(nanos) => (Some(nanos), true),
        Expiry::Never | Expiry::Keep => (None, false),
    }
}

/// Returns the most rows of a reply, unless a command asks for another number.
fn rows_max() -> u64 {
    READ_ROWS_MAX
}

fn all(texts: Vec<Text>) -> Vec<Bytes> {
    texts.into_iter().map(|text| text.0).collect()
}
