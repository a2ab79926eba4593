//! How replies compare.
//!
//! Replies are equal byte for byte, but for what is random, what has no order in Redis, what depends on the clock, and
//! the decisions that `docs/keys.md` lists under "Differences from Redis"; each is named here.

use std::fmt;

use bytes::Bytes;

use super::Value;
use crate::number;

/// The most milliseconds that two replies with a time may differ by.
const CLOCK_DIFFERENCE_MAX: u64 = 2_000;

/// Times from so many seconds on are alike.
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
#[derive(Debug)]
pub struct Comparison {
    /// The requests of a transaction that has begun.
    queued: Vec<Vec<Bytes>>,
    /// The most that two replies with a time may differ by.
    apart_max: u64,
}

impl Default for Comparison {
    /// Compares servers that do a request at about the same time.
    fn default() -> Self {
        Self { queued: Vec::new(), apart_max: CLOCK_DIFFERENCE_MAX }
    }
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
    /// Compares servers whose clocks stand still at the same time.
    pub fn at_one_time() -> Self {
        Self { apart_max: 0, ..Self::default() }
    }

    /// Compares the replies to the next request.
    ///
    /// # Errors
    ///
    /// The [`Difference`].
    pub fn check(&mut self, request: &[Bytes], redis: &Value, door: &Value) -> Result<Alike, Box<Difference>> {
        let name = name(request);
        let checked = match name.as_str() {
            "exec" => self.transaction(request, redis, door),
            _ => self.one(request, redis, door),
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
            // The version of the protocol changes between the replies.
            (Value::Parts(..), Value::Parts(..)) if self.has("hello") => Ok(Alike::Apart),
            (Value::Parts(_, redis), Value::Parts(_, door)) if redis.len() == door.len() => {
                let mut all = Alike::Same;
                for (request, (redis, door)) in self.queued.iter().zip(redis.iter().zip(door)) {
                    if all == Alike::Same {
                        all = self.one(request, redis, door)?;
                    }
                }
                Ok(all)
            }
            // Parameters are changed although a watched key has.
            (Value::Line(redis), Value::Line(door)) if is_null(redis) && is_null(door) && self.has("config") => {
                Ok(Alike::Apart)
            }
            // A watched key that was missing, was made and was removed again has not changed here.
            (Value::Line(redis), Value::Parts(..)) if is_null(redis) => Ok(Alike::Apart),
            // A write that leaves a watched key as it was may count as a change.
            (Value::Parts(..), Value::Line(door)) if is_null(door) => Ok(Alike::Apart),
            _ => self.one(exec, redis, door),
        }
    }

    fn one(&self, request: &[Bytes], redis: &Value, door: &Value) -> Result<Alike, Box<Difference>> {
        let differ = || Difference { request: request.to_vec(), redis: redis.clone(), door: door.clone() };
        alike(request, redis, door, self.apart_max).ok_or_else(|| Box::new(differ()))
    }

