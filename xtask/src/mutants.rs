//! `cargo xtask mutants [SEEDS [NAME...]]`: shows that the simulator, or for the log its model check L0, finds each
//! deliberate bug of `crates/quorate-env/src/mutant.rs`, and that neither finds anything in the same runs without them.
//!
//! Invariant: what is built with deliberate bugs goes into a target directory of its own.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};
use std::time::Instant;

/// Seeds that a bug may survive before it counts as not found.
const SEEDS: &str = "200";

/// Cases of L0 that a bug of the log may survive.
const CASES: &str = "20000";

/// Characters of what was said that a row shows.
const SAID_MAX: usize = 160;

/// The bugs that lie in the log alone.
const OF_THE_LOG: [&str; 5] =
    ["AcknowledgedBeforeSync", "SyncErrorIgnored", "StaleFrameAccepted", "TornFrameAccepted", "SegmentReusedEarly"];

/// What was built with all bugs, of which none is on.
struct Programs {
    simulator: PathBuf,
    l0: PathBuf,
}

/// How a bug fared.
struct Fate {
    name: String,
    /// Where it was found, and what was said first.
    found: Option<(String, String)>,
    seconds: f64,
}

/// Runs all, or those that are named, and prints a table.
pub fn run(arguments: &[&str]) -> ExitCode {
    let (seeds, names) = arguments.split_first().map_or((SEEDS, arguments), |(seeds, names)| (*seeds, names));
    match try_run(seeds, names) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("mutants: {why}");
            ExitCode::from(2)
        }
    }
}

fn try_run(seeds: &str, names: &[&str]) -> Result<bool, String> {
    let programs = Programs::build()?;
    let listed = output(Command::new(&programs.simulator).arg("--mutants"))?;
    let all = String::from_utf8_lossy(&listed.stdout).into_owned();
    let range = format!("0..{seeds}");
    println!("| deliberate bug | found by | after | what was said |\n|---|---|---:|---|");
    let mut alive = Vec::new();
    for name in all.lines().filter(|name| names.is_empty() || names.contains(name)) {
        let in_log = OF_THE_LOG.contains(&name).then(|| programs.check_log(name)).transpose()?;
        let fates: Vec<Fate> = in_log.into_iter().chain([programs.simulate(name, &range)?]).collect();
        if fates.iter().all(|fate| fate.found.is_none()) {
            alive.push(name);
        }
        fates.iter().for_each(|fate| println!("{}", fate.row()));
    }
    let simulated = output(Command::new(&programs.simulator).args(["--first", "--seeds", &range]))?.status.success();
    let checked = output(Command::new(&programs.l0).args(["--cases", CASES]))?.status.success();
    let verdict = if simulated && checked { "none fails" } else { "NOT in order" };
    println!("\nThe same seeds, {range}, and {CASES} cases of L0 without a bug: {verdict}.");
    alive.iter().for_each(|name| println!("not found: {name}"));
    Ok(alive.is_empty() && simulated && checked)
}

impl Programs {
    fn build() -> Result<Self, String> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let target = target.join("mutants");
        let simulator = ["-p", "quorate-sim", "--features", "mutants"].as_slice();
        let l0 = ["-p", "quorate-wal", "--example", "l0", "--features", "quorate-env/mutants"].as_slice();
        for what in [simulator, l0] {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            cargo.args(["build", "--quiet", "--release", "--locked"]).args(what);
            let status = cargo.arg("--target-dir").arg(&target).status().map_err(|error| format!("cargo: {error}"))?;
            if !status.success() {
                return Err(format!("can't be built: {}", what.join(" ")));
            }
        }
        let release = target.join("release");
        Ok(Self { simulator: release.join("quorate-sim"), l0: release.join("examples/l0") })
    }

    fn simulate(&self, name: &str, range: &str) -> Result<Fate, String> {
        let begun = Instant::now();
        let mut simulator = Command::new(&self.simulator);
        let ran = output(simulator.args(["--first", "--events", "0", "--seeds", range, "--mutant", name]))?;
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        let mut lines = told.lines().skip_while(|line| !(line.starts_with("seed ") && line.contains(" failed, ")));
        let seed = lines.next().and_then(|line| line.split(' ').nth(1)).map(|seed| format!("seed {seed}"));
        let found = seed.map(|seed| (seed, lines.next().unwrap_or_default().to_owned()));
        Ok(Fate { name: name.to_owned(), found, seconds: begun.elapsed().as_secs_f64() })
    }

    fn check_log(&self, name: &str) -> Result<Fate, String> {
        let begun = Instant::now();
        let ran = output(Command::new(&self.l0).args(["--cases", CASES, "--mutant", name]))?;
        let told = String::from_utf8_lossy(&ran.stdout).into_owned();
        let value = |key: &str| told.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_suffix(','));
        let found = value("program: ").map(|program| {
            (format!("L0, program {program}"), value("failure: ").unwrap_or_default().trim_matches('"').to_owned())
        });
        Ok(Fate { name: name.to_owned(), found, seconds: begun.elapsed().as_secs_f64() })
    }
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))
}

impl Fate {
    fn row(&self) -> String {
        let (place, said) = self.found.clone().unwrap_or_else(|| ("-".to_owned(), "nothing".to_owned()));
        let said: String = said.chars().take(SAID_MAX).collect();
        format!("| {} | {place} | {:.1} s | {} |", self.name, self.seconds, said.replace('|', "/"))
    }
}
