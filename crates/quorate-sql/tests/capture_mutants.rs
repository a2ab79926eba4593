//! The check of captures finds each deliberate bug of theirs.
//!
//! Bugs are turned on in the whole process, so this is the only test in it. They exist only in builds with
//! `--features quorate-env/mutants`; in other builds the test does nothing.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use common::{Model, steps};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use quorate_env::mutant::Mutant;

#[test]
fn each_deliberate_bug_is_found() {
    for bug in [Mutant::GrowthPagesLeftOut, Mutant::BoundaryBeforeCommit, Mutant::CheckpointBeforeCapture] {
        if !bug.turn_on() {
            return;
        }
        let config = ProptestConfig { cases: 40, max_shrink_iters: 0, failure_persistence: None, ..Default::default() };
        let mut runner = TestRunner::new(config);
        let found = runner.run(&steps(), |steps| Model::new().run(&steps).map_err(TestCaseError::fail));
        let Err(TestError::Fail(why, _)) = found else { panic!("{bug:?} is not found") };
        println!("{bug:?}: {why}");
    }
}
