//! Measures the machine during the trial: how long it delays a thread that wants to run, and a small synced write. A
//! node can't be faster than that, and a stall of the whole machine is not the node's fault.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use quorate_env::lock;

/// How often it is measured.
const EVERY: Duration = Duration::from_millis(500);
/// How many measurements are kept: about a minute of them.
const KEPT: usize = 120;
/// How many bytes are written each time.
const BYTES: usize = 4096;

/// The measurements of a thread that runs for as long as this exists.
#[derive(Default)]
pub struct Machine(Mutex<Measured>);

#[derive(Default)]
struct Measured {
    latest: VecDeque<Sample>,
    longest: Sample,
}

/// How late a thread ran, and how long a sync took.
#[derive(Clone, Copy, Default)]
struct Sample {
    late: Duration,
    sync: Duration,
}

impl Machine {
    /// Starts the thread, which writes to a file in the directory.
    pub fn watch(dir: &Path) -> io::Result<Arc<Self>> {
        let file = File::create(dir.join("probe"))?;
        let machine = Arc::new(Self::default());
        let watched = Arc::downgrade(&machine);
        std::thread::Builder::new().name("machine".to_owned()).spawn(move || measure(&file, &watched))?;
        Ok(machine)
    }

    /// Formats the worst measurements: of the last minute, and since the start.
    pub fn said(&self) -> String {
        let measured = lock(&self.0);
        let last = measured.latest.iter().copied().fold(Sample::default(), Sample::max);
        format!("the machine: {last} in the last minute, {} in all", measured.longest)
    }
}

fn measure(file: &File, machine: &Weak<Machine>) {
    loop {
        let begun = Instant::now();
        // This is the measurement: the machine may wake the thread too late.
        std::thread::sleep(EVERY);
        let woken = Instant::now();
        if file.write_all_at(&[0; BYTES], 0).and_then(|()| file.sync_data()).is_err() {
            return;
        }
        let sample = Sample { late: (woken - begun).saturating_sub(EVERY), sync: woken.elapsed() };
        let Some(machine) = machine.upgrade() else { return };
        let mut measured = lock(&machine.0);
        measured.longest = measured.longest.max(sample);
        measured.latest.push_back(sample);
        if measured.latest.len() > KEPT {
            measured.latest.pop_front();
        }
    }
}

impl Sample {
    fn max(self, other: Self) -> Self {
        Self { late: self.late.max(other.late), sync: self.sync.max(other.sync) }
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a thread up to {} ms late, a sync up to {} ms", self.late.as_millis(), self.sync.as_millis())
    }
}
