//! The page of the figures, in Markdown.

use super::{Run, SideCar};
use crate::compare::{commit, machine, page::grouped};
use crate::markdown::{Table, wrapped};

/// Returns the page of these runs. `arguments` are those of the measurement.
pub fn markdown(runs: &[Run], arguments: &str) -> String {
    let syncs = || runs.iter().map(|run| run.disk.sync.p50_us);
    let disk = format!("{:.0} to {:.0} us", syncs().fold(f64::MAX, f64::min), syncs().fold(0.0, f64::max));
    let about = format!(
        "Single INSERTs into plain SQLite files in WAL mode, by one thread that goes from one database to the next, \
         alone and while a side-car archives them: `quorate replicate`, and stock Litestream. This page is written by \
         `cd bench && cargo run --release -- side-car{arguments}`; the S3 server is `moto_server`, a program in \
         Python, on the same processors. Measured at commit `{}`: {}. An `fdatasync` of 4 KiB took {} at the median \
         right before the runs. Figures are those of the run with the median rate, with the lowest and the highest \
         rate, of runs in turns. The lag is the time from an INSERT after a pause to the object that holds it.",
        commit(),
        machine(),
        disk,
    );
    let mut table = Table::new(&[
        "archive",
        "databases",
        "synchronous",
        "side-car",
        "INSERTs/s",
        "relative to none",
        "p99",
        "processors",
        "memory",
        "objects/s",
        "lag",
    ]);
    for group in groups(runs) {
        let alone = median(&group, SideCar::None).map(|run| run.inserts_per_s);
        for side_car in [SideCar::None, SideCar::Quorate, SideCar::Litestream] {
            table_line(&mut table, &group, side_car, alone);
        }
    }
    format!("# Side-cars\n\n{}\n\n{}\n", wrapped(&about), table.text())
}

/// Returns the runs that differ only in the side-car, in the order in which they were measured.
fn groups(runs: &[Run]) -> Vec<Vec<&Run>> {
    let key = |run: &Run| (run.place, run.databases, run.synchronous);
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| group.iter().all(|other| key(other) == key(run))) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

/// Returns the runs with a side-car, from the slowest to the fastest.
pub fn sorted<'a>(group: &[&'a Run], side_car: SideCar) -> Vec<&'a Run> {
    let mut runs: Vec<_> = group.iter().copied().filter(|run| run.side_car == side_car).collect();
    runs.sort_by(|a, b| a.inserts_per_s.total_cmp(&b.inserts_per_s));
    runs
}

fn median<'a>(group: &[&'a Run], side_car: SideCar) -> Option<&'a Run> {
    let runs = sorted(group, side_car);
    runs.get(runs.len() / 2).copied()
}

fn table_line(table: &mut Table, group: &[&Run], side_car: SideCar, alone: Option<f64>) {
    let Some(run) = median(group, side_car) else { return };
    let name = match side_car {
        SideCar::None => "none",
        SideCar::Quorate => "Quorate",
        SideCar::Litestream => "Litestream",
    };
    let rate = match sorted(group, side_car).as_slice() {
        [lowest, .., highest] => format!(
            "{} ({} - {})",
            grouped(run.inserts_per_s),
            grouped(lowest.inserts_per_s),
            grouped(highest.inserts_per_s)
        ),
        _ => grouped(run.inserts_per_s),
    };
    let is_alone = side_car == SideCar::None;
    let ratio = alone.filter(|_| !is_alone).map(|alone| format!("{:.2}x", run.inserts_per_s / alone));
    let own = run.own.as_ref().map(|own| {
        [
            format!("{:.2}", own.cpu),
            format!("{:.0} MiB", own.peak_mib),
            format!("{:.1}", own.objects_per_s),
            format!("{} ms", own.lag.as_millis()),
        ]
    });
    let [cpu, memory, objects, lag] = own.unwrap_or_default();
    table.line([
        run.place,
        &run.databases.to_string(),
        run.synchronous,
        name,
        &rate,
        &ratio.unwrap_or_default(),
        &format!("{:.0} us", run.times.p99_us),
        &cpu,
        &memory,
        &objects,
        &lag,
    ]);
}