    /// Returns whether the transaction has such a command.
    fn has(&self, command: &str) -> bool {
        self.queued.iter().any(|request| name(request) == command)
    }
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

fn alike(request: &[Bytes], redis: &Value, door: &Value, apart_max: u64) -> Option<Alike> {
    let name = name(request);
    let is_same = match rule(&name, request) {
        _ if redis == door || is_decision_on_reply(request, &name, redis, door) => true,
        _ if redis.is_error() || door.is_error() => false,
        // What is on one page of several is up to the server.
        _ if name.ends_with("scan") && (has_next(redis) || has_next(door)) => true,
        Rule::Exact => false,
        Rule::AnyOrder => sorted(redis, 1) == sorted(door, 1),
        Rule::AnyOrderOfPairs => sorted(redis, 2) == sorted(door, 2) || sorted(redis, 1) == sorted(door, 1),
        Rule::Shape => shape(redis) == shape(door),
        Rule::Type => shape(redis).0 == shape(door).0,
        Rule::Near => near(redis, door, apart_max, far(&name)),
    };
    let is_apart = || {
        is_decision(request, &name, redis, door)
            || (name == "spop" && shape(redis) == shape(door))
            || (apart_max > 0 && depends_on_clocks(request, &name))
    };
    if is_same && !hides_decision(request, &name) { Some(Alike::Same) } else { is_apart().then_some(Alike::Apart) }
}

/// Returns whether two replies differ by a decision, after which both sides are the same all the same.
fn is_decision_on_reply(request: &[Bytes], name: &str, redis: &Value, door: &Value) -> bool {
    match name {
        // Without users, everyone is let in.
        "auth" => says(redis, "WRONGPASS") && !door.is_error(),
        // A zero byte does not end what a client says of itself. Nobody reads its library.
        "client" if says(door, "cannot contain spaces") => has_zero(request) && !says(door, "Client names"),
        "client" => says(door, "client-side caching is not supported"),
        _ => false,
    }
}

/// Returns whether a request has a word, in any case.
fn has(request: &[Bytes], option: &str) -> bool {
    request.iter().any(|word| word.eq_ignore_ascii_case(option.as_bytes()))
}

fn has_zero(request: &[Bytes]) -> bool {
    request.iter().any(|word| word.contains(&0))
}

/// Returns whether a reply depends on the clock of each side: whether an expiry is later than another one of the same
/// length.
fn depends_on_clocks(request: &[Bytes], name: &str) -> bool {
    let has = |option| has(request, option);
    matches!(name, "expire" | "pexpire" | "hexpire" | "hpexpire") && (has("GT") || has("LT"))
}

/// Returns whether a decision may be about what is stored, and not about the reply.
fn hides_decision(request: &[Bytes], name: &str) -> bool {
    let has = |option| has(request, option);
    match name {
        "bitfield" => saturates_at_ends(request),
        // What is stored has the order that the reply does not show.
        "sort" => has("ALPHA") && has("STORE"),
        _ => false,
    }
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

/// Returns the time from which on those are alike that a command returns.
fn far(name: &str) -> i64 {
    let is_in_milliseconds = matches!(name, "pttl" | "hpttl" | "pexpiretime" | "hpexpiretime");
    if is_in_milliseconds { FAR * 1_000 } else { FAR }
}

fn near(redis: &Value, door: &Value, apart_max: u64, far: i64) -> bool {
    match (redis, door) {
        (Value::Parts(_, redis), Value::Parts(_, door)) => {
            redis.len() == door.len() && redis.iter().zip(door).all(|(redis, door)| near(redis, door, apart_max, far))
        }
        _ => match (redis.number(), door.number()) {
            // The door stores no later time than one in 2262.
            (Some(redis), Some(door)) if redis >= far && door >= far => true,
            (Some(redis), Some(door)) if redis >= 0 && door >= 0 => redis.abs_diff(door) <= apart_max,
            (redis, door) => redis.is_some() && redis == door,
        },
    }
}

/// Returns whether two replies differ by a decision that `docs/keys.md` lists.
fn is_decision(request: &[Bytes], name: &str, redis: &Value, door: &Value) -> bool {
    let door_says = |text: &str| says(door, text);
    let has = |option| has(request, option);
    match name {
        // Names of channels are text of a limited length.
        "publish" | "spublish" => door_says("the name of a channel"),
        // Times after 2262 are one time.
        "expireat" | "hexpireat" => (has("GT") || has("LT")) && is_late(request, 1_000),
        "pexpireat" | "hpexpireat" => (has("GT") || has("LT")) && is_late(request, 1),
        // Databases from 8 on are for caches.
        "select" | "copy" | "move" => door_says("no cache is configured"),
        // Cursors are known, or an error.
        "scan" | "hscan" | "sscan" | "zscan" if door_says("unknown cursor") => true,
        "zscan" => sorted(&with_scores_as_here(redis), 2) == sorted(door, 2),
        // It asks the store more than once.
        "sort" | "sort_ro" if door_says("has several pages") => true,
        // Other clients of the port wait for these.
        "sort" | "sort_ro" | "lcs" if door_says("has more than 100 of") => true,
        // Members of a set that are not sorted have no order in Redis.
        "sort" | "sort_ro" if has("nosort") => shape(redis) == shape(door),
        // Elements whose texts for BY are equal have no order in Redis.
        "sort" | "sort_ro" if has("ALPHA") && (has("BY") || has("STORE")) => shape(redis) == shape(door),
        // Redis compares texts up to a zero byte.
        "sort" | "sort_ro" => has("ALPHA") && (shows_zero(redis) || shows_zero(door)),
        // A list has no such item.
        "lset" => door_says("index out of range"),
        "client" | "hello" if door_says("cannot contain spaces") => has_zero(request),
        // Without users, everyone is let in.
        "hello" if says(redis, "WRONGPASS") && !door.is_error() => true,
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
fn shows_zero(value: &Value) -> bool {
    match value {
        Value::Line(_) => false,
        Value::Bulk(_, bytes) => bytes.contains(&0),
        Value::Parts(_, parts) => parts.iter().any(shows_zero),
    }
}

/// Returns whether the time of a request, in a unit of so many milliseconds, is later than any that is stored.
fn is_late(request: &[Bytes], unit: u64) -> bool {
    let time = request.get(2).and_then(|word| number::integer(word)).and_then(|time| u64::try_from(time).ok());
    time.is_some_and(|time| time.saturating_mul(unit) > quorate_keys::limits::TIME_MAX / 1_000_000)
}

/// Returns whether a BITFIELD may take the end of a type for an integer at the end of those of 64 bits. Redis may take
/// the other end.
fn saturates_at_ends(request: &[Bytes]) -> bool {
    let has = |option| has(request, option);
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
