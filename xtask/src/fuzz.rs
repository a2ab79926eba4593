//! `cargo xtask fuzz [RUNS [TARGET...]]`: runs the targets of `crates/quorate-fuzz` under libFuzzer, one after the
//! other, each RUNS times, and prints a table.
//!
//! It needs a C++ compiler and the stable toolchain: rustc can instrument code for coverage without a sanitizer. The
//! inputs that libFuzzer finds go into the target directory. `--merge` copies from there to the committed corpus the
//! inputs that increase its coverage.
//!
//! Invariant: instrumented builds have a target directory of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::Instant;

/// How often a target is run if RUNS is not given.
const RUNS: &str = "10000000";
/// The maximum time for one input, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;
/// The maximum memory of the process in MiB, including the corpus.
const MEMORY_MIB_MAX: u32 = 2048;
/// The maximum size of an input in the committed corpus, and the maximum number of inputs for each target.
const COMMITTED_BYTES_MAX: u64 = 2048;
const COMMITTED_MAX: usize = 40;
/// The variable that names the fuzzer's target.
const VARIABLE: &str = "QUORATE_FUZZ";
/// The compiler flags that instrument a program, except the standard library, with counters that cost little.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The fuzzer, and the directory for the inputs that it finds.
struct Fuzzer {
    program: PathBuf,
    found: PathBuf,
}

/// The name of a target, and the maximum length of its inputs.
type Target = (String, String);

