//! Times of expiries as commands name them.

use bytes::Bytes;
use quorate_keys::{Expiry, ExpiryCondition};

use crate::args::Args;
use crate::error::{Refusal, text};
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
    /// Reads when something expires. A time before now, or before 1970, is now or 1970, and one that is too late to be
    /// stored is the last that can be.
    pub fn time(self, word: &[u8], args: &Args) -> Result<Expiry, Refusal> {
        let units = integer(word).ok_or(Refusal::NotInteger)?.checked_mul(self.milliseconds);
        let units = units.ok_or(Refusal::Expiry(args.name))?;
        // Redis adds the time of the node, and refuses what overflows.
        let since = if self.is_relative { args.moment.now / MILLISECOND } else { 0 };
        units.checked_add_unsigned(since).ok_or(Refusal::Expiry(args.name))?;
        let nanos = u64::try_from(units).unwrap_or(0).saturating_mul(MILLISECOND).min(quorate_keys::limits::TIME_MAX);
        Ok(if self.is_relative { Expiry::In(nanos) } else { Expiry::At(nanos) })
    }

    /// Reads a time that is not before now, or 1970.
    pub fn not_before(self, word: &[u8], args: &Args) -> Result<Expiry, Refusal> {
        self.at_least(0, word, args)
    }

    /// Reads a time that is after now, or 1970.
    pub fn later(self, word: &[u8], args: &Args) -> Result<Expiry, Refusal> {
        self.at_least(1, word, args)
    }

    fn at_least(self, least: i64, word: &[u8], args: &Args) -> Result<Expiry, Refusal> {
        let number = integer(word).ok_or(Refusal::NotInteger)?;
        if number < least { Err(Refusal::Expiry(args.name)) } else { self.time(word, args) }
    }

    /// Returns how long it is to a time, or when it is, in this unit.
    pub fn to_reach(self, at: u64, now: u64) -> i64 {
        let since = if self.is_relative { now / MILLISECOND } else { 0 };
        let milliseconds = (at / MILLISECOND).saturating_sub(since) as i64;
        // Redis rounds seconds.
        if self.milliseconds == 1 { milliseconds } else { (milliseconds + 500) / self.milliseconds }
    }
}

/// An expiry as it was sent: its time is read once all words are known.
#[derive(Clone, Debug)]
pub enum When {
    /// As before.
    Keep,
    /// Never.
    Never,
    /// At a time.
    At(Clock, Bytes),
}

impl When {
    /// Reads an expiry, if the next argument names a time.
    pub fn read(args: &mut Args) -> Result<Option<Self>, Refusal> {
        let Some(clock) = args.choice(CLOCKS) else { return Ok(None) };
        Ok(Some(Self::At(clock, args.next()?)))
    }

    /// Returns what becomes of the expiry; `time` reads a time.
    pub fn expiry(
        &self,
        args: &Args,
        time: fn(Clock, &[u8], &Args) -> Result<Expiry, Refusal>,
    ) -> Result<Expiry, Refusal> {
        match self {
            Self::Keep => Ok(Expiry::Keep),
            Self::Never => Ok(Expiry::Never),
            Self::At(clock, word) => time(*clock, word, args),
        }
    }
}

/// Returns the time of an expiry, none for never, and whether it counts from the stamp of the entry.
pub fn time_of(expiry: Expiry) -> (Option<u64>, bool) {
    match expiry {
        Expiry::Never | Expiry::Keep => (None, false),
        Expiry::At(at) => (Some(at), false),
        Expiry::In(nanos) => (Some(nanos), true),
    }
}

/// Reads the conditions of an expiry, to the end of the arguments.
pub fn condition(args: &mut Args) -> Result<ExpiryCondition, Refusal> {
    read_condition(args, |_| false, |_, word| Refusal::Condition(text(&word)))
}

/// Reads the conditions of an expiry up to this word. `missing` is the error if it is not there.
pub fn condition_before(args: &mut Args, end: &str, missing: Refusal) -> Result<ExpiryCondition, Refusal> {
    let is_end = |word: &Bytes| word.eq_ignore_ascii_case(end.as_bytes());
    read_condition(args, is_end, |args, word| if args.has(end) { Refusal::Condition(text(&word)) } else { missing })
}

fn read_condition(
    args: &mut Args,
    is_end: impl Fn(&Bytes) -> bool,
    unsupported: impl FnOnce(&Args, Bytes) -> Refusal,
) -> Result<ExpiryCondition, Refusal> {
    const WORDS: &[(&str, usize)] = &[("NX", 0), ("XX", 1), ("GT", 2), ("LT", 3)];
    let mut given = [false; 4];
    while args.peek().is_some_and(|word| !is_end(word)) {
        let Some(word) = args.choice(WORDS) else {
            let word = args.next()?;
            return Err(unsupported(args, word));
        };
        if let Some(is_given) = given.get_mut(word) {
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
