//! Types of `time`.

use quorate_model::Value;
use time::{Month, OffsetDateTime, PrimitiveDateTime, UtcOffset};

use super::calendar::{self, Clock, DATE, Date, LOCAL, MOMENT, Moment, TIME, from_text};
use super::single;
use crate::query::{FromRow, FromValue, Mismatch, RowError, RowRef};

from_text! {
    OffsetDateTime, MOMENT, |text| Moment::parse(text).and_then(|at| moment(&at));
    PrimitiveDateTime, LOCAL, |text| Moment::parse(text).filter(|at| at.offset.is_none()).and_then(|at| local(&at));
    time::Date, DATE, |text| Date::parse(text).and_then(date);
    time::Time, TIME, |text| Clock::parse(text).and_then(clock);
}

fn moment(at: &Moment) -> Option<OffsetDateTime> {
    Some(local(at)?.assume_offset(UtcOffset::from_whole_seconds(at.offset.unwrap_or(0)).ok()?))
}

fn local(at: &Moment) -> Option<PrimitiveDateTime> {
    Some(PrimitiveDateTime::new(date(at.date)?, clock(at.clock)?))
}

fn date(Date { year, month, day }: Date) -> Option<time::Date> {
    time::Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()
}

fn clock(Clock { hour, minute, second, nanos }: Clock) -> Option<time::Time> {
    time::Time::from_hms_nano(hour, minute, second, nanos).ok()
}
