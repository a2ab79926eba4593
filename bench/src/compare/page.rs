//! The page of a comparison, in Markdown: the targets, the losses, then every case with all its figures and commands.

use serde_json::Value;

use super::cases::{CASES, Case, Contender, QUORATE, RQLITE};
use super::runs::{At, Line, Runs};
use super::targets::{FDATASYNC_US_MAX, TARGETS, Verdict, fdatasync};
use crate::markdown::{LINE_MAX, Table, wrapped};

/// What a page contains in addition to figures.
pub struct About {
    /// Processors and operating system.
    pub machine: String,
    /// The measured commit, as git describes it.
    pub commit: String,
    /// The arguments of the comparison.
    pub arguments: String,
    /// The directory of the plots, relative to the page, if there are plots.
    pub plots: Option<String>,
}

/// Returns the whole page.
pub fn markdown(about: &About, runs: &Runs) -> String {
    let mut page = vec![introduction(about, runs)];
    let plot = |name: &str, what: &str| about.plots.as_ref().map(|dir| format!("![{what}]({dir}/{name}.svg)"));
    page.push(targets(runs));
    page.extend(plot("targets", "How far each target was reached"));
    page.push(losses(runs));
    page.push(contenders(runs));
    for case in CASES.iter().filter(|case| runs.0.iter().any(|run| run.case == case.name)) {
        page.push(section(case, runs));
        if case.name == "INSERT" {
            page.extend(plot("inserts", "INSERTs per second, by number of clients"));
            page.extend(plot("times", "Times of an INSERT"));
        }
    }
    page.join("\n\n") + "\n"
}

fn introduction(about: &About, runs: &Runs) -> String {
    let busy = runs.all("others_cpus_busy").last().copied().unwrap_or_default();
    let disk = match *runs.all("fdatasync_p50_us") {
        [] => String::new(),
        [only] => format!("{only:.0} us"),
        [lowest, .., highest] => format!("{lowest:.0} to {highest:.0} us"),
    };
    let paragraphs = [
        "# Benchmarks".to_owned(),
        format!(
            "Measurements of Quorate, hiqlite, plain SQLite and, if a server was given, rqlite. This page is written \
             by `cd bench && cargo run --release -- compare{}`. [bench/README.md](../bench/README.md) describes how \
             the figures are measured, and which conclusions they do not allow. The commands below are to be run in \
             that directory. [Side-cars](benchmarks/side-car.md) and \
             [keys](benchmarks/keys.md) have pages of their own.",
            about.arguments
        ),
        format!(
            "Measured at commit `{}`: {}. An `fdatasync` of 4 KiB took {disk} at the median right before the runs; \
             each figure is shown with the time before its run. Figures are medians of runs in turns (A, B, C, A, B, \
             C), with the lowest and the highest. Other programs kept at most {busy:.2} processors busy during the \
             runs.",
            about.commit, about.machine
        ),
    ];
    paragraphs.map(|paragraph| wrapped(&paragraph)).join("\n\n")
}

fn targets(runs: &Runs) -> String {
    let mut table = Table::new(&["target", "required", "reached", "fdatasync p50 / p99", "verdict"]);
    let mut verdicts = Vec::new();
    for target in TARGETS.iter().filter(|target| target.is_of(runs)) {
        let outcome = target.outcome(runs);
        let verdict = outcome.as_ref().map(|outcome| outcome.verdict);
        let word = match verdict {
            Some(Verdict::Met) => "met",
            Some(Verdict::Missed) => "**missed**",
            Some(Verdict::Excused) => "**missed**, on a slow disk",
            None => "**not measured**",
        };
        let [reached, disk] = outcome.map_or_else(Default::default, |outcome| {
            let disk = [outcome.fdatasync_p50_us, outcome.fdatasync_p99_us].map(micros).join(" / ");
            [target.value(outcome.value), disk]
        });
        table.line([target.what, &target.bound(), &reached, &disk, word]);
        verdicts.push(verdict);
    }
    let count = |verdict| verdicts.iter().filter(|found| **found == verdict).count();
    let (met, excused) = (count(Some(Verdict::Met)), count(Some(Verdict::Excused)));
    let (missed, not_measured) = (count(Some(Verdict::Missed)) + excused, count(None));
    let counts = format!(
        "Of {} targets {met} are met, {missed} are missed, and {not_measured} were not measured.",
        verdicts.len()
    );
    let rule = format!(
        "Ratios of Quorate with fsync to a peer that does not wait for its disk depend on the disk. They count only if \
         an `fdatasync` took at most {FDATASYNC_US_MAX:.0} us at the median right before Quorate's run. Of the missed \
         targets {excused} were measured on a slower disk and are marked so. All other targets count on any disk."
    );
    format!("## Targets\n\n{counts}\n{}\n\n{}", wrapped(&rule), table.text())
}