/// Runs all targets, or the named ones.
pub fn run(arguments: &[&str]) -> ExitCode {
    let (merge, arguments) = match arguments {
        ["--merge", names @ ..] => (true, names),
        arguments => (false, arguments),
    };
    let ran = build().and_then(|fuzzer| match merge {
        true => fuzzer.chosen(arguments)?.iter().try_for_each(|target| fuzzer.merge(target)),
        false => {
            let (runs, names) = arguments.split_first().map_or((RUNS, arguments), |(runs, names)| (*runs, names));
            fuzzer.table(runs, &fuzzer.chosen(names)?)
        }
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fuzz: {why}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<Fuzzer, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let target = std::path::absolute(target.join("fuzz")).map_err(|error| error.to_string())?;
    let host = host()?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // With `--target`, the flags do not apply to build scripts and procedural macros.
    cargo.args(["build", "--quiet", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target", &host]);
    let status = cargo.arg("--target-dir").arg(&target).env("RUSTFLAGS", FLAGS.join(" ")).status();
    if !status.map_err(|error| format!("cargo: {error}"))?.success() {
        return Err("the fuzzer can't be built".into());
    }
    Ok(Fuzzer { program: target.join(host).join("release/quorate-fuzz-run"), found: target.join("found") })
}

/// Returns the target triple of this machine.
fn host() -> Result<String, String> {
    let printed = output(Command::new("rustc").arg("-vV"))?;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let host = printed.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "`rustc -vV` does not name its host".to_owned())
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))
}

fn corpus(name: &str) -> PathBuf {
    Path::new("crates/quorate-fuzz/corpus").join(name)
}

impl Fuzzer {
    fn chosen(&self, names: &[&str]) -> Result<Vec<Target>, String> {
        let listed = output(Command::new(&self.program).env_remove(VARIABLE))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let all = listed.lines().filter_map(|line| line.split_once(' '));
        let all: Vec<Target> = all.map(|(name, len)| (name.to_owned(), len.to_owned())).collect();
        match names.iter().find(|name| all.iter().all(|(known, _)| known != *name)) {
            Some(name) => Err(format!("there is no target {name}; the targets are:\n{listed}")),
            None => {
                Ok(all.into_iter().filter(|(name, _)| names.is_empty() || names.contains(&name.as_str())).collect())
            }
        }
    }

    /// Returns the command that runs a target.
    fn on(&self, (name, input_max): &Target) -> Result<Command, String> {
        for dir in [&self.found(name), &corpus(name)] {
            fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        let mut command = Command::new(&self.program);
        command.env(VARIABLE, name).arg(format!("-max_len={input_max}")).arg(format!("-timeout={INPUT_SECONDS_MAX}"));
        command.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
        Ok(command)
    }

    fn found(&self, name: &str) -> PathBuf {
        self.found.join(name)
    }

    fn table(&self, runs: &str, targets: &[Target]) -> Result<(), String> {
        println!("| target | runs | seconds | runs/s | edges | features | corpus | verdict |");
        println!("|---|---:|---:|---:|---:|---:|---:|---|");
        for target in targets {
            let name = &target.0;
            let mut command = self.on(target)?;
            command.arg(format!("-runs={runs}")).arg("-print_final_stats=1").arg("-use_value_profile=0");
            command.arg(format!("-artifact_prefix={}/{name}-", self.found.display()));
            command.arg(self.found(name)).arg(corpus(name));
            let begun = Instant::now();
            let ran = output(&mut command)?;
            let log = String::from_utf8_lossy(&ran.stderr).into_owned();
            println!("{}", row(name, &log, begun.elapsed().as_secs_f64(), ran.status.success()));
            if !ran.status.success() {
                let lines: Vec<&str> = log.lines().rev().take(30).collect();
                lines.iter().rev().for_each(|line| eprintln!("{line}"));
                let artifact = log.lines().find_map(|line| line.split_once("Test unit written to "));
                let artifact = artifact.map_or("FILE", |(_, path)| path.trim());
                let program = self.program.display();
                return Err(format!("{name} failed; run it again: {VARIABLE}={name} {program} {artifact}"));
            }
        }
        Ok(())
    }

    /// Replaces the committed corpus by the small inputs among the found and the committed ones that together reach all
    /// edges.
    fn merge(&self, target: &Target) -> Result<(), String> {
        let (name, committed) = (&target.0, corpus(&target.0));
        let least = self.found.join(format!("{name}.least"));
        let _ = fs::remove_dir_all(&least);
        fs::create_dir_all(&least).map_err(|error| error.to_string())?;
        let mut command = self.on(target)?;
        let merged = output(command.arg("-merge=1").arg(&least).arg(&committed).arg(self.found(name)))?;
        if !merged.status.success() {
            return Err(format!("{name} can't be merged: {}", String::from_utf8_lossy(&merged.stderr)));
        }
        let io = |error: std::io::Error| error.to_string();
        let mut files: Vec<(u64, PathBuf)> = Vec::new();
        for item in fs::read_dir(&least).map_err(io)? {
            let item = item.map_err(io)?;
            files.push((item.metadata().map_err(io)?.len(), item.path()));
        }
        files.sort();
        files.retain(|(len, _)| *len <= COMMITTED_BYTES_MAX);
        fs::remove_dir_all(&committed).map_err(io)?;
        fs::create_dir_all(&committed).map_err(io)?;
        // If there are too many, only every nth is kept, counted from the longest, because short inputs add little
        // coverage.
        let step = files.len().div_ceil(COMMITTED_MAX).max(1);
        for (_, path) in files.iter().rev().step_by(step) {
            let name = format!("{}.bin", path.file_stem().unwrap_or_default().to_string_lossy());
            fs::copy(path, committed.join(name)).map_err(io)?;
        }
        println!("{name}: {} of {}", files.len().div_ceil(step), files.len());
        Ok(())
    }
}

/// Formats a row of the table from libFuzzer's log.
fn row(name: &str, log: &str, seconds: f64, is_sound: bool) -> String {
    let stat = |key: &str| {
        let line = log.lines().rev().find_map(|line| line.strip_prefix(&format!("stat::{key}:")));
        line.map_or("-".to_owned(), |value| value.trim().to_owned())
    };
    let runs = stat("number_of_executed_units");
    let last = log.lines().rev().find(|line| line.contains(" cov: ")).unwrap_or_default();
    let word = |key: &str| last.split_once(key).and_then(|(_, rest)| rest.split(' ').next()).unwrap_or("-");
    let rate = runs.parse::<f64>().map_or(0.0, |runs| runs / seconds.max(0.001));
    let (edges, features, corpus) = (word(" cov: "), word(" ft: "), word(" corp: "));
    let verdict = if is_sound { "sound" } else { "FAILED" };
    format!("| {name} | {runs} | {seconds:.0} | {rate:.0} | {edges} | {features} | {corpus} | {verdict} |")
}
