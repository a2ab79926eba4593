//! What a run found: figures, and the verdict of each checker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quorate_history::{Nanos, Outcome, Verdict, append, bank, register, set};

use super::faults::Kind;
use super::harness::figures::{Times, ms};
use super::load::Told;
use super::load::bank::AT_FIRST;

/// Steps of the search for an order on each register.
const STEPS_MAX: u64 = 5_000_000;
/// Findings of a checker that are printed, and characters of each.
const PRINTED_MAX: usize = 5;
const FINDING_CHARS_MAX: usize = 2000;

/// See the module.
#[derive(Default)]
pub struct Report {
    pub rounds: Vec<Struck>,
    /// How long the rounds took altogether.
    pub took: Duration,
    /// What was found wrong beside the histories.
    pub wrong: Vec<String>,
    happened: BTreeMap<Kind, u64>,
}

/// A round that is over.
pub struct Struck {
    pub kind: Kind,
    pub begun: Nanos,
    pub ended: Nanos,
    /// The longest wait for a write to be served, after the fault and after its end.
    pub served: Duration,
    /// How long after the end of the fault all nodes served.
    pub whole: Duration,
}

impl Report {
    /// Adds what happened.
    pub fn count(&mut self, counts: BTreeMap<Kind, u64>) {
        for (kind, count) in counts {
            *self.happened.entry(kind).or_default() += count;
        }
    }

    /// Prints everything, and concludes.
    pub fn judge(&mut self, told: &mut Told, wanted: &BTreeMap<Kind, u64>) -> Verdict {
        told.acknowledged.sort_unstable();
        self.print_faults(told);
        self.print_operations(told);
        let missing = wanted.iter().filter(|(kind, wanted)| self.happened.get(kind) < Some(wanted));
        self.wrong.extend(missing.map(|(kind, wanted)| format!("{kind:?} was to strike {wanted} times and did not")));
        self.wrong.extend(told.surprises.drain(..).map(|error| format!("an error that no fault explains: {error}")));
        let beside = std::mem::take(&mut self.wrong);
        let beside = if beside.is_empty() { Verdict::Right } else { Verdict::Wrong(beside) };
        let verdicts = [
            judged("registers: linearizable", told.registers.len(), || register::check(&told.registers, STEPS_MAX)),
            judged("sets: complete", told.sets.len(), || set::check(&told.sets)),
            judged("bank: balanced", told.bank.len(), || bank::check(&told.bank, &AT_FIRST)),
            judged("lists: strictly serializable", told.lists.len(), || append::check(&told.lists)),
            judged("cluster: whole, equal, every fault struck", self.rounds.len(), || beside),
        ];
        let verdict = verdicts.into_iter().fold(Verdict::Right, Verdict::and);
        println!("verdict: {}", word(&verdict));
        verdict
    }

    fn print_faults(&self, told: &Told) {
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
            let gap = spread(&|round| longest_gap(&told.acknowledged, round.begun, round.ended));
            let (served, whole) = (spread(&|round| round.served), spread(&|round| round.whole));
            println!("{:<18} {count:>6} {gap:>24} {served:>24} {whole:>24}", format!("{kind:?}"));
        }
        let all = longest_gap(&told.acknowledged, 0, Nanos::MAX);
        println!("longest time without an acknowledged write: {}", ms(all));
    }

    fn print_operations(&self, told: &Told) {
        println!("{:<18} {:>10} {:>10} {:>10}", "operation", "done", "failed", "unknown");
        let mut kinds: Vec<&str> = told.counts.keys().map(|(kind, _)| *kind).collect();
        kinds.dedup();
        for kind in kinds {
            let [done, failed, unknown] = [Outcome::Done, Outcome::Failed, Outcome::Unknown]
                .map(|outcome| told.counts.get(&(kind, outcome)).copied().unwrap_or(0));
            println!("{kind:<18} {done:>10} {failed:>10} {unknown:>10}");
        }
        println!("longest operation that was acknowledged: {}", ms(told.longest));
    }
}

/// The longest time between two acknowledgments, within a time and up to the first after it.
fn longest_gap(acknowledged: &[Nanos], begun: Nanos, ended: Nanos) -> Duration {
    let first = acknowledged.partition_point(|moment| *moment < begun).saturating_sub(1);
    let last = acknowledged.partition_point(|moment| *moment <= ended);
    let within = acknowledged.get(first..=last.min(acknowledged.len().saturating_sub(1))).unwrap_or_default();
    let gaps = within.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    Duration::from_nanos(gaps.max().unwrap_or(0))
}

fn judged(what: &str, count: usize, check: impl FnOnce() -> Verdict) -> Verdict {
    let begun = Instant::now();
    let verdict = check();
    println!("{what}: {} ({count} checked in {})", word(&verdict), ms(begun.elapsed()));
    match &verdict {
        Verdict::Right => {}
        Verdict::Wrong(findings) => {
            for finding in findings.iter().take(PRINTED_MAX) {
                println!("  {}", finding.chars().take(FINDING_CHARS_MAX).collect::<String>());
            }
            if findings.len() > PRINTED_MAX {
                println!("  and {} more", findings.len() - PRINTED_MAX);
            }
        }
        Verdict::Unknown(why) => println!("  {why}"),
    }
    verdict
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "right",
        Verdict::Wrong(_) => "WRONG",
        Verdict::Unknown(_) => "unknown",
    }
}
