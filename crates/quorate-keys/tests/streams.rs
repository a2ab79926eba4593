//! Random streams of commands do, and reply, what the model does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use quorate_keys::suite::{Step, generate, resolve, steps};
use quorate_keys::*;

mod common;
mod model;

use common::invariants;
use model::contents::contents;
use model::{Model, Name};

const BUDGET: u64 = 1 << 40;

/// Checks that the keys that differ were touched, or all of their space.
fn check_touched(before: &Model, after: &Model, touched: &[Name], flushed: &[Space]) {
    for name in before.keys.keys().chain(after.keys.keys()) {
        let version = |model: &Model| model.keys.get(name).map(|entry| entry.version);
        let is_touched = touched.contains(name) || flushed.contains(&name.0);
        assert!(version(before) == version(after) || is_touched, "{name:?} was not touched");
    }
}

fn run(steps: Vec<Step>, pieces: &[usize]) {
    let (mut tables, mut model) = (Memory::default(), Model::default());
    model.now = generate::NOW - 20;
    for (number, mut step) in steps.into_iter().enumerate() {
        model.now += step.later;
        model.version = Version::new(number as u64 + 1, 0);
        model.expire();
        let find = |key: &Bytes| model.keys.get(&(step.space, key.clone())).map(|entry| entry.version);
        resolve(&mut step.command, find);
        let (before, old) = (tables.clone(), model.clone());
        let mut context = Context::new(model.now, model.version, BUDGET);
        let actual = Keys::new(&mut tables, &mut context, step.space).run(&step.command);
        let expected = model.run(step.space, &step.command, &actual);
        assert_eq!(actual, expected, "{step:?} of {old:?}");
        check_touched(&old, &model, &context.take_touched(), &context.take_flushed());
        if actual.is_err() || matches!(actual, Ok(KeysReply::NotApplied | KeysReply::Missing)) {
            assert_eq!(tables, before, "{step:?} failed, or did not apply, but has written");
        }
        assert!(!step.command.only_reads() || tables == before, "{step:?} only reads, but has written");
        sweep(&mut tables, &mut context, step.sweep).unwrap();
        invariants::check(&mut tables);
    }
    invariants::sweep_all(&mut tables, model.now, pieces);
    assert_eq!(contents(&mut tables), model.keys);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_of_commands_do_what_the_model_does(
        steps in steps(generate::command(), 60),
        pieces in vec(1..7_usize, 1..4),
    ) {
        run(steps, &pieces);
    }

    #[test]
    fn elements_that_have_expired_are_gone_whenever_they_are_swept(
        steps in steps(generate::expiring(), 40),
        pieces in vec(1..7_usize, 1..4),
    ) {
        run(steps, &pieces);
    }

    #[test]
    fn members_of_sorted_sets_that_have_expired_are_gone_whenever_they_are_swept(
        steps in steps(generate::expiring_scores(), 40),
        pieces in vec(1..7_usize, 1..4),
    ) {
        run(steps, &pieces);
    }
}
