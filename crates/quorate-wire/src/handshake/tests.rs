//! The encodings of the handshake, which a golden file pins, and attempts to cheat.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join, ready};
use quorate_env::Rng;
use quorate_env_sim::SimWorld;
use tokio::io::DuplexStream;

use super::*;
use crate::error::CallFailure;
use crate::frame::HEADER_LEN;
use crate::identity::User;
use crate::limits::HANDSHAKE_FRAME_MAX;
use crate::message::tests::hex;

fn secret() -> Secret {
    Secret::new("0123456789abcdef").unwrap()
}

fn me() -> Introduction {
    Introduction {
        identity: Identity::new(0xC1, 0xCA),
        secret: secret(),
        role: Role::Peer,
        purpose: Purpose::Data,
        expected: 0x5E,
        binding: Bytes::new(),
    }
}

fn gate() -> Gate {
    let keys = Keys::shared(secret());
    Gate { identity: Identity::new(0xC1, 0x5E), keys, handler: Arc::new(Porter), security: None }
}

/// Lets in whoever says `ann` from `here`.
struct Porter;

impl Handler for Porter {
    fn call(&self, _: &PeerInfo, _: u16, _: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        ready(Ok(Bytes::new())).boxed()
    }

    fn login(&self, credentials: Bytes, from: &str) -> BoxFuture<'static, Result<User, String>> {
        let is_ann = credentials == b"ann"[..] && from.starts_with("here");
        ready(if is_ann { Ok(Arc::new("ann") as User) } else { Err("nobody".to_owned()) }).boxed()
    }
}

/// One end of a connection in memory.
struct End {
    reader: FrameReader<tokio::io::ReadHalf<DuplexStream>>,
    sink: tokio::io::WriteHalf<DuplexStream>,
}

fn ends() -> [End; 2] {
    let (one, two) = tokio::io::duplex(4096);
    [one, two].map(|stream| {
        let (source, sink) = tokio::io::split(stream);
        End { reader: FrameReader::new(source, HANDSHAKE_FRAME_MAX), sink }
    })
}

async fn dial_at(mut end: End, me: Introduction) -> Result<PeerInfo, HandshakeError> {
    dial(&mut end.reader, &mut end.sink, &me, &Rng::from_seed(1), "there").await
}

async fn accept_at(mut end: End, gate: Gate) -> Result<PeerInfo, HandshakeError> {
    let accepted = accept(&mut end.reader, &mut end.sink, &gate, &Rng::from_seed(2), "here", |_| Some(())).await;
    accepted.map(|(peer, ())| peer)
}

fn run<T>(scenario: impl Future<Output = T>) -> T {
    SimWorld::new(0).run(scenario).unwrap()
}

/// Relays frames between the two ends in turn, after `change` has modified them. A user sends two in one turn.
async fn relay(mut dialer: End, mut accepter: End, mut change: impl FnMut(usize, &mut Vec<u8>)) {
    for number in 0..4 {
        let (from, to) = if number % 2 == 0 { (&mut dialer, &mut accepter) } else { (&mut accepter, &mut dialer) };
        let Ok(Some((kind, body))) = from.reader.next().await else { return };
        let mut changed = body.to_vec();
        change(number, &mut changed);
        to.sink.write_all(&whole_frame(kind, &changed)).await.unwrap();
        // What the dialer wrote says whether it sends a login, not what the relay made of it.
        let proof = body.split_last_chunk::<32>().filter(|_| kind == PROOF).and_then(|(proof, _)| Proof::decode(proof));
        if proof.is_some_and(|proof| proof.role == Role::User) {
            let Ok(Some((kind, body))) = from.reader.next().await else { return };
            to.sink.write_all(&whole_frame(kind, &body)).await.unwrap();
        }
    }
}

/// Runs a handshake through a relay that modifies messages.
fn through(
    me: Introduction,
    gate: Gate,
    change: impl FnMut(usize, &mut Vec<u8>),
) -> [Result<PeerInfo, HandshakeError>; 2] {
    let ([near, near_relay], [far_relay, far]) = (ends(), ends());
    let both = join(dial_at(near, me), accept_at(far, gate));
    let ((dialed, accepted), ()) = run(join(both, relay(near_relay, far_relay, change)));
    [dialed, accepted]
}

