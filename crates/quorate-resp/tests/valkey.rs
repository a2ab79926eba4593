//! The door on keys in memory replies what a real Valkey does, changes keys by the same events, and has them expire at
//! the same time. `.ci/stores` installs one; without it, or without a C compiler for its clock, the tests are skipped,
//! with a message; in CI they fail.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests stop at the first surprise, and run a real server"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use quorate_keys::KeyChange;
use quorate_resp::differential::{Alike, Comparison, Generator, MemoryDoor, Value, anew};
use quorate_resp::{Frame, NOTIFY, Protocol};
use tempfile::TempDir;

#[path = "valkey/clock.rs"]
mod clock;

use clock::Clock;

/// How long a server may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// How much later the door may get requests. Replies that tell a time may differ by twice this.
const APART_MAX: Duration = Duration::from_secs(1);

/// The time at which a clock begins, in milliseconds since 1970.
const FIRST_TIME: u64 = 1_700_000_000_000;

const MILLISECOND: u64 = 1_000_000;

/// The name of Valkey's socket.
const SOCKET: &str = "valkey.sock";

/// A Valkey, which ends with this.
struct Valkey {
    process: Child,
    /// The directory of its socket. A port might be taken by another program before Valkey listens.
    dir: TempDir,
    client: Client,
}

/// A client of it.
struct Client {
    stream: UnixStream,
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
    skipped(&format!("{} is missing: run .ci/stores", program.display()));
    None
}

/// Says why a test is skipped; in CI it may not be.
fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

impl Valkey {
    fn start() -> Option<Self> {
        Some(Self::start_in(TempDir::new().unwrap(), Command::new(program()?)))
    }

    /// Starts a program that uses a directory.
    fn start_in(dir: TempDir, mut command: Command) -> Self {
        let socket = dir.path().join(SOCKET);
        command.args(["--port", "0", "--save", "", "--dir"]).arg(dir.path()).arg("--unixsocket").arg(&socket);
        let process = command.stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(begun.elapsed() < START_TIME_MAX, "Valkey does not start: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Self { process, dir, client: Client::new(stream) }
    }

    fn another_client(&self) -> Client {
        Client::new(UnixStream::connect(self.dir.path().join(SOCKET)).unwrap())
    }

    fn ask(&mut self, requests: &[Vec<Bytes>]) -> Vec<Value> {
        self.client.ask(requests)
    }
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).unwrap();
        Self { stream, read: BytesMut::new() }
    }

    fn ask(&mut self, requests: &[Vec<Bytes>]) -> Vec<Value> {
        let mut bytes = BytesMut::new();
        for request in requests {
            Frame::bulks(request.iter().cloned()).write(Protocol::Two, &mut bytes);
        }
        self.stream.write_all(&bytes).unwrap();
        requests.iter().map(|_| self.value()).collect()
    }

    /// Returns the next value that comes.
    fn value(&mut self) -> Value {
        loop {
            if let Some((value, read)) = Value::read(&self.read).unwrap() {
                _ = self.read.split_to(read);
                return value;
            }
            let mut buffer = [0; 16 << 10];
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "Valkey closed the connection");
            self.read.extend_from_slice(&buffer[..read]);
        }
    }
}

/// What happens to each key of each space, by the names of the events in their order.
type Events = BTreeMap<(String, Vec<u8>), Vec<String>>;

/// Hears what happens to the keys of a Valkey.
struct Hearing {
    subscribed: Client,
    asking: Client,
}

