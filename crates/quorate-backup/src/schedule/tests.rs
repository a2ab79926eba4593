//! Tests of schedules.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use proptest::prelude::*;

use super::*;

#[test]
fn schedules_are_in_utc() {
    for (text, after, next) in [
        ("@daily", 1, 86_400),
        ("@hourly", 0, 3_600),
        ("0 2 * * *", 0, 7_200),
        ("0 2 * * *", 7_200, 93_600),
        ("*/5 * * * * *", 3, 5),
        ("0 0 29 2 *", 0, 68_169_600),
    ] {
        assert_eq!(text.parse::<Schedule>().unwrap().next_after(after), Some(next), "{text}");
    }
}

#[test]
fn what_is_no_schedule_is_refused() {
    for text in ["", "daily", "* * *", "61 * * * *", "0 2 * * * * * *", "@never"] {
        let error = text.parse::<Schedule>().unwrap_err().to_string();
        assert!(error.contains("is not a schedule") && error.contains("@daily"), "{error}");
    }
}

proptest! {
    #[test]
    fn the_next_time_is_later(time in 0..4_000_000_000_u64, minute in 0..60_u8) {
        let schedule: Schedule = format!("{minute} * * * *").parse().unwrap();
        let next = schedule.next_after(time).unwrap();
        prop_assert!(next > time && next <= time + 3_600 && next % 3_600 == u64::from(minute) * 60);
    }
}