#[test]
fn both_ends_agree_on_unchanged_messages() {
    let [dialed, accepted] = through(me(), gate(), |_, _| {}).map(Result::unwrap);
    assert_eq!((dialed.cluster, dialed.node, &*dialed.addr), (0xC1, 0x5E, "there"));
    assert_eq!((accepted.cluster, accepted.node, &*accepted.addr), (0xC1, 0xCA, "here"));
    assert_eq!((dialed.role, dialed.purpose, dialed.limits), (accepted.role, accepted.purpose, accepted.limits));
}

#[test]
fn each_changed_bit_fails_the_handshake() {
    for number in 0..4 {
        let mut bits = 1;
        let mut bit = 0;
        while bit < bits {
            let [dialed, accepted] = through(me(), gate(), |at, body| {
                if at == number {
                    bits = body.len() * 8;
                    body[bit / 8] ^= 1 << (bit % 8);
                }
            });
            assert!(dialed.is_err(), "message {number}, bit {bit}");
            // The accepting end is done once it has sent the last message.
            assert!(accepted.is_err() || number == 3, "message {number}, bit {bit}");
            bit += 1;
        }
        assert!(bits > 256, "message {number} was not seen");
    }
}

#[test]
fn a_signature_is_invalid_in_the_other_direction() {
    let secret = secret();
    let mut transcript = Transcript::new();
    transcript.add(Bytes::from_static(b"said"));
    let signed = transcript.sign_as_dialer(&secret);
    let (_, mac) = signed.split_last_chunk().unwrap();
    let mut again = Transcript::new();
    again.add(Bytes::from_static(b"said"));
    assert!(again.is_signed_by_dialer(&secret, mac) && !again.is_signed_by_accepter(&secret, mac));
}

#[test]
fn a_reflected_signature_is_detected() {
    let [near, mut mirror] = ends();
    let reflect = async {
        for _ in 0..2 {
            let (_, received) = mirror.reader.next().await.unwrap().unwrap();
            let (kind, body) = match received.len() {
                44 => (CHALLENGE, Challenge { version: VERSION, nonce: [7; 32] }.encode()),
                _ => (VERDICT, received),
            };
            mirror.sink.write_all(&whole_frame(kind, &body)).await.unwrap();
        }
    };
    let (dialed, ()) = run(join(dial_at(near, me()), reflect));
    assert_eq!(dialed.unwrap_err(), HandshakeError::WrongSecret);
}

#[test]
fn both_ends_need_the_same_channel_binding() {
    let bound = |binding: &[u8]| Introduction { binding: Bytes::copy_from_slice(binding), ..me() };
    let over_tls = |is_certified| Gate { security: Some(Security { binding: [7; 32], is_certified }), ..gate() };
    let errors = |me, gate| through(me, gate, |_, _| {}).map(Result::unwrap_err);
    assert!(through(bound(&[7; 32]), over_tls(true), |_, _| {}).iter().all(Result::is_ok));
    for other in [&[][..], &[8; 32]] {
        let error = HandshakeError::OtherChannel;
        assert_eq!(errors(bound(other), over_tls(true)), [error.clone(), error]);
    }
    assert_eq!(errors(bound(&[7; 32]), gate())[0], HandshakeError::OtherChannel);

    let error = HandshakeError::Uncertified;
    assert_eq!(errors(bound(&[7; 32]), over_tls(false)), [error.clone(), error]);
    let client = Introduction { role: Role::ReadWrite, purpose: Purpose::Client, ..bound(&[7; 32]) };
    assert!(through(client, over_tls(false), |_, _| {}).iter().all(Result::is_ok), "clients need no certificate");

    // A user logs in over a protected channel only, and needs no secret.
    let user = |name: &str, binding: &[u8]| Introduction {
        role: Role::User,
        purpose: Purpose::Client,
        secret: Secret::credentials(name),
        ..bound(binding)
    };
    let [dialed, accepted] = through(user("ann", &[7; 32]), over_tls(false), |_, _| {}).map(Result::unwrap);
    assert!(dialed.user.is_none());
    assert_eq!(accepted.user.unwrap().downcast_ref::<&str>(), Some(&"ann"));
    let error = HandshakeError::NotLoggedIn("nobody".to_owned());
    assert_eq!(errors(user("eve", &[7; 32]), over_tls(false)), [error.clone(), error]);
    assert_eq!(errors(user("ann", &[]), gate())[0], HandshakeError::Unprotected);
    let node = Introduction { purpose: Purpose::Data, ..user("ann", &[7; 32]) };
    assert!(matches!(errors(node, over_tls(true))[1], HandshakeError::Malformed(_)));
}

