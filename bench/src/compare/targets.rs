//! The targets of Quorate, and whether it reached them.

use super::cases::{HIQLITE, HIQLITE_IMMEDIATE, PLAIN, QUORATE, QUORATE_ARCHIVED, QUORATE_FOLLOWER, QUORATE_OS};
use super::runs::{At, Line, Runs};

/// A figure, or the ratio of two, with a bound.
pub struct Target {
    /// The description of the target.
    pub what: &'static str,
    /// The figure that is compared with the bound.
    of: At,
    /// The figure that it is divided by, if the target is a ratio.
    by: Option<At>,
    bound: Bound,
    /// The unit of the value, or `x` for a ratio.
    unit: &'static str,
    /// Whether only Quorate waits for the disk. The ratio then depends on the speed of the disk, so a slow disk excuses
    /// a miss.
    waits_for_disk: bool,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A disk is slow if the median time of an `fdatasync` is above this, in microseconds.
pub const FDATASYNC_US_MAX: f64 = 100.0;

/// The outcome of a target.
pub struct Outcome {
    pub value: f64,
    /// The times of an `fdatasync` right before Quorate's run, in microseconds.
    pub fdatasync_p50_us: f64,
    pub fdatasync_p99_us: f64,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Met,
    Missed,
    /// Missed on a disk that is too slow for this target.
    Excused,
}

const fn inserts(contender: &'static str, clients: u64) -> At {
    At { case: "INSERT", contender, clients, figure: "inserts_per_s" }
}

const fn selects(contender: &'static str, clients: u64) -> At {
    At { case: "point SELECT", contender, clients, figure: "selects_per_s" }
}

const fn in_case(case: &'static str, contender: &'static str, clients: u64, figure: &'static str) -> At {
    At { case, contender, clients, figure }
}

/// A target for Quorate with fsync relative to hiqlite, which does not wait for its disk.
const fn beside_default(what: &'static str, clients: u64, factor: f64) -> Target {
    let (of, by) = (inserts(QUORATE.label, clients), Some(inserts(HIQLITE.label, clients)));
    Target { what, of, by, bound: Bound::AtLeast(factor), unit: "x", waits_for_disk: true }
}

const fn ratio(what: &'static str, of: At, by: At, bound: Bound) -> Target {
    Target { what, of, by: Some(by), bound, unit: "x", waits_for_disk: false }
}

const fn figure(what: &'static str, of: At, bound: Bound, unit: &'static str) -> Target {
    Target { what, of, by: None, bound, unit, waits_for_disk: false }
}

const PROCESSES: At = in_case("INSERT, three processes", QUORATE.label, 64, "inserts_per_s");
const FOLLOWER: At = in_case("INSERT, three processes", QUORATE_FOLLOWER.label, 64, "inserts_per_s");
const ARCHIVE: &str = "INSERT with an archive";
const BATCH: At = in_case("INSERT in batches", QUORATE.label, 4, "inserts_per_s");
const BATCH_HIQLITE: At = in_case("INSERT in batches", HIQLITE.label, 4, "inserts_per_s");
const LINEARIZABLE: At = in_case("linearizable SELECT", QUORATE.label, 64, "selects_per_s");
const LINEARIZABLE_HIQLITE: At = in_case("linearizable SELECT", HIQLITE.label, 64, "selects_per_s");
const IMAGE: At = in_case("new follower", QUORATE.label, 64, "database_mb_per_s");

pub const TARGETS: &[Target] = &[
    beside_default("INSERT, 1 client, fsync: rate relative to hiqlite, default", 1, 0.65),
    beside_default("INSERT, 16 clients, fsync: rate relative to hiqlite, default", 16, 4.0),
    beside_default("INSERT, 64 clients, fsync: rate relative to hiqlite, default", 64, 8.0),
    beside_default("INSERT, 256 clients, fsync: rate relative to hiqlite, default", 256, 14.0),
    ratio(
        "INSERT, 1 client, fsync: rate relative to hiqlite, immediate",
        inserts(QUORATE.label, 1),
        inserts(HIQLITE_IMMEDIATE.label, 1),
        Bound::AtLeast(0.9),
    ),
    ratio(
        "INSERT, 64 clients, fsync: rate relative to hiqlite, immediate",
        inserts(QUORATE.label, 64),
        inserts(HIQLITE_IMMEDIATE.label, 64),
        Bound::AtLeast(12.0),
    ),
    ratio(
        "INSERT, 1 client, os: rate relative to hiqlite, default",
        inserts(QUORATE_OS.label, 1),
        inserts(HIQLITE.label, 1),
        Bound::AtLeast(1.4),
    ),
    ratio(
        "INSERT, 64 clients, os: rate relative to hiqlite, default",
        inserts(QUORATE_OS.label, 64),
        inserts(HIQLITE.label, 64),
        Bound::AtLeast(10.0),
    ),
    ratio(
        "INSERT, 64 clients, fsync, three processes: rate relative to one process",
        PROCESSES,
        inserts(QUORATE.label, 64),
        Bound::AtLeast(0.7),
    ),
    ratio(
        "INSERT, the same, clients on a follower: rate relative to the leader",
        FOLLOWER,
        PROCESSES,
        Bound::AtLeast(0.6),
    ),
    ratio(
        "INSERT, 64 clients, archived: rate relative to no archive",
        in_case(ARCHIVE, QUORATE_ARCHIVED.label, 64, "inserts_per_s"),
        in_case(ARCHIVE, QUORATE.label, 64, "inserts_per_s"),
        Bound::AtLeast(0.97),
    ),
    ratio(
        "INSERT, the same: p99 relative to no archive",
        in_case(ARCHIVE, QUORATE_ARCHIVED.label, 64, "p99_us"),
        in_case(ARCHIVE, QUORATE.label, 64, "p99_us"),
        Bound::AtMost(1.1),
    ),
    Target {
        waits_for_disk: true,
        ..ratio(
            "INSERT in batches, fsync: rate relative to hiqlite's transactions, default",
            BATCH,
            BATCH_HIQLITE,
            Bound::AtLeast(2.0),
        )
    },
    ratio(
        "point SELECT, 1 client: time relative to plain SQLite",
        selects(PLAIN.label, 1),
        selects(QUORATE.label, 1),
        Bound::AtMost(1.5),
    ),
    ratio(
        "point SELECT, 1 client: time relative to hiqlite",
        selects(HIQLITE.label, 1),
        selects(QUORATE.label, 1),
        Bound::AtMost(0.5),
    ),
    ratio(
        "point SELECT: rate of 2 clients relative to 1 client",
        selects(QUORATE.label, 2),
        selects(QUORATE.label, 1),
        Bound::AtLeast(1.5),
    ),
    ratio(
        "linearizable SELECT, 64 clients: rate relative to hiqlite's consistent query",
        LINEARIZABLE,
        LINEARIZABLE_HIQLITE,
        Bound::AtLeast(5.0),
    ),
    figure(
        "restart of a follower, 1 GiB, after SIGKILL: time to a linearizable read",
        in_case("restart", QUORATE.label, 64, "ready_ms"),
        Bound::AtMost(1000.0),
        " ms",
    ),
    figure("new follower, 1 GiB: database received per second", IMAGE, Bound::AtLeast(150.0), " MB"),
    figure(
        "new follower: rate of INSERTs relative to before",
        At { figure: "share_of_alone", ..IMAGE },
        Bound::AtLeast(0.8),
        "x",
    ),
    figure(
        "failover: time from SIGKILL to an acknowledged write, median",
        in_case("failover", QUORATE.label, 64, "gap_ms"),
        Bound::AtMost(1100.0),
        " ms",
    ),
    figure(
        "failover: the same, p99",
        in_case("failover", QUORATE.label, 64, "gap_p99_ms"),
        Bound::AtMost(2000.0),
        " ms",
    ),
    figure(
        "hand-over: longest wait of a write",
        in_case("hand-over", QUORATE.label, 64, "wait_max_ms"),
        Bound::AtMost(200.0),
        " ms",
    ),
    figure(
        "disk: a node's directory after 1,500,000 rows",
        in_case("disk, 1,500,000 rows", QUORATE.label, 64, "node_mb"),
        Bound::AtMost(30.0),
        " MB",
    ),
];

impl Target {
    /// Returns the outcome, if the figures were measured.
    pub fn outcome(&self, runs: &Runs) -> Option<Outcome> {
        let of = runs.line(self.of)?;
        let by = match self.by {
            Some(by) => Some(runs.line(by)?),
            None => None,
        };
        let value = of.median / by.as_ref().map_or(1.0, |by| by.median);
        // If times are compared, the divisor is the figure of Quorate's run.
        let quorate_first = self.of.contender.starts_with("Quorate");
        let quorate = by.filter(|_| !quorate_first).unwrap_or(of);
        let [fdatasync_p50_us, fdatasync_p99_us] = fdatasync(&quorate);
        let verdict = self.verdict(value, fdatasync_p50_us);
        Some(Outcome { value, fdatasync_p50_us, fdatasync_p99_us, verdict })
    }