/// Lists every figure in which another system was better than Quorate with fsync, or wrote less for a row.
fn losses(runs: &Runs) -> String {
    let mut table = Table::new(&["case", "", "Quorate, fsync", "other system", "Quorate's advantage"]);
    for (case, clients) in with_clients(runs) {
        let written = Measure { figure: "written_bytes_per_row", unit: "B", more_is_better: false };
        for (what, measure) in [("", case.measure()), ("written per row", written)] {
            let line = |contender| runs.line(At { figure: measure.figure, ..case.at(contender, clients) });
            let Some(first) = case.contenders.first().and_then(line) else { continue };
            for contender in case.contenders.iter().filter(|contender| contender.system != QUORATE.system) {
                let Some(other) = line(contender) else { continue };
                let ratio = measure.ratio(first.median, other.median);
                if ratio < 1.0 {
                    let own = format!("{} {}", grouped(first.median), measure.unit);
                    let beside =
                        format!("{} {}{}, {}", grouped(other.median), measure.unit, failed(&other), contender.label);
                    table.line([&case.line_name(clients), what, &own, &beside, &format!("{ratio:.2}x")]);
                }
            }
        }
    }
    let text = if table.is_empty() { "Nowhere in these runs.".to_owned() } else { table.text() };
    format!("## Where Quorate is slower or writes more\n\n{text}")
}

/// Describes the compared systems, once for all tables.
fn contenders(runs: &Runs) -> String {
    let mut table = Table::new(&["", "version", "SQLite", "a write is acknowledged", "configuration"]);
    let mut seen = Vec::new();
    for contender in CASES.iter().flat_map(|case| case.contenders) {
        let mut reports = runs.0.iter().filter(|run| run.contender == contender.label).map(|run| &run.report);
        let Some(report) = reports.find(|report| report.get("version").is_some()) else { continue };
        if !seen.contains(&contender.label) {
            seen.push(contender.label);
            let [version, sqlite, acknowledged, configuration] =
                ["version", "sqlite", "acknowledged", "configuration"].map(|name| word(report, name));
            table.line([contender.label, version, sqlite, acknowledged, configuration]);
        }
    }
    format!("## Systems\n\n{}", table.text())
}

fn section(case: &Case, runs: &Runs) -> String {
    let mut titles = vec!["clients", "", "acknowledged", case.figure_title(), "p50", "p99", "CPU per call"];
    titles.extend(["written per row", "files, all nodes"]);
    titles.extend(case.more.iter().map(|(_, title, _)| *title));
    titles.extend(["fdatasync p50 / p99", "Quorate's advantage"]);
    let mut table = Table::new(&titles);
    for clients in runs.clients(case.name) {
        let first = case.contenders.first().and_then(|first| runs.line(case.at(first, clients)));
        for contender in case.contenders {
            if let Some(line) = runs.line(case.at(contender, clients)) {
                let first = first.as_ref().filter(|_| contender.system != QUORATE.system);
                let ratio = first.map(|first| case.measure().ratio(first.median, line.median));
                table.cells(cells(case, contender, clients, &line, ratio));
            }
        }
    }
    let tried: Vec<_> = case.contenders.iter().filter(|who| runs.of(case.name, who.label).next().is_some()).collect();
    let failed = tried.iter().filter_map(|who| {
        let (failed, why) = runs.failed(case.name, who.label)?;
        let times = if failed == 1 { "a run".to_owned() } else { format!("{failed} runs") };
        Some(format!("\n\n{}", wrapped(&format!("**{}: {times} did not finish**: {why}", who.label))))
    });
    let commands = tried.iter().map(|who| case.command(who)).collect::<Vec<_>>().join("\n");
    let (name, note, failed) = (case.name, wrapped(case.note), failed.collect::<String>());
    format!("## {name}\n\n{note}\n\n{}{failed}\n\n```sh\n{commands}\n```", table.text())
}