#[test]
fn the_refusal_names_the_supported_versions() {
    let [mut near, far] = ends();
    let later = async {
        let hello = [&b"quorate\0\x02\0\x09\0"[..], &[0; 40]].concat();
        near.sink.write_all(&whole_frame(HELLO, &hello)).await.unwrap();
        near.reader.next().await.unwrap().unwrap()
    };
    let (accepted, (kind, refusal)) = run(join(accept_at(far, gate()), later));
    assert_eq!(accepted.unwrap_err(), HandshakeError::OtherVersion { theirs: 2..=9, ours: 1..=1 });
    assert_eq!((kind, &refusal[..]), (REFUSED, &[2, 1, 0, 1, 0][..]));
    let error = Refusal::decode(&refusal).unwrap().into_error();
    assert_eq!(error, HandshakeError::OtherVersion { theirs: 1..=1, ours: 1..=1 });
}

#[test]
fn no_identity_is_disclosed_before_the_proof() {
    let [mut near, far] = ends();
    let probing = async {
        let hello = Hello { versions: 1..=1, nonce: [1; 32] };
        near.sink.write_all(&whole_frame(HELLO, &hello.encode())).await.unwrap();
        let challenge = near.reader.next().await.unwrap().unwrap();
        let guess = Proof {
            cluster: 9,
            node: 9,
            expected: 9,
            role: Role::Peer,
            purpose: Purpose::Data,
            limits: Limits::of(Purpose::Data),
            binding: Bytes::new(),
        };
        near.sink.write_all(&whole_frame(PROOF, &[&guess.encode()[..], &[0; 32]].concat())).await.unwrap();
        [challenge, near.reader.next().await.unwrap().unwrap()]
    };
    let (accepted, received) = run(join(accept_at(far, gate()), probing));
    assert_eq!(accepted.unwrap_err(), HandshakeError::WrongSecret);
    assert_eq!(received.each_ref().map(|(kind, body)| (*kind, body.len())), [(CHALLENGE, 34), (REFUSED, 1)]);
}

#[test]
fn encodings_match_the_golden_file() {
    let mut transcript = Transcript::new();
    let mut lines = Vec::new();
    let mut line = |name, kind, body: &[u8]| lines.push(format!("{name} {}", hex(&whole_frame(kind, body))));
    line("hello", HELLO, transcript.add(Hello { versions: 1..=1, nonce: [0x11; 32] }.encode()));
    line("challenge", CHALLENGE, transcript.add(Challenge { version: 1, nonce: [0x22; 32] }.encode()));
    let limits = Limits { body_bytes: 1, calls: 2, call_bytes: 3, streams: 4, stream_window: 5 };
    let proof = Proof {
        cluster: 0xC1,
        node: 0xCA,
        expected: 0x5E,
        role: Role::ReadWrite,
        purpose: Purpose::Client,
        limits,
        binding: Bytes::from_static(b"tls"),
    };
    transcript.add(proof.encode());
    line("proof", PROOF, &transcript.sign_as_dialer(&secret()));
    let verdict = Verdict { code: VerdictCode::Welcome, cluster: 0xC1, node: 0x5E, limits };
    transcript.add(verdict.encode());
    line("verdict", VERDICT, &transcript.sign_as_accepter(&secret()));
    line("refused-secret", REFUSED, &Refusal::WrongSecret.encode());
    line("refused-version", REFUSED, &Refusal::OtherVersion(1..=1).encode());
    line("refused-malformed", REFUSED, &Refusal::Malformed.encode());
    line("refused-time", REFUSED, &Refusal::TimedOut.encode());
    line("refused-busy", REFUSED, &Refusal::Busy.encode());
    line("refused-channel", REFUSED, &Refusal::OtherChannel.encode());
    line("refused-certificate", REFUSED, &Refusal::Uncertified.encode());
    line("refused-plain", REFUSED, &Refusal::NeedsTls.encode());
    line("refused-unprotected", REFUSED, &Refusal::Unprotected.encode());
    line("refused-login", REFUSED, &Refusal::NotLoggedIn("wrong".to_owned()).encode());
    line("login", LOGIN, b"ann");
    let golden: Vec<&str> = include_str!("../../tests/golden/handshake-v1.txt").lines().collect();
    assert_eq!(lines, golden, "\n{}", lines.join("\n"));
    assert_eq!(lines[0].len() - "hello ".len(), 2 * (HEADER_LEN + 44));
}