impl Hearing {
    fn begin(valkey: &Valkey) -> Self {
        let (mut subscribed, mut asking) = (valkey.another_client(), valkey.another_client());
        let words = |words: &[&'static str]| words.iter().map(|word| Bytes::from(*word)).collect::<Vec<_>>();
        assert!(!asking.ask(&[words(&["config", "set", NOTIFY, "EAn"])])[0].is_error());
        assert!(!subscribed.ask(&[words(&["psubscribe", "__keyevent@*__:*"])])[0].is_error());
        Self { subscribed, asking }
    }

    /// Returns what has happened since this was last asked.
    fn events(&mut self) -> Events {
        const END: &str = "__keyevent@end__:";
        self.asking.ask(&[["publish", END, ""].map(Bytes::from).into()]);
        let mut events = Events::new();
        loop {
            let Value::Parts(_, parts) = self.subscribed.value() else { panic!("no message") };
            let [_, _, Value::Bulk(_, channel), Value::Bulk(_, key)] = parts.as_slice() else { panic!("{parts:?}") };
            let channel = std::str::from_utf8(channel).unwrap();
            if channel == END {
                return events;
            }
            let (space, event) = channel.strip_prefix("__keyevent@").unwrap().split_once("__:").unwrap();
            events.entry((space.to_owned(), key.clone())).or_default().push(event.to_owned());
        }
    }
}

fn events_of(door: &mut MemoryDoor) -> Events {
    let mut events = Events::new();
    for KeyChange { space, key, event } in door.take_changes() {
        events.entry((space.to_string(), key.to_vec())).or_default().push(event.name().to_owned());
    }
    events
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Returns how many requests a test sends.
fn requests() -> u64 {
    std::env::var("QUORATE_REQUESTS").map_or(100_000, |text| text.parse().unwrap())
}

/// A Valkey and a door, which get the same requests.
struct Both {
    valkey: Valkey,
    door: MemoryDoor,
    comparison: Comparison,
    hello: &'static str,
    seed: u64,
    sent: u64,
    /// The clock of both, if it stands still.
    clock: Option<Clock>,
}

impl Both {
    /// Begins with no keys on either side.
    fn begin(hello: &'static str) -> Option<Self> {
        Some(Self::begin_with(Valkey::start()?, hello, None))
    }

    fn begin_with(valkey: Valkey, hello: &'static str, clock: Option<Clock>) -> Self {
        let (seed, comparison) = (seed(), Comparison::default());
        let mut both = Self { valkey, door: MemoryDoor::new(seed), comparison, hello, seed, sent: 0, clock };
        both.begin_anew();
        both
    }

    fn now(&self) -> u64 {
        self.clock.as_ref().map_or_else(now, |clock| clock.milliseconds * MILLISECOND)
    }

    fn begin_anew(&mut self) {
        self.door = MemoryDoor::new(self.seed);
        self.comparison = if self.clock.is_some() { Comparison::at_one_time() } else { Comparison::default() };
        let anew = anew(self.hello);
        self.valkey.ask(&anew);
        self.door.ask(&anew, self.now()).unwrap();
    }

    /// Sends requests, and returns whether all replies are the same. If some are apart by a decision, or the two sides
    /// have got the requests at different times, both begin anew.
    fn ask(&mut self, pipeline: &[Vec<Bytes>]) -> bool {
        let begun = Instant::now();
        let (redis, now) = (self.valkey.ask(pipeline), self.now());
        if self.clock.is_none() && begun.elapsed() > APART_MAX {
            self.begin_anew();
            return false;
        }
        let ours = self.door.ask(pipeline, now).unwrap();
        assert_eq!(redis.len(), ours.len(), "{pipeline:?}: {redis:?} {ours:?}");
        for (request, (redis, ours)) in pipeline.iter().zip(redis.iter().zip(&ours)) {
            match self.comparison.check(request, redis, ours) {
                Ok(Alike::Same) => {}
                Ok(Alike::Apart) => {
                    self.begin_anew();
                    return false;
                }
                Err(difference) => panic!("seed {}, after {} requests: {difference}", self.seed, self.sent),
            }
        }
        self.sent += pipeline.len() as u64;
        true
    }
}

fn compare(hello: &'static str) {
    let Some(mut both) = Both::begin(hello) else { return };
    let mut generator = Generator::new(both.seed);
    while both.sent < requests() {
        let pipeline = generator.pipeline(hello);
        both.ask(&pipeline);
    }
    eprintln!("commands {}, differences 0", both.sent);
}

/// Compares both at times that the test sets.
fn compare_at_times(hello: &'static str) {
    let Some((valkey, clock)) = Clock::begin(FIRST_TIME) else { return };
    let mut both = Both::begin_with(valkey, hello, Some(clock));
    let mut generator = Generator::new(both.seed);
    let (mut moves, mut expired, mut is_swept) = (0, 0, true);
    while both.sent < requests() {
        let clock = both.clock.as_mut().unwrap();
        if generator.below(4) == 0 {
            clock.move_by(generator.step());
            moves += 1;
            // A node needs some time until it removes what has expired.
            is_swept = generator.below(2) == 0;
            if is_swept {
                both.door.sweep(clock.milliseconds * MILLISECOND).unwrap();
            }
            expired += both.door.take_changes().iter().filter(|change| has_expired(change)).count();
        }
        generator.set_clock(clock.milliseconds);
        let mut pipeline = generator.pipeline(hello);
        pipeline.retain(|request| is_swept || !counts_keys(request));
        both.ask(&pipeline);
    }
    eprintln!("commands {}, moves of the clock {moves}, expired {expired}, differences 0", both.sent);
    assert!(expired > 0);
}

/// Until a key that has expired is removed, it counts.
fn counts_keys(request: &[Bytes]) -> bool {
    request[0].eq_ignore_ascii_case(b"dbsize")
}

/// Returns whether a key has expired, or some of its fields.
fn has_expired(change: &KeyChange) -> bool {
    change.event.name().ends_with("expired")
}

#[test]
fn keys_expire_at_the_same_millisecond_in_version_2() {
    compare_at_times("2");
}

#[test]
fn keys_expire_at_the_same_millisecond_in_version_3() {
    compare_at_times("3");
}

#[test]
fn a_key_is_gone_when_its_millisecond_begins_and_in_valkey_when_it_ends() {
    let Some((mut valkey, mut clock)) = Clock::begin(FIRST_TIME) else { return };
    let mut door = MemoryDoor::new(1);
    let set = [["set", "a", "1", "px", "7"].map(Bytes::from).to_vec()];
    assert_eq!(valkey.ask(&set), door.ask(&set, clock.milliseconds * MILLISECOND).unwrap());
    let mut exists = |clock: &Clock| {
        let requests = [["exists", "a"].map(Bytes::from).to_vec()];
        let ours = door.ask(&requests, clock.milliseconds * MILLISECOND).unwrap();
        (valkey.ask(&requests)[0].number() == Some(1), ours[0].number() == Some(1))
    };
    clock.set(FIRST_TIME + 6);
    assert_eq!(exists(&clock), (true, true));
    clock.set(FIRST_TIME + 7);
    assert_eq!(exists(&clock), (true, false));
    clock.set(FIRST_TIME + 8);
    assert_eq!(exists(&clock), (false, false));
}

#[test]
fn replies_of_version_2_are_those_of_valkey() {
    compare("2");
}

#[test]
fn replies_of_version_3_are_those_of_valkey() {
    compare("3");
}

/// Redis sets a key that one command names twice two times; here it is set once.
fn sets_twice(request: &[Bytes]) -> bool {
    let first = match request[0].to_ascii_lowercase().as_slice() {
        b"mset" | b"msetnx" => 1,
        b"msetex" => 2,
        _ => return false,
    };
    let keys: Vec<_> = request.iter().skip(first).step_by(2).collect();
    keys.iter().collect::<BTreeSet<_>>().len() < keys.len()
}

/// Redis has an event for what SORT stores; here it is removed and pushed.
fn stores_sorted(request: &[Bytes]) -> bool {
    request[0].eq_ignore_ascii_case(b"sort") && request.iter().any(|word| word.eq_ignore_ascii_case(b"store"))
}

/// Patterns that clients have subscribed to are counted, and there is one more.
fn counts_patterns(request: &[Bytes]) -> bool {
    request.iter().any(|word| word.eq_ignore_ascii_case(b"numpat"))
}

/// The notifications that Valkey sends stay as they are.
fn configures(request: &[Bytes]) -> bool {
    request[0].eq_ignore_ascii_case(b"config")
}

#[test]
fn events_of_keys_are_those_of_valkey() {
    let Some(mut both) = Both::begin("2") else { return };
    let mut hearing = Hearing::begin(&both.valkey);
    let mut generator = Generator::new(both.seed);
    let mut compared = 0;
    while both.sent < requests() {
        let mut pipeline = generator.pipeline(both.hello);
        let is_left_out = |request: &Vec<Bytes>| {
            sets_twice(request) || stores_sorted(request) || counts_patterns(request) || configures(request)
        };
        pipeline.retain(|request| !is_left_out(request));
        let are_same = both.ask(&pipeline);
        let (redis, ours) = (hearing.events(), events_of(&mut both.door));
        if are_same {
            assert_eq!(ours, redis, "seed {}, after {} requests: {pipeline:?}", both.seed, both.sent);
            compared += redis.values().map(Vec::len).sum::<usize>();
        }
    }
    eprintln!("commands {}, events {compared}, differences 0", both.sent);
    assert!(compared > 0);
}

/// Returns the names of all commands, with those below others.
fn listed(reply: &Value) -> BTreeSet<String> {
    let Value::Parts(_, names) = reply else { panic!("{reply}") };
    let name = |name: &Value| match name {
        Value::Bulk(_, bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other}"),
    };
    names.iter().map(name).collect()
}

/// Returns the documentation of keys.
fn documentation() -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/keys.md");
    std::fs::read_to_string(file).unwrap()
}

/// Returns the commands that the documentation says are missing.
fn documented_as_missing(documentation: &str) -> BTreeSet<String> {
    let section = documentation.split("### Commands that are missing").nth(1).unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with('|'));
    let commands = rows.filter_map(|row| row.split('|').nth(2)).flat_map(|cell| cell.split('`').skip(1).step_by(2));
    commands.map(|command| command.to_lowercase().replace(' ', "|")).collect()
}

#[test]
fn the_commands_that_are_missing_are_documented() {
    let Some(mut both) = Both::begin("2") else { return };
    let request = [["command", "list"].map(Bytes::from).to_vec()];
    let (redis, ours) = (both.valkey.ask(&request), both.door.ask(&request, now()).unwrap());
    let (redis, ours) = (listed(&redis[0]), listed(&ours[0]));
    // Of a command that is missing, those below it are, too.
    let is_below = |name: &str| name.split_once('|').is_some_and(|(of, _)| !ours.contains(of));
    let missing: BTreeSet<_> = redis.difference(&ours).filter(|name| !is_below(name)).cloned().collect();
    let documentation = documentation();
    assert_eq!(documented_as_missing(&documentation), missing);
    for own in ours.difference(&redis) {
        assert!(own.starts_with("q."), "{own} is no command of Valkey");
        assert!(documentation.contains(&format!("`{}", own.to_uppercase())), "{own} is not documented");
    }
}

fn seed() -> u64 {
    std::env::var("QUORATE_SEED").map_or(29, |text| text.parse().unwrap())
}
