//! The result of a run: figures, and the verdict of each checker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quorate_history::{self as history, Nanos, Outcome, append, bank, register, set};

use super::faults::Kind;
use super::load::Record;
use super::load::bank::AT_FIRST;
use crate::harness::figures::{Times, ms};
use crate::verdict::Verdict;

/// The maximum number of steps in the search for an order of each register.
const STEPS_MAX: u64 = 5_000_000;
/// How many findings of a checker are printed.
const PRINTED_MAX: usize = 5;
/// How many characters of a finding are printed.
const FINDING_CHARS_MAX: usize = 2000;

/// The result of a run.
#[derive(Default)]
pub struct Report {
    pub rounds: Vec<Struck>,
    /// How long all rounds took.
    pub took: Duration,
    /// Violations that were found outside of the histories.
    pub wrong: Vec<String>,
    happened: BTreeMap<Kind, u64>,
}

/// A finished round.
pub struct Struck {
    pub kind: Kind,
    pub begun: Nanos,
    pub ended: Nanos,
    /// The longest wait until a write was served, after the fault and after its end.
    pub served: Duration,
    /// How long it took after the end of the fault until all nodes served.
    pub whole: Duration,
}

impl Report {
    /// Adds the counts of a round.
    pub fn count(&mut self, counts: BTreeMap<Kind, u64>) {
        for (kind, count) in counts {
            *self.happened.entry(kind).or_default() += count;
        }
    }

    /// Prints everything, and returns the verdict.
    pub fn judge(&mut self, record: &mut Record, wanted: &BTreeMap<Kind, u64>) -> Verdict {
        record.acknowledged.sort_unstable();
        self.print_faults(record);
        self.print_operations(record);
        let missing = wanted.iter().filter(|(kind, wanted)| self.happened.get(kind) < Some(wanted));
        self.wrong.extend(missing.map(|(kind, wanted)| format!("{kind:?} was to strike {wanted} times and did not")));
        self.wrong.extend(record.surprises.drain(..).map(|error| format!("an error that no fault explains: {error}")));
        let wrong = std::mem::take(&mut self.wrong);
        let wrong = if wrong.is_empty() { history::Verdict::Right } else { history::Verdict::Wrong(wrong) };
        let verdicts = [
            judged("registers: linearizable", record.registers.len(), || register::check(&record.registers, STEPS_MAX)),
            judged("sets: complete", record.sets.len(), || set::check(&record.sets)),
            judged("bank: balanced", record.bank.len(), || bank::check(&record.bank, &AT_FIRST)),
            judged("lists: strictly serializable", record.lists.len(), || append::check(&record.lists)),
            judged("cluster: whole, equal, every fault struck", self.rounds.len(), || wrong),
        ];
        let verdict = verdicts.into_iter().fold(history::Verdict::Right, history::Verdict::and);
        let text = format!("{}: {}", word(&verdict), self.figures(record));
        Verdict::new(text, verdict == history::Verdict::Right)
    }

    fn figures(&self, record: &Record) -> String {
        let count = |of: &dyn Fn(Kind) -> bool| -> u64 {
            self.happened.iter().filter(|(kind, _)| of(**kind)).map(|(_, count)| count).sum()
        };
        let is_cut = |kind| Kind::PARTITIONS.contains(&kind);
        format!(
            "{} kills, {} partitions, {} other faults, {} operations; longest time without an acknowledged write {}",
            count(&|kind| kind == Kind::Kill),
            count(&is_cut),
            count(&|kind| kind != Kind::Kill && !is_cut(kind)),
            record.counts.values().sum::<u64>(),
            ms(longest_gap(&record.acknowledged, 0, Nanos::MAX))
        )
    }

    fn print_faults(&self, record: &Record) {
        println!("{:.1} minutes, {} rounds", self.took.as_secs_f64() / 60.0, self.rounds.len());
        println!(
            "{:<18} {:>6} {:>24} {:>24} {:>24}",
            "fault", "times", "no write for, p50/max", "served after", "whole after"
        );
        for (kind, count) in &self.happened {
            let rounds = || self.rounds.iter().filter(|round| round.kind == *kind);
            let spread = |time: &dyn Fn(&Struck) -> Duration| {
                let mut times = Times::default();
                rounds().for_each(|round| times.push(time(round)));
                format!("{} / {}", ms(times.percentile(50)), ms(times.longest()))
            };
            let gap = spread(&|round| longest_gap(&record.acknowledged, round.begun, round.ended));
            let (served, whole) = (spread(&|round| round.served), spread(&|round| round.whole));
            println!("{:<18} {count:>6} {gap:>24} {served:>24} {whole:>24}", format!("{kind:?}"));
        }
    }

    fn print_operations(&self, record: &Record) {
        println!("{:<18} {:>10} {:>10} {:>10}", "operation", "done", "failed", "unknown");
        let mut kinds: Vec<&str> = record.counts.keys().map(|(kind, _)| *kind).collect();
        kinds.dedup();
        for kind in kinds {
            let [done, failed, unknown] = [Outcome::Done, Outcome::Failed, Outcome::Unknown]
                .map(|outcome| record.counts.get(&(kind, outcome)).copied().unwrap_or(0));
            println!("{kind:<18} {done:>10} {failed:>10} {unknown:>10}");
        }
        println!("longest operation that was acknowledged: {}", ms(record.longest));
    }
}

/// Returns the longest time between two acknowledgments, from `begun` to the first acknowledgment after `ended`.
fn longest_gap(acknowledged: &[Nanos], begun: Nanos, ended: Nanos) -> Duration {
    let first = acknowledged.partition_point(|moment| *moment < begun).saturating_sub(1);
    let last = acknowledged.partition_point(|moment| *moment <= ended);
    let within = acknowledged.get(first..=last.min(acknowledged.len().saturating_sub(1))).unwrap_or_default();
    let gaps = within.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    Duration::from_nanos(gaps.max().unwrap_or(0))
}

fn judged(what: &str, count: usize, check: impl FnOnce() -> history::Verdict) -> history::Verdict {
    let begun = Instant::now();
    let verdict = check();
    println!("{what}: {} ({count} checked in {})", word(&verdict), ms(begun.elapsed()));
    match &verdict {
        history::Verdict::Right => {}
        history::Verdict::Wrong(findings) => {
            for finding in findings.iter().take(PRINTED_MAX) {
                println!("  {}", finding.chars().take(FINDING_CHARS_MAX).collect::<String>());
            }
            if findings.len() > PRINTED_MAX {
                println!("  and {} more", findings.len() - PRINTED_MAX);
            }
        }
        history::Verdict::Unknown(why) => println!("  {why}"),
    }
    verdict
}

fn word(verdict: &history::Verdict) -> &'static str {
    match verdict {
        history::Verdict::Right => "right",
        history::Verdict::Wrong(_) => "WRONG",
        history::Verdict::Unknown(_) => "unknown",
    }
}
