//! `cargo xtask mutants [SEEDS [NAME...]]`: shows that the simulator finds each deliberate bug of
//! `crates/quorate-env/src/mutant.rs`, and finds nothing in the same seeds without them.
//!
//! Invariant: what is built with deliberate bugs goes into a target directory of its own.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};
use std::time::Instant;

/// Seeds that a bug may survive before it counts as not found.
const SEEDS: &str = "60";

/// How a bug fared.
struct Fate {
    name: String,
    /// The seed that failed, and what it said first.
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
    let program = build()?;
    let listed = output(Command::new(&program).arg("--mutants"))?;
    let all = String::from_utf8_lossy(&listed.stdout).into_owned();
    let range = format!("0..{seeds}");
    println!("| deliberate bug | dies at seed | after | what noticed it |\n|---|---:|---:|---|");
    let mut alive = Vec::new();
    for name in all.lines().filter(|name| names.is_empty() || names.contains(name)) {
        let fate = put_to_test(&program, name, &range)?;
        println!("{}", fate.row());
        if fate.found.is_none() {
            alive.push(fate.name);
        }
    }
    let unmutated = output(Command::new(&program).args(["--first", "--seeds", &range]))?;
    let verdict = if unmutated.status.success() { "none fails" } else { "NOT in order" };
    println!("\nThe same seeds, {range}, without a bug: {verdict}.");
    alive.iter().for_each(|name| println!("not found: {name}"));
    Ok(alive.is_empty() && unmutated.status.success())
}

fn build() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let target = target.join("mutants");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--locked", "-p", "quorate-sim", "--features", "mutants"]);
    let status = cargo.arg("--target-dir").arg(&target).status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(target.join("release/quorate-sim")) } else { Err("the simulator can't be built".into()) }
}

fn put_to_test(program: &PathBuf, name: &str, range: &str) -> Result<Fate, String> {
    let begun = Instant::now();
    let ran = output(Command::new(program).args(["--first", "--events", "0", "--seeds", range, "--mutant", name]))?;
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    let mut lines = told.lines().skip_while(|line| !(line.starts_with("seed ") && line.contains(" failed, ")));
    let seed = lines.next().and_then(|line| line.split(' ').nth(1)).map(str::to_owned);
    let found = seed.map(|seed| (seed, lines.next().unwrap_or_default().to_owned()));
    Ok(Fate { name: name.to_owned(), found, seconds: begun.elapsed().as_secs_f64() })
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))
}

impl Fate {
    fn row(&self) -> String {
        let (seed, noticed) = self.found.clone().unwrap_or_else(|| ("-".to_owned(), "nothing".to_owned()));
        format!("| {} | {seed} | {:.1} s | {} |", self.name, self.seconds, noticed.replace('|', "/"))
    }
}
