//! Times as text.

/// The seconds of a day.
const DAY: u64 = 86_400;

/// Formats nanoseconds since 1970-01-01 UTC as a date and a time, as in RFC 3339.
pub fn text(nanos: u64) -> String {
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    format!("{}.{fraction:09}Z", without_zone(seconds))
}

/// Does the same with seconds.
pub fn seconds_text(seconds: u64) -> String {
    without_zone(seconds) + "Z"
}

fn without_zone(seconds: u64) -> String {
    let (year, month, day) = date(seconds / DAY);
    let time = seconds % DAY;
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Returns year, month and day of the date that is `days` days after 1970-01-01. It counts whole cycles of 400 years
/// from a 1 March, so that a leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const CYCLE: u64 = 146_097;
    const TO_MARCH_OF_YEAR_0: u64 = 719_468;
    let days = days + TO_MARCH_OF_YEAR_0;
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    // A leap day comes every 4 years, but not every 100 years, except every 400 years.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (of_month, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (cycle * 400 + year + u64::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000000Z"),
            (1_795_337_482, "2026-11-22T08:51:22.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(text(seconds * 1_000_000_000), expected);
        }
        assert!(text(u64::MAX).starts_with("2554-07-21T23:34:33.709551615"));
    }
}
