//! The table of a comparison, in Markdown.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Case, Runs};

/// All cases with the runs of their contenders; the first contender is what the others are compared with.
pub fn markdown(measured: &[(&Case, Vec<Runs>)]) -> String {
    let mut text = String::new();
    // Writing to a String never fails.
    let _ = write_table(&mut text, measured);
    text
}

fn write_table(text: &mut String, measured: &[(&Case, Vec<Runs>)]) -> std::fmt::Result {
    writeln!(
        text,
        "| | system | acknowledged | median (lowest - highest) | p50 | p99 | CPU per call | fdatasync 4 KiB \
                    p50 / p99 just before | Quorate is |"
    )?;
    writeln!(text, "|---|---|---|---:|---:|---:|---:|---:|---:|")?;
    for (case, all) in measured {
        let mut name = case.name;
        let first = all.first().and_then(|runs| runs.median(case));
        for runs in all {
            write_line(text, name, case, runs, first)?;
            name = "";
        }
    }
    let runs = measured.iter().flat_map(|(_, all)| all.iter().flat_map(|runs| &runs.0));
    let others = runs.filter_map(|run| run.get("others_cpus_busy")?.as_f64()).fold(0.0, f64::max);
    writeln!(text)?;
    writeln!(text, "{} Meanwhile other programs kept at most {others:.2} processors busy.", machine())
}

fn write_line(text: &mut String, name: &str, case: &Case, runs: &Runs, first: Option<f64>) -> std::fmt::Result {
    let Some((run, median)) = runs.median_run(case) else {
        let failure = runs.0.iter().map(|run| word(run, "error")).find(|error| !error.is_empty()).unwrap_or_default();
        let system = runs.0.first().map(|run| word(run, "system")).unwrap_or_default();
        return writeln!(text, "| {name} | {system} | | did not finish: {failure} | | | | | |");
    };
    let (lowest, highest) = runs.range(case);
    let ratio = first.map(|first| if case.more_is_better { first / median } else { median / first });
    let ratio = ratio.filter(|_| first != Some(median)).map(|ratio| format!("{ratio:.2}x")).unwrap_or_default();
    writeln!(
        text,
        "| {name} | {} {} | {} | {} ({} - {}) {} | {} | {} | {} | {} / {} | {ratio} |",
        word(run, "system"),
        word(run, "version"),
        word(run, "acknowledged"),
        grouped(median),
        grouped(lowest),
        grouped(highest),
        case.unit,
        micros(run, "p50_us"),
        micros(run, "p99_us"),
        micros(run, "cpu_us_per_operation"),
        micros(run, "fdatasync_p50_us"),
        micros(run, "fdatasync_p99_us"),
    )
}

impl Runs {
    /// The runs that finished, by the figure of the case.
    fn finished(&self, case: &Case) -> Vec<(&Value, f64)> {
        let figure = |run: &Value| run.get(case.figure).and_then(Value::as_f64);
        let mut all: Vec<_> = self.0.iter().filter_map(|run| Some((run, figure(run)?))).collect();
        all.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        all
    }

    /// The run in the middle: its other figures belong to this one.
    fn median_run(&self, case: &Case) -> Option<(&Value, f64)> {
        let all = self.finished(case);
        all.get(all.len() / 2).copied()
    }

    fn median(&self, case: &Case) -> Option<f64> {
        self.median_run(case).map(|(_, figure)| figure)
    }

    fn range(&self, case: &Case) -> (f64, f64) {
        let all = self.finished(case);
        let figure = |run: Option<&(&Value, f64)>| run.map_or(0.0, |(_, figure)| *figure);
        (figure(all.first()), figure(all.last()))
    }
}

fn word<'a>(run: &'a Value, name: &str) -> &'a str {
    run.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn micros(run: &Value, name: &str) -> String {
    match run.get(name).and_then(Value::as_f64) {
        Some(micros) if micros < 10.0 => format!("{micros:.1} us"),
        Some(micros) if micros < 10_000.0 => format!("{micros:.0} us"),
        Some(micros) => format!("{:.0} ms", micros / 1e3),
        None => String::new(),
    }
}

/// A whole number with commas between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Where it was measured.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{count} processors ({model}), Linux {}.", read("/proc/sys/kernel/osrelease").trim())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::CASES;
    use super::*;

    fn runs(figures: &[f64]) -> Runs {
        Runs(figures.iter().map(|figure| json!({ "system": "a", "inserts_per_s": figure, "p50_us": 5.25 })).collect())
    }

    #[test]
    fn the_first_contender_is_compared_by_medians() {
        let case = CASES.first().unwrap();
        let text = markdown(&[(case, vec![runs(&[9000.0, 40_000.0, 12_000.0]), runs(&[1.0, 3000.0, 5000.0])])]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[2].contains("| 12,000 (9,000 - 40,000) rows/s | 5.2 us |"), "{text}");
        assert!(lines[2].ends_with("|  |") && lines[3].ends_with("| 4.00x |"), "{text}");
    }

    #[test]
    fn a_run_that_did_not_finish_is_in_the_table() {
        let case = CASES.first().unwrap();
        let failed = Runs(vec![json!({ "system": "a", "finished": false, "error": "no leader" })]);
        assert!(markdown(&[(case, vec![failed])]).contains("did not finish: no leader"));
    }
}