fn cells(case: &Case, contender: &Contender, clients: u64, line: &Line, ratio: Option<f64>) -> Vec<String> {
    let number = |name: &str| line.run.get(name).and_then(Value::as_f64);
    let time = |name: &str| number(name).map(micros).unwrap_or_default();
    let range = if line.lowest < line.highest {
        format!(" ({} - {})", grouped(line.lowest), grouped(line.highest))
    } else {
        String::new()
    };
    let mut cells = vec![
        clients.to_string(),
        contender.label.to_owned(),
        contender.acknowledged.to_owned(),
        format!("{}{range} {}{}", grouped(line.median), case.unit, failed(line)),
        time("p50_us"),
        time("p99_us"),
        time("cpu_us_per_operation"),
        number("written_bytes_per_row").map(|bytes| format!("{} B", grouped(bytes))).unwrap_or_default(),
        number("disk_bytes").map(|bytes| format!("{} MB", grouped(bytes / 1e6))).unwrap_or_default(),
    ];
    let more = |(name, _, unit): &(&str, &str, &str)| match (number(name), *unit) {
        (Some(us), "us") => micros(us),
        (Some(number), unit) if number < 10.0 && number.fract() > 0.0 => format!("{number:.2} {unit}"),
        (Some(number), unit) => format!("{} {unit}", grouped(number)).trim_end().to_owned(),
        (None, _) => String::new(),
    };
    cells.extend(case.more.iter().map(more));
    let [p50, p99] = fdatasync(line).map(micros);
    let ratio = ratio.map(|ratio| if ratio < 1.0 { format!("**{ratio:.2}x**") } else { format!("{ratio:.2}x") });
    cells.extend([format!("{p50} / {p99}"), ratio.unwrap_or_default()]);
    cells
}

/// Says how many calls failed in a run, if any.
fn failed(line: &Line) -> String {
    let failed = line.run.get("failed").and_then(Value::as_f64).filter(|failed| *failed > 0.0);
    failed.map(|failed| format!(" ({} calls failed)", grouped(failed))).unwrap_or_default()
}

/// Returns all cases, each with all numbers of clients for which it was measured.
fn with_clients(runs: &Runs) -> impl Iterator<Item = (&'static Case, u64)> {
    CASES.iter().flat_map(|case| runs.clients(case.name).into_iter().map(move |clients| (case, clients)))
}

impl Case {
    fn at(&self, contender: &Contender, clients: u64) -> At {
        At { case: self.name, contender: contender.label, clients, figure: self.figure }
    }

    fn measure(&self) -> Measure {
        let Self { figure, unit, more_is_better, .. } = *self;
        Measure { figure, unit, more_is_better }
    }

    fn figure_title(&self) -> &'static str {
        if self.more_is_better {
            "median (lowest - highest), higher is better"
        } else {
            "median (lowest - highest), lower is better"
        }
    }

    fn line_name(&self, clients: u64) -> String {
        match clients {
            _ if self.once => self.name.to_owned(),
            1 => format!("{}, 1 client", self.name),
            _ => format!("{}, {clients} clients", self.name),
        }
    }

    /// Returns the command that measures this case for a contender.
    fn command(&self, contender: &Contender) -> String {
        let mut words = vec!["cargo", "run", "--release", "--"];
        words.extend(self.arguments);
        words.extend(self.earnest);
        words.extend(["--system", contender.system]);
        words.extend(contender.arguments);
        if contender.system == RQLITE.system {
            words.extend(["--url", "http://HOST:PORT"]);
        }
        let line = words.join(" ");
        if line.len() <= LINE_MAX { line } else { line.replace(" --system", " \\\n    --system") }
    }
}

/// A figure by which contenders are compared.
struct Measure {
    figure: &'static str,
    unit: &'static str,
    more_is_better: bool,
}

impl Measure {
    /// Returns how many times as good the first value is as the other.
    fn ratio(&self, first: f64, other: f64) -> f64 {
        if self.more_is_better { first / other } else { other / first }
    }
}

