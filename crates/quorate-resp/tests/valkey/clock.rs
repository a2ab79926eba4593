//! The clock of a Valkey, which stands still until a test moves it: a library that is built from `clock.c`, and loaded
//! before that of the system.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quorate_resp::differential::Value;
use tempfile::TempDir;

use super::{Client, MILLISECOND, Valkey, program, skipped};

/// How long a server may take to see that its clock was moved, and to remove what has expired.
const MOVE_TIME_MAX: Duration = Duration::from_secs(60);

/// So many databases have keys.
const DATABASES_USED: u64 = 2;

/// The clock of a Valkey, which stands still until it is moved.
pub struct Clock {
    /// The file that the library reads.
    file: File,
    /// Its time, in milliseconds since 1970.
    pub milliseconds: u64,
    /// A client that asks what has become of the time.
    asking: Client,
}

impl Clock {
    /// Starts a Valkey whose clock stands still; none if that is not possible here.
    pub fn begin(milliseconds: u64) -> Option<(Valkey, Self)> {
        let (program, dir) = (program()?, TempDir::new().unwrap());
        let (library, path) = (dir.path().join("clock.so"), dir.path().join("clock"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/valkey/clock.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        if !cfg!(target_os = "linux") || !built.is_ok_and(|status| status.success()) {
            skipped("a clock that stands still needs Linux and cc");
            return None;
        }
        let file = File::create(&path).unwrap();
        file.write_all_at(&(milliseconds * MILLISECOND).to_ne_bytes(), 0).unwrap();
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library).env("QUORATE_CLOCK", path);
        // What has expired is looked for so many times a second.
        command.args(["--hz", "500"]);
        let valkey = Valkey::start_in(dir, command);
        let asking = valkey.another_client();
        let mut clock = Self { file, milliseconds, asking };
        clock.settle();
        Some((valkey, clock))
    }

    /// Moves it, perhaps a little further: to a time at which nothing expires, since Valkey removes that a millisecond
    /// later than the door.
    pub fn move_by(&mut self, milliseconds: u64) {
        self.set(self.milliseconds + milliseconds);
        while (0..DATABASES_USED).any(|space| self.is_last_moment(space)) {
            self.set(self.milliseconds + 1);
        }
    }

    /// Moves it to a time, and waits until Valkey has removed what has expired by then.
    pub fn set(&mut self, milliseconds: u64) {
        self.milliseconds = milliseconds;
        self.file.write_all_at(&(milliseconds * MILLISECOND).to_ne_bytes(), 0).unwrap();
        self.settle();
    }

    /// Waits until Valkey sees the time, and has removed what has expired by then: it counts it otherwise.
    fn settle(&mut self) {
        let begun = Instant::now();
        while self.time() != self.milliseconds || (0..DATABASES_USED).any(|space| self.counts_too_many(space)) {
            assert!(begun.elapsed() < MOVE_TIME_MAX, "the clock does not move, or keys do not expire");
            std::thread::yield_now();
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Value {
        self.asking.ask(&[words.iter().map(|word| Bytes::copy_from_slice(word)).collect()]).remove(0)
    }

    /// Returns the time of Valkey in milliseconds since 1970. It adds microseconds that have really passed.
    fn time(&mut self) -> u64 {
        let parts = bulks(self.ask(&[b"time"]));
        let number = |place: usize| std::str::from_utf8(&parts[place]).unwrap().parse::<u64>().unwrap();
        number(0) * 1_000 + number(1) / 1_000
    }

    /// Returns whether Valkey counts keys or fields that it does not show, since they have expired.
    fn counts_too_many(&mut self, space: u64) -> bool {
        let keys = self.keys(space);
        let all = self.ask(&[b"dbsize"]).number();
        all != Some(keys.len() as i64)
            || keys.iter().any(|key| {
                let fields = self.fields(key).len() as i64;
                self.ask(&[b"hlen", key]).number().is_some_and(|all| all != fields)
            })
    }

    /// Returns whether this is the last millisecond of a key or a field.
    fn is_last_moment(&mut self, space: u64) -> bool {
        self.keys(space).iter().any(|key| {
            let fields = self.fields(key);
            let is_last = |clock: &mut Self, field: &Vec<u8>| {
                let left = clock.ask(&[b"hpttl", key, b"fields", b"1", field]);
                left == Value::Parts('*', vec![Value::Line(":0".to_owned())])
            };
            self.ask(&[b"pttl", key]).number() == Some(0) || fields.iter().any(|field| is_last(self, field))
        })
    }

    fn keys(&mut self, space: u64) -> Vec<Vec<u8>> {
        self.ask(&[b"select", space.to_string().as_bytes()]);
        bulks(self.ask(&[b"keys", b"*"]))
    }

    /// Returns the fields of a hash; of something else, none.
    fn fields(&mut self, key: &[u8]) -> Vec<Vec<u8>> {
        bulks(self.ask(&[b"hkeys", key]))
    }
}

fn bulks(value: Value) -> Vec<Vec<u8>> {
    let Value::Parts(_, parts) = value else { return Vec::new() };
    parts.into_iter().map(|part| if let Value::Bulk(_, bytes) = part { bytes } else { panic!("{part}") }).collect()
}
