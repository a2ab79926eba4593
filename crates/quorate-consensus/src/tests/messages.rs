//! The bytes of messages between nodes, as `docs/wire-format.md` defines them: nodes of other versions decode them.

use bytes::Bytes;

use crate::peer::messages::{
    Forward, ForwardAnswer, ForwardAnswerKind, ForwardWritten, Forwarded, decode, encode, method,
};

#[test]
fn the_bytes_of_a_forwarded_batch_and_its_answers() {
    assert_eq!(method::FORWARD, 11);
    let forward = Forward { proposals: vec!["ab".into(), "c".into()], group: 1 };
    assert_eq!(encode(&forward), [10, 2, b'a', b'b', 10, 1, b'c'].as_slice());

    let kinds = [
        ForwardAnswerKind::Written(ForwardWritten { index: 7, outcome: "o".into() }),
        ForwardAnswerKind::NotLeader(1),
        ForwardAnswerKind::Overloaded(true),
        ForwardAnswerKind::Stopped("s".to_owned()),
        ForwardAnswerKind::Unknown("u".to_owned()),
    ];
    let answers = kinds.map(|kind| ForwardAnswer { kind: Some(kind) }).into();
    let bytes = Bytes::from_static(&[
        10, 7, 10, 5, 8, 7, 18, 1, b'o', // written
        10, 9, 17, 1, 0, 0, 0, 0, 0, 0, 0, // not leader
        10, 2, 24, 1, // overloaded
        10, 3, 34, 1, b's', // stopped
        10, 3, 42, 1, b'u', // unknown
    ]);
    let forwarded = Forwarded { answers };
    assert_eq!(encode(&forwarded), bytes);
    assert_eq!(decode::<Forwarded>(bytes).unwrap(), forwarded);
}
