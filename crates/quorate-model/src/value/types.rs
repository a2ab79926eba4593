//! Conversions of the types of other crates to values, each behind the feature named like its crate.
//!
//! Times become texts that SQLite's date functions read and that sort chronologically: `YYYY-MM-DD HH:MM:SS`, with up
//! to nine digits of a fraction unless it is zero, and with the offset unless it is zero. A text without an offset is
//! UTC, as in SQLite. `quorate_sql::query` reads these texts.

#[cfg(any(feature = "rust_decimal", feature = "serde_json", feature = "uuid"))]
use super::Value;

#[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
mod calendar {
    use std::fmt;

    /// A day: year, month and day of the month.
    pub(super) struct Date<Y, S>(pub(super) Y, pub(super) S, pub(super) S);

    /// A time of the day: hour, minute, second, nanosecond.
    pub(super) struct Clock<S, N>(pub(super) S, pub(super) S, pub(super) S, pub(super) N);

    /// Seconds east of UTC.
    #[cfg(any(feature = "chrono", feature = "time"))]
    pub(super) struct Offset(pub(super) i32);

    impl<Y: Into<i32> + Copy, S: fmt::Display> fmt::Display for Date<Y, S> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self(year, month, day) = self;
            let year: i32 = (*year).into();
            // SQLite's functions accept the years from 0 to 9999. Other years get a sign, and only this project reads
            // them.
            let sign = match year {
                ..0 => "-",
                0..=9999 => "",
                _ => "+",
            };
            write!(f, "{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs())
        }
    }

    impl<S: fmt::Display, N: fmt::Display> fmt::Display for Clock<S, N> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self(hour, minute, second, nanos) = self;
            write!(f, "{hour:02}:{minute:02}:{second:02}")?;
            let digits = format!("{nanos:09}");
            let digits = digits.trim_end_matches('0');
            if digits.is_empty() { Ok(()) } else { write!(f, ".{digits}") }
        }
    }

    #[cfg(any(feature = "chrono", feature = "time"))]
    impl fmt::Display for Offset {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let (sign, seconds) = (if self.0 < 0 { '-' } else { '+' }, self.0.unsigned_abs());
            match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
                (0, 0, 0) => Ok(()),
                (hours, minutes, 0) => write!(f, "{sign}{hours:02}:{minutes:02}"),
                (hours, minutes, seconds) => write!(f, "{sign}{hours:02}:{minutes:02}:{seconds:02}"),
            }
        }
    }
}

#[cfg(feature = "chrono")]
mod of_chrono {
    use chrono::{DateTime, Datelike as _, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, Timelike as _, Utc};

    use super::calendar::{Clock, Date, Offset};
    use crate::Value;

    /// In a leap second, chrono's nanoseconds exceed a billion.
    const SECOND: u32 = 1_000_000_000;

    fn date(date: NaiveDate) -> Date<i32, u32> {
        Date(date.year(), date.month(), date.day())
    }

    fn clock(time: NaiveTime) -> Clock<u32, u32> {
        let nanos = time.nanosecond();
        Clock(time.hour(), time.minute(), time.second() + nanos / SECOND, nanos % SECOND)
    }

    value_from! {
        DateTime<FixedOffset> => |at| {
            let local = at.naive_local();
            let offset = Offset(at.offset().local_minus_utc());
            Value::Text(format!("{} {}{offset}", date(local.date()), clock(local.time())))
        },
        DateTime<Utc> => |at| at.naive_utc().into(),
        NaiveDateTime => |at| Value::Text(format!("{} {}", date(at.date()), clock(at.time()))),
        NaiveDate => |day| Value::Text(date(day).to_string()),
        NaiveTime => |time| Value::Text(clock(time).to_string()),
    }
}

#[cfg(feature = "time")]
mod of_time {
    use time::{OffsetDateTime, PrimitiveDateTime};

    use super::calendar::{Clock, Date, Offset};
    use crate::Value;

    fn date(date: time::Date) -> Date<i32, u8> {
        Date(date.year(), u8::from(date.month()), date.day())
    }

    fn clock(time: time::Time) -> Clock<u8, u32> {
        Clock(time.hour(), time.minute(), time.second(), time.nanosecond())
    }

    value_from! {
        OffsetDateTime => |at| {
            let offset = Offset(at.offset().whole_seconds());
            Value::Text(format!("{} {}{offset}", date(at.date()), clock(at.time())))
        },
        PrimitiveDateTime => |at| Value::Text(format!("{} {}", date(at.date()), clock(at.time()))),
        time::Date => |day| Value::Text(date(day).to_string()),
        time::Time => |time| Value::Text(clock(time).to_string()),
    }
}

#[cfg(feature = "jiff")]
mod of_jiff {
    use jiff::{Timestamp, civil, tz};

    use super::calendar::{Clock, Date};
    use crate::Value;

    fn date(date: civil::Date) -> Date<i16, i8> {
        Date(date.year(), date.month(), date.day())
    }

    fn clock(time: civil::Time) -> Clock<i8, i32> {
        Clock(time.hour(), time.minute(), time.second(), time.subsec_nanosecond())
    }

    value_from! {
        Timestamp => |at| tz::Offset::UTC.to_datetime(at).into(),
        civil::DateTime => |at| Value::Text(format!("{} {}", date(at.date()), clock(at.time()))),
        civil::Date => |day| Value::Text(date(day).to_string()),
        civil::Time => |time| Value::Text(clock(time).to_string()),
    }
}

#[cfg(feature = "uuid")]
value_from! {
    // The 16 bytes of the UUID.
    uuid::Uuid => |id| Value::Blob(bytes::Bytes::copy_from_slice(id.as_bytes())),
}

#[cfg(feature = "serde_json")]
value_from! {
    serde_json::Value => |json| Value::Text(json.to_string()),
}

#[cfg(feature = "rust_decimal")]
value_from! {
    // A text, because SQLite has no exact decimal fractions.
    rust_decimal::Decimal => |decimal| Value::Text(decimal.to_string()),
}
