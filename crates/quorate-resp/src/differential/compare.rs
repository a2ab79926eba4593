//! How replies compare.
//!
//! Replies are equal byte for byte, but for what is random, what has no order in Redis, what depends on the clock, and
//! the decisions that `docs/keys.md` lists under "Differences from Redis"; each is named here.

use std::fmt;

use bytes::Bytes;

use super::Value;
use crate::number;

/// The most milliseconds that two replies with a time may differ by.
const CLOCK_DIFFERENCE_MAX: i64 = 2_000;

/// Times from this number on are alike.
const FAR: i64 = 7_000_000_000;

/// Texts up to this length have the fewest digits in Redis too.
const DIGITS_ENOUGH: usize = 15;

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
    /// They have the same type, since they are facts of the server.
    Type,
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

/// What two replies are that do not [differ](Difference).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// The same.
    Same,
    /// Different by a decision, or at random; what is stored may be different too, so both sides begin anew.
    Apart,
}

impl Comparison {
    /// Compares the replies to the next request.
    ///
    /// # Errors
    ///
    /// The [`Difference`].
    pub fn check(&mut self, request: &[Bytes], redis: &Value, door: &Value) -> Result<Alike, Box<Difference>> {
        let name = name(request);
        let checked = match name.as_str() {
            "exec" => self.transaction(request, redis, door),
            _ => one(request, redis, door),
        };
        match name.as_str() {
            "exec" | "discard" | "reset" => self.queued.clear(),
            _ if *redis == Value::Line("+QUEUED".to_owned()) => self.queued.push(request.to_vec()),
            _ => {}
        }
        checked
    }

    fn transaction(&self, exec: &[Bytes], redis: &Value, door: &Value) -> Result<Alike, Box<Difference>> {
        match (redis, door) {
            (Value::Parts(..), Value::Parts(..)) if self.greets() => Ok(Alike::Apart),
            (Value::Parts(_, redis), Value::Parts(_, door)) if redis.len() == door.len() => {
                let mut all = Alike::Same;
                for (request, (redis, door)) in self.queued.iter().zip(redis.iter().zip(door)) {
                    if all == Alike::Same {
                        all = one(request, redis, door)?;
                    }
                }
                Ok(all)
            }
            // A watched key that was missing, was made and was removed again has not changed here.
            (Value::Line(redis), Value::Parts(..)) if is_null(redis) => Ok(Alike::Apart),
            // A write that leaves a watched key as it was may count as a change.
            (Value::Parts(..), Value::Line(door)) if is_null(door) => Ok(Alike::Apart),
            _ => one(exec, redis, door),
        }
    }

    /// Returns whether the version of the protocol changes within the transaction.
    fn greets(&self) -> bool {
        self.queued.iter().any(|request| name(request) == "hello")
    }
}

fn one(request: &[Bytes], redis: &Value, door: &Value) -> Result<Alike, Box<Difference>> {
    let differ = || Difference { request: request.to_vec(), redis: redis.clone(), door: door.clone() };
    alike(request, redis, door).ok_or_else(|| Box::new(differ()))
}

fn is_null(line: &str) -> bool {
    matches!(line, "_" | "*-1" | "$-1")
}

fn name(request: &[Bytes]) -> String {
    request.first().map(|name| String::from_utf8_lossy(name).to_lowercase()).unwrap_or_default()
}

