//! The contract of the program: the last line of a trial is its verdict, and the exit code says whether it holds.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests run real processes and stop at the first surprise"
)]

use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_quorate-trials");

fn run(program: impl AsRef<Path>, arguments: &str) -> Output {
    Command::new(program.as_ref()).args(arguments.split_whitespace()).output().unwrap()
}

/// Returns the exit code, the output, and its last line.
fn trial(program: impl AsRef<Path>, arguments: &str) -> (i32, String, String) {
    let output = run(program, arguments);
    let said = String::from_utf8(output.stdout).unwrap();
    let last = said.lines().last().unwrap_or_default().to_owned();
    (output.status.code().unwrap(), said, last)
}

#[test]
fn without_a_trial_the_help_is_printed() {
    let output = run(PROGRAM, "");
    let help = String::from_utf8(output.stderr).unwrap();
    let trials = ["chaos", "differential", "hostile", "failover", "reseed", "rolling", "restart-time", "upgrade"];
    assert!(trials.iter().all(|trial| help.contains(trial)), "{help}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_wrong_command_line_is_no_verdict() {
    let (code, said, _) = trial(PROGRAM, "rolling --rounds few");
    assert_eq!((code, said.as_str()), (2, ""));
}

#[test]
fn a_missing_binary_is_reported_with_its_command() {
    let elsewhere = tempfile::tempdir().unwrap();
    let program = elsewhere.path().join("quorate-trials");
    std::fs::copy(PROGRAM, &program).unwrap();
    for arguments in ["chaos", "differential", "hostile", "failover", "reseed", "rolling", "restart-time", "upgrade"] {
        let (code, _, last) = trial(&program, arguments);
        assert!(last.starts_with("FAILED: there is no ") && last.contains("-p quorate-cli`"), "{arguments}: {last}");
        assert_eq!(code, 1, "{arguments}");
    }
}

#[test]
fn a_trial_that_holds_ends_with_its_figures() {
    let (code, said, last) = trial(PROGRAM, "rolling --rounds 1 --in-flight 4");
    assert!(last.starts_with("1 rounds of restarts, 4 writes in flight"), "{said}");
    assert_eq!(code, 0, "{said}");
}

#[test]
fn embedded_programs_use_the_seed_that_is_printed() {
    let (code, said, last) = trial(PROGRAM, "hostile --embedded yes --statements 5");
    let seeds: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("seed ")?.split(',').next()).collect();
    assert!(matches!(seeds.as_slice(), [printed, used] if printed == used), "{said}");
    assert_eq!((code, last.as_str()), (0, "embedded: statements 5, programs ended 0"), "{said}");
}

#[test]
fn a_row_that_only_one_side_has_is_found() {
    let (code, said, last) = trial(PROGRAM, "differential --seed 1 --statements 600 --kills 0 --break 200");
    // The row may be found by its number or by itself, at the latest in the next comparison of all data.
    assert!(last.starts_with("FAILED: DIFFERENT in unit") && last.contains("--seed 1 --statements 600"), "{said}");
    assert!(["cluster:", "plain"].iter().all(|side| said.contains(side)), "{said}");
    assert_eq!(code, 1, "{said}");
}
