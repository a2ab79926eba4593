//! Dates and times of `chrono`, `jiff` and `time`, each as the calendar of this crate parses it.

#[cfg(feature = "chrono")]
mod of_chrono {
    use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, TimeZone as _, Utc};
    use quorate_model::Value;

    use crate::query::types::calendar::{self, Clock, DATE, Date, LOCAL, MOMENT, Moment, TIME, from_text};
    use crate::query::types::single;
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
}

#[cfg(feature = "jiff")]
mod of_jiff {
    use jiff::{Timestamp, civil, tz};
    use quorate_model::Value;

    use crate::query::types::calendar::{self, Clock, DATE, Date, LOCAL, MOMENT, Moment, TIME, from_text};
    use crate::query::types::single;
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
}

#[cfg(feature = "time")]
mod of_time {
    use quorate_model::Value;
    use time::{Month, OffsetDateTime, PrimitiveDateTime, UtcOffset};

    use crate::query::types::calendar::{self, Clock, DATE, Date, LOCAL, MOMENT, Moment, TIME, from_text};
    use crate::query::types::single;
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
}