fn rule(name: &str, request: &[Bytes]) -> Rule {
    let second = request.get(1).map(|word| String::from_utf8_lossy(word).to_lowercase()).unwrap_or_default();
    match name {
        "hello" | "info" | "time" | "memory" => Rule::Type,
        "client" if matches!(second.as_str(), "id" | "info" | "list") => Rule::Type,
        _ if second == "help" => Rule::Type,
        // All commands, and there are other ones.
        "command" if request.len() < 3 => Rule::Type,
        "slowlog" if matches!(second.as_str(), "get" | "len") => Rule::Type,
        "config" => Rule::AnyOrderOfPairs,
        "command" if matches!(second.as_str(), "getkeys" | "list") => Rule::AnyOrder,
        "hkeys" | "hvals" | "smembers" | "sinter" | "sunion" | "sdiff" | "spop" | "keys" => Rule::AnyOrder,
        "scan" | "sscan" => Rule::AnyOrder,
        "hgetall" | "hscan" | "zscan" => Rule::AnyOrderOfPairs,
        "hrandfield" | "srandmember" | "zrandmember" | "randomkey" | "object" => Rule::Shape,
        // One of its parts is the place in the log.
        "role" => Rule::Shape,
        // They depend on the number of members, and on the time.
        "wait" | "waitaof" | "lastsave" => Rule::Shape,
        "ttl" | "pttl" | "expiretime" | "pexpiretime" | "httl" | "hpttl" | "hexpiretime" | "hpexpiretime" => Rule::Near,
        _ => Rule::Exact,
    }
}

fn alike(request: &[Bytes], redis: &Value, door: &Value) -> Option<Alike> {
    let name = name(request);
    let is_same = match rule(&name, request) {
        _ if redis == door => true,
        _ if redis.is_error() || door.is_error() => false,
        // What is on one page of several is up to the server.
        _ if name.ends_with("scan") && (has_next(redis) || has_next(door)) => true,
        Rule::Exact => false,
        Rule::AnyOrder => sorted(redis, 1) == sorted(door, 1),
        Rule::AnyOrderOfPairs => sorted(redis, 2) == sorted(door, 2) || sorted(redis, 1) == sorted(door, 1),
        Rule::Shape => shape(redis) == shape(door),
        Rule::Type => shape(redis).0 == shape(door).0,
        Rule::Near => near(redis, door),
    };
    let is_apart = || is_decision(request, &name, redis, door) || (name == "spop" && shape(redis) == shape(door));
    if is_same && !hides_decision(request, &name) { Some(Alike::Same) } else { is_apart().then_some(Alike::Apart) }
}

/// Returns whether a decision may be about what is stored, and not about the reply.
fn hides_decision(request: &[Bytes], name: &str) -> bool {
    name == "bitfield" && saturates_at_ends(request)
}

/// Returns whether there is another page after that of a scan.
fn has_next(value: &Value) -> bool {
    let Value::Parts(_, parts) = value else { return false };
    parts.first().is_some_and(|cursor| *cursor != Value::Bulk('$', b"0".to_vec()))
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
        Value::Line(line) if is_null(line) => ('_', 0),
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
            // The door stores no later time than one in 2262.
            (Some(redis), Some(door)) if redis >= FAR && door >= FAR => true,
            (Some(redis), Some(door)) if redis >= 0 && door >= 0 => redis.abs_diff(door) <= CLOCK_DIFFERENCE_MAX as u64,
            (redis, door) => redis.is_some() && redis == door,
        },
    }
}

