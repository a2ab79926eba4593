//! Many measurements in turns (A, B, C, A, B, C ...), and a Markdown table of their medians.
//!
//! Each is a run of this program with the arguments that stand in [`CASES`], so that each line of the table can be had
//! again by itself. Turns, because the speed of a disk changes within minutes: only neighbours can be compared.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use quorate_bench_harness::Result;
use serde_json::Value;

use crate::peer::build_hiqlite;

mod table;

/// How it is compared.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Fewer cases, shorter runs: to see that all is in order, not for figures to keep.
    #[arg(long)]
    quick: bool,
    /// How often each case is measured; 3 if not told, 1 with `--quick`. Odd numbers have a median.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: Option<u32>,
    /// Only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Where the data go, on the disk to be measured; the default is beside this program. Removed at the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print all runs as one line of JSON after the table.
    #[arg(long)]
    json: bool,
}

/// One block of the table.
pub struct Case {
    /// What is measured, for people.
    name: &'static str,
    /// The arguments, but for the system and its durability.
    arguments: &'static [&'static str],
    /// What `--quick` adds to them; `None` leaves the case out.
    quick: Option<&'static [&'static str]>,
    /// The figure of a run that is compared, its unit, and whether more of it is better.
    figure: &'static str,
    unit: &'static str,
    more_is_better: bool,
    contenders: &'static [Contender],
}

/// Who is compared: a system, a durability, how many nodes.
pub struct Contender(&'static str, &'static str, &'static str);

const QUORATE: Contender = Contender("quorate", "fsync", "3");
const QUORATE_OS: Contender = Contender("quorate", "os", "3");
const HIQLITE: Contender = Contender("hiqlite", "os", "3");
const HIQLITE_IMMEDIATE: Contender = Contender("hiqlite", "fsync", "3");
const PLAIN: Contender = Contender("rusqlite", "fsync", "1");

const WRITERS: &[Contender] = &[QUORATE, QUORATE_OS, HIQLITE, HIQLITE_IMMEDIATE];
const READERS: &[Contender] = &[QUORATE, HIQLITE, PLAIN];

/// Every measured part takes this long.
const SECONDS: [&str; 2] = ["--seconds", "3"];
const SECONDS_QUICK: &[&str] = &["--seconds", "1", "--warm-up", "0.5"];

const CASES: &[Case] = &[
    insert("INSERT, 1 client", &["sql-insert", "--concurrency", "1"], Some(SECONDS_QUICK)),
    insert("INSERT, 16 clients", &["sql-insert", "--concurrency", "16"], None),
    insert("INSERT, 64 clients", &["sql-insert", "--concurrency", "64"], Some(SECONDS_QUICK)),
    insert("INSERT, 256 clients", &["sql-insert", "--concurrency", "256"], None),
    insert(
        "INSERT in batches of 64 rows, 16 clients",
        &["sql-batch", "--batch", "64", "--concurrency", "16"],
        Some(SECONDS_QUICK),
    ),
    select("point SELECT, local, 1 client", &["sql-select", "--concurrency", "1"], Some(SECONDS_QUICK)),
    select("point SELECT, local, 16 clients", &["sql-select", "--concurrency", "16"], None),
    Case {
        name: "SIGKILL of a follower to its next read, 128 MiB",
        arguments: &["restart", "--db-size", "128", "--kills", "1"],
        quick: Some(&["--seconds", "1"]),
        figure: "ready_ms",
        unit: "ms",
        more_is_better: false,
        contenders: &[QUORATE, HIQLITE],
    },
];

const fn insert(
    name: &'static str,
    arguments: &'static [&'static str],
    quick: Option<&'static [&'static str]>,
) -> Case {
    let (figure, unit, more_is_better) = ("inserts_per_s", "rows/s", true);
    Case { name, arguments, quick, figure, unit, more_is_better, contenders: WRITERS }
}

const fn select(
    name: &'static str,
    arguments: &'static [&'static str],
    quick: Option<&'static [&'static str]>,
) -> Case {
    Case { contenders: READERS, figure: "selects_per_s", unit: "/s", ..insert(name, arguments, quick) }
}

/// What the runs of one contender in one case found.
pub struct Runs(Vec<Value>);

/// Measures everything and prints the table.
pub fn run(options: &Options) -> Result<()> {
    let programs = [std::env::current_exe()?, build_hiqlite()?];
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    let mut measured = Vec::new();
    for case in CASES.iter().filter(|case| options.takes(case)) {
        let mut all: Vec<Runs> = case.contenders.iter().map(|_| Runs(Vec::new())).collect();
        for round in 1..=rounds {
            for (contender, runs) in case.contenders.iter().zip(&mut all) {
                let value = options.measure(&programs, case, contender)?;
                let figure = value.get(case.figure).map_or_else(|| value.to_string(), Value::to_string);
                eprintln!("{} ({round}/{rounds}), {} {}: {figure}", case.name, contender.0, contender.1);
                runs.0.push(value);
            }
        }
        measured.push((case, all));
    }
    print!("{}", table::markdown(&measured));
    if options.json {
        let runs = measured.iter().flat_map(|(_, all)| all.iter().flat_map(|runs| &runs.0));
        println!("{}", serde_json::to_string(&runs.collect::<Vec<_>>())?);
    }
    Ok(())
}

impl Options {
    fn takes(&self, case: &Case) -> bool {
        (!self.quick || case.quick.is_some()) && self.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()))
    }

    /// One run. One that did not finish is a result, too.
    fn measure(&self, programs: &[PathBuf; 2], case: &Case, contender: &Contender) -> Result<Value> {
        let [own, hiqlite] = programs;
        let Contender(system, durability, nodes) = contender;
        let mut command = Command::new(if *system == "hiqlite" { hiqlite } else { own });
        command.args(case.arguments).args(["--json", "--system", system, "--durability", durability, "--nodes", nodes]);
        command.args(case.quick.filter(|_| self.quick).unwrap_or(&SECONDS));
        if let Some(dir) = &self.dir {
            command.arg("--dir").arg(dir);
        }
        let output = command.stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().last().ok_or_else(|| format!("{command:?} printed nothing: {}", output.status))?;
        Ok(serde_json::from_str(line)?)
    }
}
