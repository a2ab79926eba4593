//! How replies compare.
//!
//! Replies are equal byte for byte, but for what is random, what has no order in Redis, what depends on the clock, and
//! the decisions that `docs/keys.md` lists under "Differences from Redis"; each is named here.

use std::fmt;

use bytes::Bytes;

use super::Value;

/// The most milliseconds that two replies with a time may differ by.
const CLOCK_DIFFERENCE_MAX: i64 = 2_000;

/// How the replies to a command compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// They are equal.
    Exact,
    /// They have the same parts, in any order.
    AnyOrder,
    /// They have the same pairs of parts, in any order.
    AnyOrderOfPairs,
    /// They have the same type and as many parts, since they are random.
    Shape,
    /// They are about as large, since they tell a time.
    Near,
}

/// Compares the replies to a stream of requests.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The requests of a transaction that has begun.
    queued: Vec<Vec<Bytes>>,
}

/// Two replies that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The request.
    pub request: Vec<Bytes>,
    /// What Redis replies.
    pub redis: Value,
    /// What the door replies.
    pub door: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for word in &self.request {
            write!(f, "\"{}\" ", word.escape_ascii())?;
        }
        write!(f, "\n  redis: {}\n  door:  {}", self.redis, self.door)
    }
}

impl Comparison {
    /// Compares the replies to the next request.
    ///
    /// # Errors
    ///
    /// The [`Difference`].
    pub fn check(&mut self, request: &[Bytes], redis: &Value, door: &Value) -> Result<(), Box<Difference>> {
        let name = name(request);
        let is_same = match name.as_str() {
            "exec" => self.transaction(redis, door),
            _ => alike(request, redis, door),
        };
        match name.as_str() {
            "exec" | "discard" | "reset" => self.queued.clear(),
            _ if *redis == Value::Line("+QUEUED".to_owned()) => self.queued.push(request.to_vec()),
            _ => {}
        }
        if is_same {
            return Ok(());
        }
        Err(Box::new(Difference { request: request.to_vec(), redis: redis.clone(), door: door.clone() }))
    }

    fn transaction(&self, redis: &Value, door: &Value) -> bool {
        match (redis, door) {
            (Value::Parts(_, redis), Value::Parts(_, door)) => {
                let all = self.queued.iter().zip(redis.iter().zip(door));
                redis.len() == door.len() && all.into_iter().all(|(request, (redis, door))| alike(request, redis, door))
            }
            _ => redis == door,
        }
    }
}

fn name(request: &[Bytes]) -> String {
    request.first().map(|name| String::from_utf8_lossy(name).to_lowercase()).unwrap_or_default()
}

fn rule(name: &str) -> Rule {
    match name {
        "hkeys" | "hvals" | "smembers" | "sinter" | "sunion" | "sdiff" | "spop" | "keys" => Rule::AnyOrder,
        "scan" | "sscan" => Rule::AnyOrder,
        "hgetall" | "hscan" | "zscan" => Rule::AnyOrderOfPairs,
        "hrandfield" | "srandmember" | "zrandmember" | "randomkey" => Rule::Shape,
        "ttl" | "pttl" | "expiretime" | "pexpiretime" | "httl" | "hpttl" | "hexpiretime" | "hpexpiretime" => Rule::Near,
        _ => Rule::Exact,
    }
}

fn alike(request: &[Bytes], redis: &Value, door: &Value) -> bool {
    let name = name(request);
    match rule(&name) {
        _ if redis == door => true,
        _ if redis.is_error() || door.is_error() => is_decision(&name, redis, door),
        Rule::Exact => is_decision(&name, redis, door),
        Rule::AnyOrder => sorted(redis, 1) == sorted(door, 1),
        Rule::AnyOrderOfPairs => sorted(redis, 2) == sorted(door, 2) || sorted(redis, 1) == sorted(door, 1),
        Rule::Shape => shape(redis) == shape(door),
        Rule::Near => near(redis, door),
    }
}

/// Sorts the parts of a reply, so many at a time; those of a scan are in its second part.
fn sorted(value: &Value, step: usize) -> Value {
    match value {
        Value::Parts(kind, parts) => match parts.as_slice() {
            [cursor, rows @ Value::Parts(..)] => Value::Parts(*kind, vec![cursor.clone(), sorted(rows, step)]),
            parts => {
                let mut groups: Vec<Vec<Value>> = parts.chunks(step).map(<[Value]>::to_vec).collect();
                groups.sort();
                Value::Parts(*kind, groups.into_iter().flatten().collect())
            }
        },
        other => other.clone(),
    }
}

/// Returns the type of a reply, and how many parts it has.
fn shape(value: &Value) -> (char, usize) {
    match value {
        Value::Line(line) => (line.chars().next().unwrap_or_default(), 0),
        Value::Bulk(kind, _) => (*kind, 0),
        Value::Parts(kind, parts) => (*kind, parts.len()),
    }
}

fn near(redis: &Value, door: &Value) -> bool {
    match (redis, door) {
        (Value::Parts(_, redis), Value::Parts(_, door)) => {
            redis.len() == door.len() && redis.iter().zip(door).all(|(redis, door)| near(redis, door))
        }
        _ => match (redis.number(), door.number()) {
            (Some(redis), Some(door)) if redis >= 0 && door >= 0 => redis.abs_diff(door) <= CLOCK_DIFFERENCE_MAX as u64,
            (redis, door) => redis.is_some() && redis == door,
        },
    }
}

/// Returns whether two replies differ by a decision that `docs/keys.md` lists.
fn is_decision(_name: &str, _redis: &Value, _door: &Value) -> bool {
    false
}
