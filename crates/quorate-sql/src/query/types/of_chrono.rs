//! Types of `chrono`.

use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, TimeZone as _, Utc};
use quorate_model::Value;

use super::calendar::{self, Clock, DATE, Date, LOCAL, MOMENT, Moment, TIME, from_text};
use super::single;
use crate::query::{FromRow, FromValue, Mismatch, RowError, RowRef};

from_text! {
    DateTime<FixedOffset>, MOMENT, |text| Moment::parse(text).and_then(moment);
    DateTime<Utc>, MOMENT, |text| Moment::parse(text).and_then(moment).map(|at| at.to_utc());
    NaiveDateTime, LOCAL, |text| Moment::parse(text).filter(|at| at.offset.is_none()).and_then(|at| local(&at));
    NaiveDate, DATE, |text| Date::parse(text).and_then(date);
    NaiveTime, TIME, |text| Clock::parse(text).and_then(clock);
}

fn moment(at: Moment) -> Option<DateTime<FixedOffset>> {
    FixedOffset::east_opt(at.offset.unwrap_or(0))?.from_local_datetime(&local(&at)?).single()
}

fn local(at: &Moment) -> Option<NaiveDateTime> {
    Some(date(at.date)?.and_time(clock(at.clock)?))
}

fn date(Date { year, month, day }: Date) -> Option<NaiveDate> {
    NaiveDate::from_ymd_opt(year, month.into(), day.into())
}

/// `chrono` represents a leap second as second 59 with a billion nanoseconds or more.
fn clock(Clock { hour, minute, second, nanos }: Clock) -> Option<NaiveTime> {
    let (second, nanos) = if second == 60 { (59, nanos + 1_000_000_000) } else { (second, nanos) };
    NaiveTime::from_hms_nano_opt(hour.into(), minute.into(), second.into(), nanos)
}
