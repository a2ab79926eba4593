//! The door on keys in memory replies what a real Valkey does. `.ci/stores` installs one; without it the test is
//! skipped, with a message; in CI it fails.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests stop at the first surprise, and run a real server"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use quorate_resp::differential::{Alike, Comparison, Generator, MemoryDoor, Value};
use quorate_resp::{Frame, Protocol};

/// The requests that are sent together.
const REQUESTS_PER_PIPELINE: u64 = 20;

/// How long a server may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// A Valkey, which ends with this.
struct Valkey {
    process: Child,
    stream: TcpStream,
    read: BytesMut,
}

impl Drop for Valkey {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Returns the program; none if it is not installed.
fn program() -> Option<PathBuf> {
    let target = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("../../target".into()));
    let installed = std::env::var_os("QUORATE_STORES").map_or_else(|| target.join("stores"), PathBuf::from);
    let program = installed.join("bin/valkey-server");
    if program.exists() {
        return Some(program);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing: run .ci/stores", program.display());
    eprintln!("skipped: {} is missing: run .ci/stores", program.display());
    None
}

impl Valkey {
    fn start() -> Option<Self> {
        let program = program()?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1", "--dir", "/tmp"]);
        let process = command.stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(begun.elapsed() < START_TIME_MAX, "Valkey does not start: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).unwrap();
        Some(Self { process, stream, read: BytesMut::new() })
    }

    fn ask(&mut self, requests: &[Vec<Bytes>]) -> Vec<Value> {
        let mut bytes = BytesMut::new();
        for request in requests {
            Frame::bulks(request.iter().cloned()).write(Protocol::Two, &mut bytes);
        }
        self.stream.write_all(&bytes).unwrap();
        let mut values = Vec::new();
        while values.len() < requests.len() {
            match Value::read(&self.read).unwrap() {
                Some((value, read)) => {
                    values.push(value);
                    _ = self.read.split_to(read);
                }
                None => {
                    let mut buffer = [0; 16 << 10];
                    let read = self.stream.read(&mut buffer).unwrap();
                    assert!(read > 0, "Valkey closed the connection");
                    self.read.extend_from_slice(&buffer[..read]);
                }
            }
        }
        values
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Returns how many requests a test sends.
fn requests() -> u64 {
    std::env::var("QUORATE_REQUESTS").map_or(100_000, |text| text.parse().unwrap())
}

/// A Valkey and a door, with no keys on either side.
fn begin(valkey: &mut Valkey, hello: &'static str, seed: u64) -> (MemoryDoor, Comparison) {
    let mut door = MemoryDoor::new(seed);
    let hello = [vec![Bytes::from("hello"), Bytes::from(hello)]];
    valkey.ask(&[vec![Bytes::from("reset")], vec![Bytes::from("flushall")]]);
    valkey.ask(&hello);
    door.ask(&hello, now()).unwrap();
    (door, Comparison::default())
}

fn compare(hello: &'static str, seed: u64) {
    let Some(mut valkey) = Valkey::start() else { return };
    let (mut door, mut comparison) = begin(&mut valkey, hello, seed);
    let mut generator = Generator::new(seed);
    let mut sent = 0;
    while sent < requests() {
        let pipeline: Vec<_> = (0..=generator.below(REQUESTS_PER_PIPELINE)).map(|_| generator.request()).collect();
        let (redis, ours) = (valkey.ask(&pipeline), door.ask(&pipeline, now()).unwrap());
        assert_eq!(redis.len(), ours.len(), "{pipeline:?}: {redis:?} {ours:?}");
        for (request, (redis, ours)) in pipeline.iter().zip(redis.iter().zip(&ours)) {
            match comparison.check(request, redis, ours) {
                Ok(Alike::Same) => {}
                Ok(Alike::Apart) => {
                    (door, comparison) = begin(&mut valkey, hello, seed);
                    break;
                }
                Err(difference) => panic!("seed {seed}, after {sent} requests: {difference}"),
            }
        }
        sent += pipeline.len() as u64;
    }
    eprintln!("commands {sent}, differences 0");
}

#[test]
fn replies_of_version_2_are_those_of_valkey() {
    compare("2", seed());
}

#[test]
fn replies_of_version_3_are_those_of_valkey() {
    compare("3", seed());
}

fn seed() -> u64 {
    std::env::var("QUORATE_SEED").map_or(29, |text| text.parse().unwrap())
}
