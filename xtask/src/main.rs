//! The project's development tasks. `cargo xtask tidy` checks the house rules that rustfmt and clippy can't check,
//! `cargo xtask mutants` checks that the simulator finds deliberate bugs, and `cargo xtask fuzz` fuzzes the decoders.
//!
//! Invariant: a task only reads the tree and prints. Only `fuzz --merge` changes files of the tree.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod fuzz;
mod mutants;
mod tidy;

use std::process::ExitCode;

use tidy::Tree;

const USAGE: &str = "\
usage: cargo xtask tidy                      check the house rules (CONTRIBUTING.md lists them)
       cargo xtask mutants [SEEDS [NAME...]] show that the simulator finds each deliberate bug
       cargo xtask fuzz [RUNS [TARGET...]]    run each target RUNS times; --merge [TARGET...] extends the corpus";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => check_house_rules(),
        ["fuzz", arguments @ ..] => fuzz::run(arguments),
        ["mutants", arguments @ ..] => mutants::run(arguments),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn check_house_rules() -> ExitCode {
    let tree = match Tree::from_git() {
        Ok(tree) => tree,
        Err(why) => {
            eprintln!("tidy: {why}");
            return ExitCode::from(2);
        }
    };
    let findings = tidy::check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files in order", tree.files.len());
        return ExitCode::SUCCESS;
    }
    println!("tidy: {} findings in {} files", findings.len(), tree.files.len());
    ExitCode::FAILURE
}