fn word<'a>(report: &'a Value, name: &str) -> &'a str {
    report.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Formats a time in microseconds.
pub fn micros(micros: f64) -> String {
    match micros {
        _ if micros < 10.0 => format!("{micros:.1} us"),
        _ if micros < 10_000.0 => format!("{micros:.0} us"),
        _ => format!("{:.0} ms", micros / 1e3),
    }
}

/// Formats a number with commas between thousands, and with a decimal if it is small.
pub fn grouped(number: f64) -> String {
    if number < 100.0 && number.fract() > 0.0 {
        return format!("{number:.1}");
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cases::HIQLITE;
    use super::super::runs::{Run, tests::runs};
    use super::*;

    fn page(runs: &Runs) -> String {
        let [machine, commit, arguments] = ["2 processors", "v1", ""].map(str::to_owned);
        markdown(&About { machine, commit, arguments, plots: Some("benchmarks".to_owned()) }, runs)
    }

    fn both(quorate: &[f64], hiqlite: &[f64]) -> Runs {
        let mut all = runs("INSERT", QUORATE.label, 64, quorate);
        all.extend(runs("INSERT", HIQLITE.label, 64, hiqlite));
        Runs(all)
    }

    #[test]
    fn contenders_are_compared_with_the_first_by_medians() {
        let text = page(&both(&[9000.0, 40_000.0, 12_000.0], &[1.0, 1400.0, 5000.0]));
        let quorate = "| Quorate, fsync | synced by a majority | 12,000 (9,000 - 40,000) rows/s | 5.2 us | 60 us / 90";
        assert!(text.contains(quorate), "{text}");
        assert!(text.contains("| 60 us / 90 us | 8.57x |"), "{text}");
        assert!(
            text.contains("rate relative to hiqlite, default | at least 8x | 8.57x | 60 us / 90 us | met |"),
            "{text}"
        );
        assert!(text.contains("Nowhere in these runs."), "{text}");
        let command = "-- sql-insert --concurrency 1,16,64,256 --seconds 1.5 --warm-up 0.5 \\\n    --system quorate ";
        assert!(text.contains(command), "{text}");
    }

    #[test]
    fn a_loss_is_in_its_table_and_in_the_list_of_losses() {
        let text = page(&both(&[1000.0], &[2000.0]));
        assert!(text.contains("| at least 8x | 0.5x | 60 us / 90 us | **missed** |"), "{text}");
        let loss = "| INSERT, 64 clients | 1,000 rows/s | 2,000 rows/s, hiqlite, default | 0.50x |";
        assert!(text.contains(loss), "{text}");
        assert!(text.contains("| **0.50x** |"), "{text}");
        assert!(text.contains(" targets 0 are met, 1 are missed, "), "{text}");
    }

    #[test]
    fn a_run_that_did_not_finish_is_in_the_page() {
        let mut all = both(&[1000.0], &[]);
        let report = json!({ "finished": false, "error": "no leader" });
        all.0.push(Run { case: "INSERT".to_owned(), contender: HIQLITE.label.to_owned(), report });
        let text = page(&all);
        assert!(text.contains("**hiqlite, default: a run did not finish**: no leader"), "{text}");
        assert!(text.contains("**not measured**"), "{text}");
    }

    #[test]
    fn lines_outside_of_tables_are_short() {
        let mut all = both(&[1000.0], &[2000.0]);
        for case in CASES {
            let mut more = runs(case.name, QUORATE.label, 64, &[1.0]);
            more.iter_mut().for_each(|run| run.report["error"] = json!("word ".repeat(100)));
            all.0.extend(more);
        }
        let text = page(&all);
        let lines = text.lines().filter(|line| !line.starts_with('|'));
        assert_eq!(lines.filter(|line| line.chars().count() > 120).collect::<Vec<_>>(), [""; 0]);
        assert_eq!(text.lines().filter(|line| line.starts_with("# ")).count(), 1);
    }

    #[test]
    fn numbers_are_formatted_for_readers() {
        assert_eq!([0.0, 7.25, 100.0, 1234.0, 1_234_567.8].map(grouped), ["0", "7.2", "100", "1,234", "1,234,568"]);
        assert_eq!([5.25, 640.0, 12_345.0].map(micros), ["5.2 us", "640 us", "12 ms"]);
    }
}
