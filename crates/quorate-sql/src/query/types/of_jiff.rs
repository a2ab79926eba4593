//! Types of `jiff`.

use jiff::{Timestamp, civil, tz};
use quorate_model::Value;

use super::calendar::{self, Clock, DATE, Date, LOCAL, MOMENT, Moment, TIME, from_text};
use super::single;
use crate::query::{FromRow, FromValue, Mismatch, RowError, RowRef};

from_text! {
    Timestamp, MOMENT, |text| Moment::parse(text).and_then(|at| moment(&at));
    civil::DateTime, LOCAL, |text| Moment::parse(text).filter(|at| at.offset.is_none()).and_then(|at| local(&at));
    civil::Date, DATE, |text| Date::parse(text).and_then(date);
    civil::Time, TIME, |text| Clock::parse(text).and_then(clock);
}

fn moment(at: &Moment) -> Option<Timestamp> {
    tz::Offset::from_seconds(at.offset.unwrap_or(0)).ok()?.to_timestamp(local(at)?).ok()
}

fn local(at: &Moment) -> Option<civil::DateTime> {
    Some(civil::DateTime::from_parts(date(at.date)?, clock(at.clock)?))
}

fn date(Date { year, month, day }: Date) -> Option<civil::Date> {
    civil::Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?).ok()
}

fn clock(Clock { hour, minute, second, nanos }: Clock) -> Option<civil::Time> {
    let small = |part: u8| i8::try_from(part).ok();
    civil::Time::new(small(hour)?, small(minute)?, small(second)?, nanos.try_into().ok()?).ok()
}
