//! The plots of a comparison.

use super::cases::{CASES, Case, Contender};
use super::page::{grouped, micros};
use super::runs::{At, Runs};
use super::svg::{Anchor, LogScale, Svg};
use super::targets::{TARGETS, Verdict};

/// The width of plots.
const WIDTH: f64 = 760.0;

/// Returns the plots of these runs, each with its name.
pub fn all(runs: &Runs) -> Vec<(&'static str, String)> {
    let insert = CASES.first();
    let pictures = [
        ("targets", Some(targets(runs))),
        ("inserts", insert.map(|case| rates(case, runs))),
        ("times", insert.map(|case| times(case, runs))),
    ];
    pictures.into_iter().filter_map(|(name, picture)| Some((name, picture?.file()))).collect()
}

/// Plots which share of each target was reached. Dots left of the line in the middle are missed targets.
fn targets(runs: &Runs) -> Svg {
    /// Shares outside of this range are drawn at its ends.
    const SHARES: [f64; 2] = [0.1, 10.0];
    const ROW: f64 = 22.0;
    let outcomes: Vec<_> = TARGETS.iter().filter_map(|target| Some((target, target.outcome(runs)?))).collect();
    let bottom = 74.0 + ROW * outcomes.len() as f64;
    let scale = LogScale { values: SHARES, ends: [500.0, WIDTH - 36.0] };
    let mut svg = Svg::new(WIDTH, bottom + 12.0, "Share of each target that was reached; amber: missed on a slow disk");
    for (share, text) in [(0.1, "a tenth"), (1.0, "target"), (10.0, "tenfold")] {
        let (x, class) = (scale.at(share), if share == 1.0 { "strong" } else { "grid" });
        svg.line([x, 60.0], [x, bottom], class);
        svg.text([x, 48.0], Anchor::Middle, "", text);
    }
    for (row, (target, outcome)) in outcomes.iter().enumerate() {
        let y = 76.0 + ROW * row as f64;
        let share = target.share(outcome.value).clamp(SHARES[0], SHARES[1]);
        let class = match outcome.verdict {
            Verdict::Met => "green",
            Verdict::Missed => "red",
            Verdict::Excused => "sand",
        };
        svg.text([480.0, y], Anchor::End, "", target.what);
        svg.line([scale.at(1.0), y], [scale.at(share), y], class);
        svg.dot([scale.at(share), y], 5.0, class);
    }
    svg
}

/// Plots the figure of a case by the number of clients, with a line for each contender.
fn rates(case: &Case, runs: &Runs) -> Svg {
    let (left, right, top, bottom) = (70.0, 560.0, 56.0, 380.0);
    let clients = runs.clients(case.name);
    let figure = |contender: &Contender, clients| {
        let at = At { case: case.name, contender: contender.label, clients, figure: case.figure };
        runs.line(at).map(|line| line.median)
    };
    let all = case.contenders.iter().flat_map(|contender| clients.iter().filter_map(|c| figure(contender, *c)));
    let scale = LogScale::of(all, [bottom, top]);
    let step = (right - left) / clients.len().max(2) as f64;
    let x = |number: usize| left + step * (number as f64 + 0.5);
    let mut svg = Svg::new(WIDTH, bottom + 52.0, &format!("{}, {}: higher is better", case.name, case.unit));
    for tick in scale.ticks() {
        svg.line([left, scale.at(tick)], [right, scale.at(tick)], "grid");
        svg.text([left - 8.0, scale.at(tick)], Anchor::End, "", &grouped(tick));
    }
    for (number, clients) in clients.iter().enumerate() {
        svg.text([x(number), bottom + 18.0], Anchor::Middle, "", &clients.to_string());
    }
    svg.text([(left + right) / 2.0, bottom + 38.0], Anchor::Middle, "", "clients");
    let mut labels = Vec::new();
    for contender in case.contenders {
        let points =
            clients.iter().enumerate().filter_map(|(number, c)| Some([x(number), scale.at(figure(contender, *c)?)]));
        let points: Vec<_> = points.collect();
        let Some([_, y]) = points.last() else { continue };
        labels.push((*y, contender));
        svg.path(&points, colour(contender));
        points.iter().for_each(|point| svg.dot(*point, 4.0, colour(contender)));
    }
    // Labels are placed next to the ends of their lines, but never overlap.
    labels.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut free = top;
    for (y, contender) in labels {
        let y = y.max(free);
        free = y + 18.0;
        svg.text([right + 4.0, y], Anchor::Start, colour(contender), contender.label);
    }
    svg
}

