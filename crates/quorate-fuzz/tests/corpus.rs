//! Runs each target on its committed corpus, and on 2,000 mutations of it, which are the same in each run.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test that reads files")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use quorate_env::Rng;
use quorate_fuzz::{TARGETS, Target};

/// The number of mutations for each target.
const MUTATIONS: usize = 2_000;
/// The maximum size of all corpora together, because they are part of the repository.
const CORPORA_BYTES_MAX: u64 = 200 << 10;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Returns the inputs of a target, always in the same order.
fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let files = fs::read_dir(corpora().join(target.name)).unwrap();
    let paths: BTreeSet<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Returns one of the inputs with some changes, perhaps with a part of another input in it.
fn mutated(inputs: &[Vec<u8>], rng: &Rng, input_max: usize) -> Vec<u8> {
    let below = |bound: usize| usize::try_from(rng.next_u64() % bound.max(1) as u64).unwrap();
    let mut bytes = inputs[below(inputs.len())].clone();
    for _ in 0..=below(4) {
        let at = below(bytes.len() + 1);
        match below(5) {
            0 => bytes.insert(at, below(256) as u8),
            1 => drop(bytes.splice(at.., inputs[below(inputs.len())].iter().copied().skip(at))),
            2 => bytes.truncate(at),
            _ if at == bytes.len() => bytes.push(below(256) as u8),
            3 => bytes[at] ^= 1 << below(8),
            _ => bytes[at] = [0, 1, 127, 128, 255, below(256) as u8][below(6)],
        }
    }
    bytes.truncate(input_max);
    bytes
}

#[test]
fn targets_pass_on_their_corpora_and_mutations() {
    for (number, target) in (0..).zip(TARGETS) {
        let (inputs, rng) = (inputs(target), Rng::from_seed(number));
        for input in &inputs {
            assert!(input.len() <= target.input_max, "{}: an input is too long", target.name);
            (target.run)(input);
        }
        for _ in 0..MUTATIONS {
            let bytes = mutated(&inputs, &rng, target.input_max);
            let ran = std::panic::catch_unwind(|| (target.run)(&bytes));
            assert!(ran.is_ok(), "{} fails on {bytes:?}", target.name);
        }
    }
}

#[test]
fn every_corpus_is_small_and_has_a_target() {
    let mut bytes = 0;
    for dir in fs::read_dir(corpora()).unwrap() {
        let dir = dir.unwrap();
        let name = dir.file_name().into_string().unwrap();
        assert!(quorate_fuzz::find(&name).is_some(), "{name} is not a target");
        bytes += fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
    }
    assert!(bytes <= CORPORA_BYTES_MAX, "the corpora have {bytes} bytes, at most {CORPORA_BYTES_MAX} are allowed");
}
