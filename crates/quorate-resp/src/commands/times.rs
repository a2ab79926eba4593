//! Times of expiries as commands name them.

use quorate_keys::{Expiry, ExpiryCondition};

use crate::args::Args;
use crate::error::Refusal;
use crate::number::integer;

const MILLISECOND: u64 = 1_000_000;

/// A unit of time, and what it counts from.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Its milliseconds.
    milliseconds: i64,
    /// Whether it counts from now; else from 1970.
    is_relative: bool,
}

/// Seconds from now.
pub const SECONDS: Clock = Clock { milliseconds: 1_000, is_relative: true };
/// Milliseconds from now.
pub const MILLISECONDS: Clock = Clock { milliseconds: 1, is_relative: true };
/// Seconds since 1970.
pub const SECONDS_AT: Clock = Clock { milliseconds: 1_000, is_relative: false };
/// Milliseconds since 1970.
pub const MILLISECONDS_AT: Clock = Clock { milliseconds: 1, is_relative: false };

const CLOCKS: &[(&str, Clock)] =
    &[("EX", SECONDS), ("PX", MILLISECONDS), ("EXAT", SECONDS_AT), ("PXAT", MILLISECONDS_AT)];

impl Clock {
    /// Reads a time, in nanoseconds since 1970. One before 1970 is 0.
    pub fn time(self, word: &[u8], args: &Args) -> Result<u64, Refusal> {
        self.at(integer(word).ok_or(Refusal::NotInteger)?, args)
    }

    /// Reads a time that is not before now, or 1970.
    pub fn later(self, args: &mut Args) -> Result<u64, Refusal> {
        let number = args.integer()?;
        if number <= 0 { Err(Refusal::Expiry(args.name)) } else { self.at(number, args) }
    }

    fn at(self, number: i64, args: &Args) -> Result<u64, Refusal> {
        let since = if self.is_relative { args.moment.now / MILLISECOND } else { 0 };
        let time = i128::from(number) * i128::from(self.milliseconds) + i128::from(since);
        let time = time * i128::from(MILLISECOND);
        let is_known = time <= i128::from(quorate_keys::limits::TIME_MAX);
        u64::try_from(time.max(0)).ok().filter(|_| is_known).ok_or(Refusal::Expiry(args.name))
    }

    /// Returns how long it is to a time, or when it is, in this unit.
    pub fn from_now(self, at: u64, now: u64) -> i64 {
        let since = if self.is_relative { now / MILLISECOND } else { 0 };
        let milliseconds = (at / MILLISECOND).saturating_sub(since) as i64;
        // Redis rounds seconds.
        if self.milliseconds == 1 { milliseconds } else { (milliseconds + 500) / self.milliseconds }
    }
}

/// Reads an expiry, if the next argument names one.
pub fn expiry(args: &mut Args) -> Result<Option<Expiry>, Refusal> {
    let Some(clock) = args.choice(CLOCKS) else { return Ok(None) };
    Ok(Some(Expiry::At(clock.later(args)?)))
}

/// Reads the conditions of an expiry, to the end of the arguments.
pub fn condition(args: &mut Args) -> Result<ExpiryCondition, Refusal> {
    const WORDS: &[(&str, usize)] = &[("NX", 0), ("XX", 1), ("GT", 2), ("LT", 3)];
    let mut given = [false; 4];
    while !args.is_empty() && !starts_fields(args) {
        let word = args.choice(WORDS).ok_or(Refusal::Text("ERR Unsupported option"));
        if let Some(is_given) = given.get_mut(word?) {
            *is_given = true;
        }
    }
    match given {
        [true, false, false, false] => Ok(ExpiryCondition::Missing),
        [true, ..] => Err(Refusal::Text("ERR NX and XX, GT or LT options at the same time are not compatible")),
        [_, _, true, true] => Err(Refusal::Text("ERR GT and LT options at the same time are not compatible")),
        [_, true, _, true] => Err(Refusal::Text("ERR XX and LT options at the same time are not supported")),
        [_, _, true, _] => Ok(ExpiryCondition::Later),
        [_, _, _, true] => Ok(ExpiryCondition::Earlier),
        [_, true, ..] => Ok(ExpiryCondition::Exists),
        _ => Ok(ExpiryCondition::Always),
    }
}

fn starts_fields(args: &Args) -> bool {
    args.peek().is_some_and(|word| word.eq_ignore_ascii_case(b"FIELDS"))
}
