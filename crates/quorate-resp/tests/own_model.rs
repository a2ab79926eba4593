//! Our own commands on versions and ranges, in random order beside those of Redis, against a plain ordered map.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::select;
use quorate_resp::differential::{MemoryDoor, Value};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * SECOND;
/// Keys that are prefixes of each other, empty, or of bytes that are no text.
const KEYS: [&[u8]; 9] = [b"", b"\0", b"a", b"a\0", b"a:1", b"a:2", b"b", b"\xff", b"\xff\xff"];

#[derive(Clone, Debug)]
enum Step {
    Set(usize, u8),
    Delete(usize),
    /// With the version that the key has, or another one; it may expire after so many seconds.
    CompareAndSet(usize, Guess, u8, Option<u64>),
    CompareAndDelete(usize, Guess),
    Get(usize),
    Range(usize, usize, bool, usize),
    Prefix(usize, bool, usize),
    Wait(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guess {
    Right,
    Missing,
    Former,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    let guess = select(vec![Guess::Right, Guess::Missing, Guess::Former]);
    prop_oneof![
        (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
        key.clone().prop_map(Step::Delete),
        (key.clone(), guess.clone(), any::<u8>(), prop::option::of(1..5_u64))
            .prop_map(|(key, guess, value, ttl)| Step::CompareAndSet(key, guess, value, ttl)),
        (key.clone(), guess).prop_map(|(key, guess)| Step::CompareAndDelete(key, guess)),
        key.clone().prop_map(Step::Get),
        (key.clone(), key.clone(), any::<bool>(), 1..5_usize).prop_map(|(a, b, rev, n)| Step::Range(a, b, rev, n)),
        (key, any::<bool>(), 1..5_usize).prop_map(|(key, rev, limit)| Step::Prefix(key, rev, limit)),
        (1..4_u64).prop_map(Step::Wait),
    ]
}

/// A key of the model: its version, its value, and when it expires.
#[derive(Clone, Debug)]
struct Held {
    version: i64,
    value: Vec<u8>,
    expires: Option<u64>,
}

struct Sides {
    door: MemoryDoor,
    model: BTreeMap<&'static [u8], Held>,
    now: u64,
    /// The highest version that was seen.
    highest: i64,
}

impl Sides {
    fn ask(&mut self, words: &[&[u8]]) -> Value {
        let request = words.iter().map(|word| Bytes::copy_from_slice(word)).collect();
        self.door.ask(&[request], self.now).unwrap().remove(0)
    }

    /// Returns the version of a key according to the model.
    fn version(&self, key: &[u8]) -> i64 {
        self.model.get(key).map_or(0, |held| held.version)
    }

    fn guessed(&self, key: &[u8], guess: Guess) -> i64 {
        match guess {
            Guess::Right => self.version(key),
            Guess::Missing => 0,
            Guess::Former => (self.version(key) - 1).max(1),
        }
    }

    fn set(&mut self, key: &'static [u8], version: i64, value: u8, expires: Option<u64>) {
        assert!(version > self.highest, "version {version} after {}", self.highest);
        self.highest = version;
        self.model.insert(key, Held { version, value: vec![value], expires });
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Set(key, value) => {
                let key = KEYS[key];
                self.ask(&[b"SET", key, &[value]]);
                let version = self.ask(&[b"Q.VERSION", key]).number().unwrap();
                self.set(key, version, value, None);
            }
            Step::Delete(key) => {
                let was = self.model.remove(KEYS[key]).is_some();
                assert_eq!(self.ask(&[b"DEL", KEYS[key]]).number(), Some(i64::from(was)));
            }
            Step::CompareAndSet(key, guess, value, ttl) => self.compare_and_set(KEYS[key], guess, value, ttl),
            Step::CompareAndDelete(key, guess) => {
                let key = KEYS[key];
                let guessed = self.guessed(key, guess);
                let expected = guessed == self.version(key) && self.model.remove(key).is_some();
                let removed = self.ask(&[b"Q.CAD", key, guessed.to_string().as_bytes()]);
                assert_eq!(removed.number(), Some(i64::from(expected)));
            }
            Step::Get(key) => {
                let expected = self.model.get(KEYS[key]).map(|held| {
                    let value = Value::Bulk('$', held.value.clone());
                    Value::Parts('*', vec![Value::Line(format!(":{}", held.version)), value])
                });
                assert_eq!(
                    self.ask(&[b"Q.GETV", KEYS[key]]),
                    expected.unwrap_or_else(|| Value::Line("*-1".to_owned()))
                );
            }
            Step::Range(from, to, rev, limit) => {
                let (from, to) = (KEYS[from], KEYS[to]);
                let is_in = |key: &[u8]| key >= from && (to.is_empty() || key < to);
                let found = if rev {
                    self.pages(limit, |at| (vec![b"Q.RANGE".to_vec(), from.into(), at.unwrap_or(to.into())], true))
                } else {
                    self.pages(limit, |at| (vec![b"Q.RANGE".to_vec(), at.unwrap_or(from.into()), to.into()], false))
                };
                self.check(found, rev, is_in);
            }
            Step::Prefix(key, rev, limit) => {
                let prefix = KEYS[key];
                let found = self.pages(limit, |at| {
                    let start = at.into_iter().flat_map(|at| [b"FROM".to_vec(), at]);
                    ([b"Q.PREFIX".to_vec(), prefix.into()].into_iter().chain(start).collect(), rev)
                });
                self.check(found, rev, |key| key.starts_with(prefix));
            }
            Step::Wait(seconds) => {
                self.now += seconds * SECOND;
                let now = self.now;
                self.model.retain(|_, held| held.expires.is_none_or(|at| at > now));
            }
        }
    }

    fn compare_and_set(&mut self, key: &'static [u8], guess: Guess, value: u8, ttl: Option<u64>) {
        let guessed = self.guessed(key, guess);
        let expected = guessed == self.version(key);
        let text = guessed.to_string();
        let ttl_text = ttl.unwrap_or_default().to_string();
        let mut words = vec![b"Q.CAS".as_slice(), key, text.as_bytes()];
        let value_bytes = [value];
        words.push(&value_bytes);
        if ttl.is_some() {
            words.extend([b"EX".as_slice(), ttl_text.as_bytes()]);
        }
        let version = self.ask(&words).number();
        assert_eq!(version.is_some(), expected, "{key:?} at {guessed}");
        if let Some(version) = version {
            self.set(key, version, value, ttl.map(|ttl| self.now + ttl * SECOND));
        }
    }

    /// Reads all pages of a command, given where each begins.
    fn pages(
        &mut self,
        limit: usize,
        command: impl Fn(Option<Vec<u8>>) -> (Vec<Vec<u8>>, bool),
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut found, mut at) = (Vec::new(), None);
        for _ in 0..=KEYS.len() {
            let (mut words, rev) = command(at);
            words.extend(rev.then(|| b"REV".to_vec()));
            words.extend([b"LIMIT".to_vec(), limit.to_string().into_bytes(), b"WITHVALUES".to_vec()]);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let reply = self.ask(&words);
            let Value::Parts(_, parts) = &reply else { panic!("{words:?}: {reply}") };
            let [next, Value::Parts(_, page)] = parts.as_slice() else { panic!("{words:?}: {reply}") };
            assert!(page.len() <= 2 * limit, "{words:?}: {reply}");
            let text =
                |value: &Value| if let Value::Bulk(_, bytes) = value { bytes.clone() } else { panic!("{value}") };
            found.extend(page.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))));
            match next {
                Value::Bulk(_, next) => at = Some(next.clone()),
                _ => return found,
            }
        }
        panic!("more pages than keys");
    }

    fn check(&self, found: Vec<(Vec<u8>, Vec<u8>)>, rev: bool, is_in: impl Fn(&[u8]) -> bool) {
        let held = self.model.iter().filter(|(key, _)| is_in(key));
        let mut expected: Vec<_> = held.map(|(key, held)| (key.to_vec(), held.value.clone())).collect();
        if rev {
            expected.reverse();
        }
        assert_eq!(found, expected);
    }
}

proptest! {
    #[test]
    fn versions_and_ranges_are_those_of_an_ordered_map(steps in prop::collection::vec(step(), 1..60)) {
        let (door, model) = (MemoryDoor::new(1), BTreeMap::new());
        let mut sides = Sides { door, model, now: NOW, highest: 0 };
        for step in &steps {
            sides.run(step);
        }
    }
}
