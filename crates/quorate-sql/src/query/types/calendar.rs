//! Parses dates and times in the forms of SQLite's functions: `YYYY-MM-DD`, `HH:MM[:SS[.F]]`, or both with a space or a
//! `T` between them, optionally followed by `Z` or an offset `+HH:MM[:SS]`.

use std::ops::RangeInclusive;

use quorate_model::Value;

use crate::query::Mismatch;

pub(super) const DATE: &str = "a date as TEXT (YYYY-MM-DD)";
pub(super) const TIME: &str = "a time of day as TEXT (HH:MM:SS)";
pub(super) const LOCAL: &str = "a date and a time without an offset as TEXT (YYYY-MM-DD HH:MM:SS)";
pub(super) const MOMENT: &str = "a date and a time as TEXT (YYYY-MM-DD HH:MM:SS, with an offset if it is not UTC)";

/// Implements the traits for types that a function parses from a text; it returns `None` for an invalid text.
macro_rules! from_text {
    ($($type:ty, $expected:expr, $read:expr;)*) => {
        $(
            impl FromValue<'_> for $type {
                fn from_value(value: &Value) -> Result<Self, Mismatch> {
                    let read: fn(&str) -> Option<$type> = $read;
                    calendar::read(value, $expected, read)
                }
            }
        )*
        single!($($type),*);
    };
}

pub(super) use from_text;

/// Parses a TEXT; fails for any other value.
pub(super) fn read<T>(value: &Value, expected: &'static str, read: fn(&str) -> Option<T>) -> Result<T, Mismatch> {
    match value {
        Value::Text(text) => read(text).ok_or_else(|| Mismatch::value(expected, value)),
        other => Err(Mismatch::class(expected, other)),
    }
}

/// A year, a month from 1, and a day from 1. Whether the month has that day is not checked here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i32,
    pub(super) month: u8,
    pub(super) day: u8,
}

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) hour: u8,
    pub(super) minute: u8,
    pub(super) second: u8,
    pub(super) nanos: u32,
}

/// A date and a time of day, and the offset in seconds, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) date: Date,
    pub(super) clock: Clock,
    pub(super) offset: Option<i32>,
}

/// The most digits of a fraction of a second.
const FRACTION_DIGITS: usize = 9;

impl Date {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (sign, digits, unsigned) = match text.split_at_checked(1)? {
            ("-", rest) => (-1, 4..=6, rest),
            ("+", rest) => (1, 4..=6, rest),
            _ => (1, 4..=4, text),
        };
        let mut parts = unsigned.splitn(3, '-');
        let year = i32::try_from(number(parts.next()?, digits)?).ok()? * sign;
        let (month, day) = (pair(parts.next()?)?, pair(parts.next()?)?);
        Some(Self { year, month, day })
    }
}

impl Clock {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
        let mut parts = whole.splitn(3, ':');
        let (hour, minute, second) = (pair(parts.next()?)?, pair(parts.next()?)?, parts.next());
        let nanos = match fraction {
            None => 0,
            Some(_) if second.is_none() => return None,
            Some(digits) => number(&format!("{digits:0<FRACTION_DIGITS$}"), FRACTION_DIGITS..=FRACTION_DIGITS)?,
        };
        if fraction == Some("") {
            return None;
        }
        Some(Self { hour, minute, second: second.map_or(Some(0), pair)?, nanos })
    }
}

impl Moment {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.split_once([' ', 'T'])?;
        let (clock, offset) = match time.strip_suffix(['Z', 'z']) {
            Some(clock) => (clock, Some(0)),
            None => match time.rfind(['+', '-']).and_then(|at| time.split_at_checked(at)) {
                Some((clock, offset)) => (clock, Some(parse_offset(offset)?)),
                None => (time, None),
            },
        };
        Some(Self { date: Date::parse(date)?, clock: Clock::parse(clock)?, offset })
    }
}

fn parse_offset(text: &str) -> Option<i32> {
    let (sign, unsigned) = text.split_at_checked(1)?;
    let Clock { hour, minute, second, nanos: 0 } = Clock::parse(unsigned)? else { return None };
    let seconds = i32::from(hour) * 3600 + i32::from(minute) * 60 + i32::from(second);
    Some(if sign == "-" { -seconds } else { seconds })
}

fn pair(text: &str) -> Option<u8> {
    number(text, 2..=2).and_then(|number| u8::try_from(number).ok())
}

fn number(text: &str, digits: RangeInclusive<usize>) -> Option<u32> {
    let is_number = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_the_forms_of_sqlite_are_parsed() {
        let date = Date { year: 2026, month: 2, day: 3 };
        let clock = Clock { hour: 4, minute: 5, second: 6, nanos: 70_000_000 };
        for (rest, offset) in [("", None), ("Z", Some(0)), ("+01:30", Some(5400)), ("-01:30:01", Some(-5401))] {
            for between in [" ", "T"] {
                let text = format!("2026-02-03{between}04:05:06.07{rest}");
                assert_eq!(Moment::parse(&text), Some(Moment { date, clock, offset }), "{text}");
            }
        }
        assert_eq!(Clock::parse("04:05"), Some(Clock { second: 0, nanos: 0, ..clock }));
        assert_eq!(Date::parse("-123456-02-03"), Some(Date { year: -123_456, ..date }));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "2026", "2026-2-03", "2026-02-03-04", "é026-02-03", "+26-02-03", "2026-02-0é", "12026-02-03"]
        {
            assert_eq!(Date::parse(text), None, "{text}");
        }
        for text in ["", "4:05", "04", "04:05:06.", "04:05.5", "04:05:06.0123456789", "04:05:06:07", "é4:05", "04:+5"]
        {
            assert_eq!(Clock::parse(text), None, "{text}");
        }
        for text in ["2026-02-03", "2026-02-03 04:05 Z", "2026-02-03 04:05+1", "2026-02-03 04:05+01:00:00.5", "é é"] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }
}