    /// Whether a run for this target was tried at all.
    pub fn is_of(&self, runs: &Runs) -> bool {
        runs.of(self.of.case, self.of.contender).next().is_some()
    }

    fn verdict(&self, value: f64, fdatasync_p50_us: f64) -> Verdict {
        if self.share(value) >= 1.0 {
            Verdict::Met
        } else if self.waits_for_disk && fdatasync_p50_us > FDATASYNC_US_MAX {
            Verdict::Excused
        } else {
            Verdict::Missed
        }
    }

    /// Returns which share of the target a value reaches; 1 or more means that the target is met.
    pub fn share(&self, value: f64) -> f64 {
        match self.bound {
            Bound::AtLeast(bound) => value / bound,
            Bound::AtMost(bound) => bound / value,
        }
    }

    /// Formats the bound.
    pub fn bound(&self) -> String {
        match self.bound {
            Bound::AtLeast(bound) => format!("at least {}{}", decimals(bound), self.unit),
            Bound::AtMost(bound) => format!("at most {}{}", decimals(bound), self.unit),
        }
    }

    /// Formats a value.
    pub fn value(&self, value: f64) -> String {
        format!("{}{}", decimals(value), self.unit)
    }
}

/// Returns the times of an `fdatasync` before a run, p50 and p99, in microseconds.
pub fn fdatasync(line: &Line) -> [f64; 2] {
    let number = |name| line.run.get(name).and_then(serde_json::Value::as_f64).unwrap_or_default();
    [number("fdatasync_p50_us"), number("fdatasync_p99_us")]
}

/// Formats a number with enough digits to distinguish small ratios.
fn decimals(number: f64) -> String {
    let decimals = match number {
        _ if number < 10.0 => 2,
        _ if number < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cases::CASES;
    use super::super::runs::tests::runs;
    use super::*;

    fn beside(quorate: f64, hiqlite: f64, fdatasync_us: f64) -> Runs {
        let mut all = runs("INSERT", QUORATE.label, 64, &[quorate]);
        all.iter_mut().for_each(|run| run.report["fdatasync_p50_us"] = json!(fdatasync_us));
        all.extend(runs("INSERT", HIQLITE.label, 64, &[hiqlite]));
        Runs(all)
    }

    #[test]
    fn a_slow_disk_excuses_misses_that_wait_for_it() {
        let (waits, does_not) =
            (beside_default("", 64, 8.0), ratio("", TARGETS[2].of, TARGETS[2].by.unwrap(), TARGETS[2].bound));
        for (quorate, fdatasync_us, expected) in [
            (80_000.0, 60.0, [Verdict::Met; 2]),
            (80_000.0, 600.0, [Verdict::Met; 2]),
            (79_000.0, 60.0, [Verdict::Missed; 2]),
            (79_000.0, 101.0, [Verdict::Excused, Verdict::Missed]),
        ] {
            let all = beside(quorate, 10_000.0, fdatasync_us);
            let found = [&waits, &does_not].map(|target| target.outcome(&all).unwrap().verdict);
            assert_eq!(found, expected, "{quorate} {fdatasync_us}");
        }
    }

    #[test]
    fn lower_is_better_for_an_upper_bound() {
        let target = figure("", inserts(QUORATE.label, 64), Bound::AtMost(1000.0), " ms");
        let verdict = |value| target.outcome(&Runs(runs("INSERT", QUORATE.label, 64, &[value]))).unwrap().verdict;
        assert_eq!([verdict(1000.0), verdict(1001.0)], [Verdict::Met, Verdict::Missed]);
        assert_eq!((target.bound(), target.value(84.26)), ("at most 1000 ms".to_owned(), "84.3 ms".to_owned()));
    }

    #[test]
    fn a_target_that_was_not_measured_has_no_outcome() {
        let only_quorate = Runs(runs("INSERT", QUORATE.label, 64, &[1.0]));
        let target = beside_default("", 64, 8.0);
        assert!(target.outcome(&only_quorate).is_none() && target.is_of(&only_quorate));
        assert!(!target.is_of(&Runs::default()));
    }

    /// A target of a case that does not exist would be omitted silently.
    #[test]
    fn every_target_belongs_to_an_existing_case() {
        for target in TARGETS {
            for at in [Some(target.of), target.by].into_iter().flatten() {
                let case = CASES.iter().find(|case| case.name == at.case).expect(at.case);
                assert!(case.contenders.iter().any(|contender| contender.label == at.contender), "{at:?}");
                let case: Vec<_> = case.arguments.iter().flat_map(|argument| argument.split(',')).collect();
                assert!(at.clients == 64 || case.contains(&at.clients.to_string().as_str()), "{at:?}");
            }
        }
    }
}
