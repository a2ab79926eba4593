//! Compares the clocks of the nodes.

use std::time::Duration;

use quorate_model::STAMP_AHEAD_MAX;

use super::disk::millis;
use super::finding::Finding;

const CHECK: &str = "clocks";

/// A difference above this moves the time that statements see.
const NOTE_FROM: Duration = Duration::from_millis(250);

/// A node's clock, compared with that of this machine.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The node's name.
    pub name: String,
    /// The node's clock minus this machine's, in nanoseconds.
    pub offset: i64,
    /// The error of `offset` is at most this: half of the round trip.
    pub error: Duration,
}

/// Checks whether the clocks agree, and explains what it means if they do not.
pub fn check(clocks: &[Clock]) -> Vec<Finding> {
    let Some((first, last)) =
        clocks.iter().min_by_key(|clock| clock.offset).zip(clocks.iter().max_by_key(|clock| clock.offset))
    else {
        return Vec::new();
    };
    let mut findings = vec![between(first, last, clocks.len())];
    let here = clocks.iter().map(|clock| clock.offset).max_by_key(|offset| offset.unsigned_abs()).unwrap_or(0);
    let away = Duration::from_nanos(here.unsigned_abs());
    if away > NOTE_FROM {
        let what = format!("this machine's clock differs from the nodes' by up to {}", millis(away));
        findings.push(Finding::note(CHECK, what, "This affects the cluster only if a node runs here."));
    }
    findings
}

fn between(first: &Clock, last: &Clock, count: usize) -> Finding {
    let apart = Duration::from_nanos(last.offset.abs_diff(first.offset));
    let error = first.error.saturating_add(last.error);
    if count < 2 {
        let what =
            format!("'{}' differs from this machine by {} (± {})", first.name, signed(first.offset), millis(error));
        return Finding::ok(CHECK, what, "");
    }
    let what =
        format!("at most {} apart (± {}): '{}' is ahead of '{}'", millis(apart), millis(error), last.name, first.name);
    let stamps = "Statements see the leader's time, which is at most 1 s ahead of the median of the voters' clocks, \
                  and never goes back.";
    if apart.saturating_sub(error) > STAMP_AHEAD_MAX {
        let means = format!(
            "{stamps} With clocks this far apart it stands still, or jumps, when leadership moves, and a wrong clock \
             may expire sessions early. Synchronize all clocks with NTP or chrony."
        );
        Finding::problem(CHECK, what, means)
    } else if apart.saturating_sub(error) > NOTE_FROM {
        Finding::note(CHECK, what, format!("{stamps} It may stand still for that long when leadership moves."))
    } else {
        Finding::ok(CHECK, what, stamps)
    }
}

fn signed(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "+" };
    format!("{sign}{}", millis(Duration::from_nanos(nanos.unsigned_abs())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use super::super::finding::Level::{self, Note, Ok, Problem};
    use super::*;

    fn levels(offsets: &[i64]) -> Vec<Level> {
        let clock = |(number, millis): (usize, &i64)| Clock {
            name: number.to_string(),
            offset: millis * 1_000_000,
            error: Duration::from_millis(1),
        };
        let clocks: Vec<Clock> = offsets.iter().enumerate().map(clock).collect();
        check(&clocks).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn clocks_are_compared_with_each_other() {
        assert_eq!(levels(&[]), []);
        assert_eq!(levels(&[3]), [Ok]);
        assert_eq!(levels(&[-20, 0, 15]), [Ok]);
        assert_eq!(levels(&[-200, 0, 200]), [Note]);
        assert_eq!(levels(&[0, 0, 2_000]), [Problem, Note]);
        // The nodes agree, but this machine does not.
        assert_eq!(levels(&[5_000, 5_001, 5_002]), [Ok, Note]);
        // A difference below the error of the measurement is not reported.
        let clock = |offset| Clock { name: String::new(), offset, error: Duration::from_secs(1) };
        assert_eq!(check(&[clock(0), clock(1_500_000_000)])[0].level, Ok);
    }
}
