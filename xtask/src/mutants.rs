//! `cargo xtask mutants [SEEDS [NAME...]]`: shows that the simulator, or L0 (the model check of the log) for bugs of
//! the log, finds each deliberate bug of `crates/quorate-env/src/mutant.rs`, and that neither reports anything in the
//! same runs without a bug.
//!
//! Invariant: builds with deliberate bugs have a target directory of their own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};
use std::time::Instant;

/// The number of seeds in which a bug must be found: of short ones, or of whole ones if no short one finds it.
const SEEDS: &str = "200";

/// The faults that a bug needs and that strike rarely: every second fault is of this class while the bug is sought.
const FAVOURED: [(&str, &str); 10] = [
    ("DryRunNotChecked", "transfer"),
    ("ForwardedIsNotDone", "transfer"),
    ("ImageNotReadAgain", "bad image"),
    ("ManifestWithoutSwap", "deposed archiver"),
    ("MoveNotAnnounced", "changed address"),
    ("OneIsBelieved", "tampering"),
    ("OutcomesNotCompared", "tampering"),
    ("ReadDamageIgnored", "bad page"),
    ("SyncBelievedAgain", "failed sync"),
    ("SyncErrorIgnored", "failed sync"),
];

/// The number of cases of L0 in which a bug of the log may be found instead.
const CASES: &str = "20000";

/// The maximum number of characters of a failure that a row shows.
const FAILURE_CHARS_MAX: usize = 160;

/// The bugs that are in the log, and that L0 can find.
const OF_THE_LOG: [&str; 5] =
    ["AcknowledgedBeforeSync", "SyncErrorIgnored", "StaleFrameAccepted", "TornFrameAccepted", "SegmentReusedEarly"];

/// The programs, which contain all bugs. A bug is on only if an argument names it.
struct Programs {
    simulator: PathBuf,
    l0: PathBuf,
}

/// The result of running a program with a bug.
struct Trial {
    name: String,
    /// Where the bug was found, and the first failure that was reported.
    found: Option<(String, String)>,
    seconds: f64,
}

/// Runs the programs with each bug, or with the named ones, and prints a table.
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
    let mut not_found = Vec::new();
    for name in all.lines().filter(|name| names.is_empty() || names.contains(name)) {
        let in_log = OF_THE_LOG.contains(&name).then(|| programs.check_log(name)).transpose()?;
        let mut trials: Vec<Trial> = in_log.into_iter().chain([programs.simulate(name, &range, true)?]).collect();
        if trials.iter().all(|trial| trial.found.is_none()) {
            trials.push(programs.simulate(name, &range, false)?);
        }
        if trials.iter().all(|trial| trial.found.is_none()) {
            not_found.push(name);
        }
        trials.iter().for_each(|trial| println!("{}", trial.row()));
    }
    let classes: BTreeSet<&str> = FAVOURED.iter().map(|(_, class)| *class).collect();
    let mut simulated = true;
    for class in std::iter::once(None).chain(classes.into_iter().map(Some)) {
        simulated &= output(programs.seeds(&range, class).arg("--short"))?.status.success();
    }
    let checked = output(Command::new(&programs.l0).args(["--cases", CASES]))?.status.success();
    let verdict = if simulated && checked { "none fails" } else { "NOT in order" };
    println!("\nThe same seeds, {range}, and {CASES} cases of L0 without a bug: {verdict}.");
    not_found.iter().for_each(|name| println!("not found: {name}"));
    Ok(not_found.is_empty() && simulated && checked)
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

    /// Returns the command that runs seeds up to the first that fails.
    fn seeds(&self, range: &str, class: Option<&str>) -> Command {
        let mut simulator = Command::new(&self.simulator);
        simulator.args(["--first", "--seeds", range]);
        class.iter().for_each(|class| _ = simulator.args(["--favour", class]));
        simulator
    }

    fn simulate(&self, name: &str, range: &str, is_short: bool) -> Result<Trial, String> {
        let begun = Instant::now();
        let class = FAVOURED.iter().find(|(bug, _)| *bug == name).map(|(_, class)| *class);
        let mut simulator = self.seeds(range, class);
        if is_short {
            simulator.arg("--short");
        }
        let ran = output(simulator.args(["--events", "0", "--mutant", name]))?;
        let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
        let mut lines = printed.lines().skip_while(|line| !(line.starts_with("seed ") && line.contains(" failed, ")));
        let kind = if is_short { "short seed" } else { "seed" };
        let seed = lines.next().and_then(|line| line.split(' ').nth(1)).map(|seed| format!("{kind} {seed}"));
        let found = seed.map(|seed| (seed, lines.next().unwrap_or_default().to_owned()));
        Ok(Trial { name: name.to_owned(), found, seconds: begun.elapsed().as_secs_f64() })
    }

    fn check_log(&self, name: &str) -> Result<Trial, String> {
        let begun = Instant::now();
        let ran = output(Command::new(&self.l0).args(["--cases", CASES, "--mutant", name]))?;
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
        let value = |key: &str| printed.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_suffix(','));
        let found = value("program: ").map(|program| {
            (format!("L0, program {program}"), value("failure: ").unwrap_or_default().trim_matches('"').to_owned())
        });
        Ok(Trial { name: name.to_owned(), found, seconds: begun.elapsed().as_secs_f64() })
    }
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))
}

impl Trial {
    fn row(&self) -> String {
        let (place, failure) = self.found.clone().unwrap_or_else(|| ("-".to_owned(), "nothing".to_owned()));
        let failure: String = failure.chars().take(FAILURE_CHARS_MAX).collect();
        format!("| {} | {place} | {:.1} s | {} |", self.name, self.seconds, failure.replace('|', "/"))
    }
}
