//! The results of runs, and their medians.

use serde_json::{Value, json};

use quorate_bench_harness::Result;

/// The report of a contender's run for one number of clients, or of a run that did not finish.
pub struct Run {
    /// The name of the case.
    pub case: String,
    /// The label of the contender.
    pub contender: String,
    /// The report as it was printed.
    pub report: Value,
}

/// All runs, in the order in which they were made.
#[derive(Default)]
pub struct Runs(pub Vec<Run>);

/// Identifies a figure.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The name of the case.
    pub case: &'static str,
    /// The label of the contender.
    pub contender: &'static str,
    /// The number of clients.
    pub clients: u64,
    /// The name of the figure in a report.
    pub figure: &'static str,
}

/// The median, lowest and highest value of a figure over the runs of a contender for one number of clients.
pub struct Line<'a> {
    /// The report of the median run, which the other figures of a line are taken from.
    pub run: &'a Value,
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Run {
    fn number(&self, name: &str) -> Option<f64> {
        self.report.get(name).and_then(Value::as_f64)
    }
}

impl Runs {
    /// Returns the runs of a contender.
    pub fn of<'a>(&'a self, case: &str, contender: &str) -> impl Iterator<Item = &'a Run> {
        self.0.iter().filter(move |run| run.case == case && run.contender == contender)
    }

    /// Returns the median of a figure, if any run has it.
    pub fn line(&self, at: At) -> Option<Line<'_>> {
        let runs = self.of(at.case, at.contender).filter(|run| run.number("concurrency") == Some(at.clients as f64));
        let mut all: Vec<_> = runs.filter_map(|run| Some((run.number(at.figure)?, &run.report))).collect();
        all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (median, run) = *all.get(all.len() / 2)?;
        let [(lowest, _), .., (highest, _)] = *all else {
            return Some(Line { run, median, lowest: median, highest: median });
        };
        Some(Line { run, median, lowest, highest })
    }

    /// Returns the numbers of clients for which a case was measured.
    pub fn clients(&self, case: &str) -> Vec<u64> {
        let runs = self.0.iter().filter(|run| run.case == case);
        let mut clients: Vec<_> = runs.filter_map(|run| run.report.get("concurrency")?.as_u64()).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// Returns how many runs of a contender did not finish, and the error of the first of them.
    pub fn failed<'a>(&'a self, case: &str, contender: &str) -> Option<(usize, &'a str)> {
        let mut failed = self.of(case, contender).filter_map(|run| run.report.get("error")?.as_str());
        let first = failed.next()?;
        Some((1 + failed.count(), first))
    }

    /// Returns the values of a figure in all runs that have it, in ascending order.
    pub fn all(&self, figure: &str) -> Vec<f64> {
        let mut all: Vec<_> = self.0.iter().filter_map(|run| run.number(figure)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Returns a line of JSON for each run.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let line = |Run { case, contender, report }: &Run| {
            json!({ "case": case, "contender": contender, "report": report }).to_string()
        };
        self.0.iter().map(line)
    }

    /// Reads what [`Runs::lines`] wrote, and ignores other lines.
    ///
    /// # Errors
    ///
    /// If a line that begins like a run can't be read.
    pub fn read(text: &str) -> Result<Self> {
        let run = |line: &str| -> Result<Run> {
            let mut value: Value = serde_json::from_str(line)?;
            let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
            let (case, contender) = text("case").zip(text("contender")).ok_or("a run has no case or no contender")?;
            Ok(Run { case, contender, report: value.get_mut("report").map(Value::take).unwrap_or_default() })
        };
        let lines = text.lines().filter(|line| line.starts_with("{\"case\":"));
        lines.map(run).collect::<Result<Vec<_>>>().map(Self)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns runs of one case with the figure `inserts_per_s`.
    pub fn runs(case: &str, contender: &str, clients: u64, figures: &[f64]) -> Vec<Run> {
        let report = |figure: &f64| {
            json!({
                "concurrency": clients, "inserts_per_s": figure, "p50_us": 5.25, "fdatasync_p50_us": 60.0,
                "fdatasync_p99_us": 90.0, "finished": true,
            })
        };
        let run = |report| Run { case: case.to_owned(), contender: contender.to_owned(), report };
        figures.iter().map(report).map(run).collect()
    }

    fn at(clients: u64) -> At {
        At { case: "INSERT", contender: "a", clients, figure: "inserts_per_s" }
    }

    #[test]
    fn a_line_is_the_median_of_its_own_runs() {
        let mut all = Runs(runs("INSERT", "a", 64, &[9000.0, 40_000.0, 12_000.0]));
        all.0.extend(runs("INSERT", "a", 1, &[7.0]));
        all.0.extend(runs("INSERT", "b", 64, &[1.0]));
        let line = all.line(at(64)).unwrap();
        assert_eq!([line.lowest, line.median, line.highest], [9000.0, 12_000.0, 40_000.0]);
        let line = all.line(at(1)).unwrap();
        assert_eq!([line.lowest, line.median, line.highest], [7.0; 3]);
        assert!(all.line(at(2)).is_none());
        assert_eq!(all.clients("INSERT"), [1, 64]);
    }

    #[test]
    fn written_runs_can_be_read_again() {
        let mut all = Runs(runs("INSERT", "a", 64, &[9000.0, 1.0]));
        let report = json!({ "finished": false, "error": "no leader" });
        all.0.push(Run { case: "INSERT".to_owned(), contender: "a".to_owned(), report });
        let text = "# a title\n".to_owned() + &all.lines().collect::<Vec<_>>().join("\n");
        let again = Runs::read(&text).unwrap();
        assert!(all.lines().eq(again.lines()));
        assert_eq!(again.failed("INSERT", "a"), Some((1, "no leader")));
        assert_eq!(again.all("inserts_per_s"), [1.0, 9000.0]);
        assert!(Runs::read("{\"case\":1}").is_err());
    }
}