/// Returns whether two replies differ by a decision that `docs/keys.md` lists.
fn is_decision(request: &[Bytes], name: &str, redis: &Value, door: &Value) -> bool {
    let door_says = |text: &str| says(door, text);
    let has = |option: &str| request.iter().any(|word| word.eq_ignore_ascii_case(option.as_bytes()));
    match name {
        // Whether an expiry is later than another one of the same length depends on the clock of each side.
        "expire" | "pexpire" | "hexpire" | "hpexpire" => has("GT") || has("LT"),
        // Names of channels are text of a limited length.
        "publish" | "spublish" => door_says("the name of a channel"),
        // Databases from 8 on are for caches.
        "select" | "copy" | "move" => door_says("no cache is configured"),
        // Cursors are known, or an error.
        "scan" | "hscan" | "sscan" | "zscan" if door_says("unknown cursor") => true,
        "zscan" => sorted(&with_scores_as_here(redis), 2) == sorted(door, 2),
        // It asks the store more than once.
        "sort" | "sort_ro" if door_says("has several pages") => true,
        // Members of a set that are not sorted have no order in Redis.
        "sort" | "sort_ro" if has("nosort") => shape(redis) == shape(door),
        // Redis compares texts up to a zero byte.
        "sort" | "sort_ro" => has("ALPHA") && (has_zero(redis) || has_zero(door)),
        // A list has no such item.
        "lset" => door_says("index out of range"),
        // A zero byte does not end what a client says of itself.
        "client" | "hello" if door_says("cannot contain spaces") => request.iter().any(|word| word.contains(&0)),
        "client" => door_says("client-side caching is not supported"),
        // Without users, everyone is let in.
        "auth" | "hello" if says(redis, "WRONGPASS") && !door.is_error() => true,
        "auth" | "hello" => door_says("not allowed inside a transaction"),
        "config" => door_says("more than 1024 entries"),
        // Numbers with many digits are added exactly, and not with the rounding of a processor's longest type.
        "incrbyfloat" | "hincrbyfloat" => is_near(redis, door),
        "bitfield" => saturates_at_ends(request),
        // An infinity times 0 is 0 here; in Redis it is so in the first set only.
        "zunion" | "zinter" if has("WEIGHTS") && ["0", "inf", "-inf", "+inf"].into_iter().any(has) => true,
        // What a negative offset leaves out depends on how Redis stores the set.
        _ if name.starts_with('z') && has_negative_offset(request) => true,
        // Scores have no -0, and no more digits than they need.
        _ if name.starts_with('z') => with_scores_as_here(redis) == *door,
        _ => false,
    }
}

/// Returns whether a LIMIT has a negative offset.
fn has_negative_offset(request: &[Bytes]) -> bool {
    request.windows(2).any(|words| matches!(words, [limit, offset] if limit == "LIMIT" && offset.starts_with(b"-")))
}

/// Returns whether a part of a reply has a zero byte.
fn has_zero(value: &Value) -> bool {
    match value {
        Value::Line(_) => false,
        Value::Bulk(_, bytes) => bytes.contains(&0),
        Value::Parts(_, parts) => parts.iter().any(has_zero),
    }
}

/// Returns whether a BITFIELD may take the end of a type for an integer at the end of those of 64 bits. Redis may take
/// the other end.
fn saturates_at_ends(request: &[Bytes]) -> bool {
    let has = |option: &str| request.iter().any(|word| word.eq_ignore_ascii_case(option.as_bytes()));
    has("SAT") && (has("-9223372036854775808") || has("9223372036854775807"))
}

/// Returns whether a reply is a line with this text.
fn says(value: &Value, text: &str) -> bool {
    matches!(value, Value::Line(line) if line.contains(text))
}

/// Writes the scores of a reply as the door does: Redis finds the fewest digits of almost all numbers, not of all.
fn with_scores_as_here(value: &Value) -> Value {
    let here = |text: &str| match number::double(text.as_bytes()) {
        Some(score) if text == "-0" || text.len() > DIGITS_ENOUGH => number::double_text(score + 0.0),
        _ => text.to_owned(),
    };
    match value {
        Value::Line(line) => match line.strip_prefix(',') {
            Some(score) => Value::Line(format!(",{}", here(score))),
            None => value.clone(),
        },
        Value::Bulk(kind, bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Bulk(*kind, here(text).into_bytes()),
            Err(_) => value.clone(),
        },
        Value::Parts(kind, parts) => Value::Parts(*kind, parts.iter().map(with_scores_as_here).collect()),
    }
}

fn is_near(redis: &Value, door: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Bulk(_, bytes) => std::str::from_utf8(bytes).ok()?.parse::<f64>().ok(),
        _ => None,
    };
    number(redis).zip(number(door)).is_some_and(|(redis, door)| (redis - door).abs() <= redis.abs() * 1e-15)
}
