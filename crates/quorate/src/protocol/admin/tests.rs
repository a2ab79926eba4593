//! Tests of the admin messages: decoding returns what was encoded, their bytes do not change, and no bytes make a
//! decoder panic.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::protocol::{decode, encode};

fn results() -> Vec<(&'static str, Result<Change, NoChange>)> {
    let why = || "why".to_owned();
    vec![
        ("changed-done", Ok(Change::Done(None))),
        ("changed-leads", Ok(Change::Done(Some(NodeId(6))))),
        ("changed-waiting", Ok(Change::Waiting(Admitted::Waiting(why())))),
        ("changed-learner", Ok(Change::Waiting(Admitted::Learner { matched: 5, last: 70, why: why() }))),
        ("changed-refused", Err(NoChange::Refused(why()))),
        ("changed-no-leader", Err(NoChange::NoLeader(why()))),
        ("changed-unconfirmed", Err(NoChange::Unconfirmed(why()))),
    ]
}

fn admissions() -> [Admission; 2] {
    let plain = Admission { name: "d".to_owned(), addr: "h:4".to_owned(), ..Admission::default() };
    [plain.clone(), Admission { replaces: Some("a".to_owned()), force: true, ..plain }]
}

#[test]
fn answers_survive_the_wire() {
    for (_, result) in results() {
        let received: Changed = decode(encode(&Changed::new(result.clone(), Some("h:1".to_owned())))).unwrap();
        assert_eq!((received.leader.clone(), received.result()), ("h:1".to_owned(), result));
    }
    for admission in admissions() {
        let received: Admit = decode(encode(&Admit::from(admission.clone()))).unwrap();
        assert_eq!(Admission::from(received), admission);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        if let Ok(changed) = decode::<Changed>(bytes.clone()) {
            let _ = changed.result();
        }
        let _ = decode::<Admit>(bytes.clone()).map(Admission::from);
        let _ = (decode::<Remove>(bytes.clone()), decode::<Transfer>(bytes.clone()), decode::<Probe>(bytes));
    }
}

#[test]
fn the_bytes_are_those_of_the_golden_file() {
    let name = || "d".to_owned();
    let probe = Probe {
        now: 1_700_000_000_000_000_000,
        version: "0.1.0".to_owned(),
        heartbeat_millis: 80,
        election_min_millis: 300,
        election_max_millis: 600,
    };
    let [plain, full] = admissions();
    let mut samples = vec![
        ("admit", encode(&Admit::from(plain))),
        ("admit-replace", encode(&Admit::from(full))),
        ("remove", encode(&Remove { name: name(), force: true })),
        ("transfer", encode(&Transfer { name: name() })),
        ("probe", encode(&probe)),
    ];
    samples.extend(results().into_iter().map(|(name, result)| (name, encode(&Changed::new(result, None)))));
    let hex = |bytes: &Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: String = samples.iter().map(|(name, bytes)| format!("{name} {}\n", hex(bytes))).collect();
    assert_eq!(lines, include_str!("../../../tests/golden/admin-methods-v1.txt"), "\n{lines}");
}