/// Plots the times of a call for few and for many clients: p50, p90, p99 and the longest.
fn times(case: &Case, runs: &Runs) -> Svg {
    const CLIENTS: [u64; 2] = [1, 64];
    const ROW: f64 = 24.0;
    let (left, right) = (200.0, WIDTH - 40.0);
    let found = |clients, contender: &Contender| {
        let at = At { case: case.name, contender: contender.label, clients, figure: case.figure };
        let run = runs.line(at)?.run;
        let time = |name: &str| run.get(name)?.as_f64();
        Some([time("p50_us")?, time("p90_us")?, time("p99_us")?, time("max_us")?])
    };
    let rows = CLIENTS
        .map(|clients| case.contenders.iter().filter_map(|who| Some((who, found(clients, who)?))).collect::<Vec<_>>());
    let scale = LogScale::of(rows.iter().flatten().flat_map(|(_, times)| *times), [left, right]);
    let height = 70.0 + rows.iter().map(|rows| (rows.len() as f64 + 1.5) * ROW).sum::<f64>();
    let title = format!("Time of one {}: p50, p90, p99 and the longest", case.name);
    let mut svg = Svg::new(WIDTH, height, &title);
    for tick in scale.ticks() {
        svg.line([scale.at(tick), 62.0], [scale.at(tick), height - 12.0], "grid");
        svg.text([scale.at(tick), 50.0], Anchor::Middle, "", &micros(tick));
    }
    let mut y = 78.0;
    for (clients, rows) in CLIENTS.iter().zip(&rows) {
        let title = if *clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        svg.text([16.0, y], Anchor::Start, "title", &title);
        for (contender, times) in rows {
            y += ROW;
            let ([p50, p90, p99, max], class) = (times.map(|time| scale.at(time)), colour(contender));
            svg.text([left - 12.0, y], Anchor::End, "", contender.label);
            svg.line([p50, y], [max, y], class);
            for (x, radius) in [(p50, 6.0), (p90, 4.5), (p99, 3.5), (max, 2.0)] {
                svg.dot([x, y], radius, class);
            }
        }
        y += 1.5 * ROW;
    }
    svg
}

fn colour(contender: &Contender) -> &'static str {
    match (contender.system, contender.label.contains("fsync"), contender.label.contains("default")) {
        ("quorate", true, _) => "blue",
        ("quorate", ..) => "sky",
        ("hiqlite", _, true) => "orange",
        ("hiqlite", ..) => "sand",
        ("rqlite", ..) => "green",
        _ => "gray",
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{HIQLITE, QUORATE};
    use super::super::runs::tests::runs;
    use super::*;

    #[test]
    fn plots_show_what_was_measured() {
        let mut all_runs = runs("INSERT", QUORATE.label, 64, &[80_000.0]);
        all_runs.extend(runs("INSERT", QUORATE.label, 1, &[2000.0]));
        all_runs.extend(runs("INSERT", HIQLITE.label, 64, &[10_000.0]));
        let pictures = all(&Runs(all_runs));
        let picture = |name: &str| &pictures.iter().find(|(found, _)| *found == name).unwrap().1;
        let count = |name: &str, what: &str| picture(name).matches(what).count();
        assert_eq!(count("inserts", "<circle"), 3);
        assert_eq!(count("inserts", QUORATE.label), 1);
        assert_eq!((count("targets", "class=\"green\""), count("targets", "class=\"red\"")), (2, 0));
    }

    #[test]
    fn plots_without_runs_are_valid() {
        for (name, picture) in all(&Runs::default()) {
            assert!(!picture.contains("NaN") && !picture.contains("inf"), "{name}: {picture}");
        }
    }
}
