//! A log on a simulated disk, and its model.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_env::Rng;
use quorate_env::disk::Disk;
use quorate_env::worker::{Step, Worker};
use quorate_env_sim::SimDisk;
use quorate_model::{GroupId, LogId};
use quorate_wal::{Completion, Durability, OpenError, Opened, Restart, Wal, WalOptions};

use super::model::{Acks, Contents, Group, Model};
use super::tally::Tally;

pub const DIR: &str = "/n/log";
/// The groups; entries of the second need not be synced.
pub const GROUPS: [(GroupId, Durability); 2] = [(GroupId(1), Durability::Fsync), (GroupId(2), Durability::Os)];
/// How often a failed opening is retried with faults; after that the disk works.
const OPENINGS: usize = 8;

/// A description of a broken promise.
pub type Failure = String;

/// The frames that one sync makes durable.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The records acknowledged before it.
    safe: Acks,
    segment: u32,
    offset: u64,
    first_sequence: u64,
}

/// The location of a flipped bit.
#[derive(Clone, Copy, Debug)]
pub struct Flip {
    segment: u32,
    offset: u64,
}

/// How a run of the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Power,
    Kill,
}

#[derive(Debug)]
pub struct World {
    pub disk: SimDisk,
    pub log: Opened,
    pub model: Model,
    pub tally: Tally,
    acks: Arc<Mutex<Acks>>,
    runs: Vec<Run>,
    options: WalOptions,
    /// A clean close was submitted.
    closing: bool,
    /// The clean close was acknowledged.
    closed: bool,
    /// The machine was restarted without a clean close, and the restart is not accepted.
    must_report: bool,
    /// The restart was accepted, but the completion did not confirm that this is durable.
    may_accept: bool,
    /// The durable sequence after the writer's last step.
    durable: u64,
}

impl World {
    pub fn new(seed: u64, options: WalOptions) -> Result<Self, Failure> {
        let disk = SimDisk::new(seed);
        disk.scramble_pages(true);
        disk.create_dir_all(Path::new(DIR).parent().ok_or("no parent")?).map_err(text)?;
        disk.sync_dir(Path::new("/")).map_err(text)?;
        let log = open(&disk, &options).map_err(text)?;
        Ok(Self {
            disk,
            log,
            model: Model::default(),
            tally: Tally::default(),
            acks: Arc::default(),
            runs: Vec::new(),
            options,
            closing: false,
            closed: false,
            must_report: false,
            may_accept: false,
            durable: 0,
        })
    }

    /// A completion for everything submitted so far. With `synced`, its success means that this survives a power loss.
    pub fn done(&self, synced: bool) -> Completion {
        let (acks, upto) = (Arc::clone(&self.acks), self.model.len());
        Box::new(move |result| {
            let mut acks = acks.lock().unwrap();
            assert!(upto >= acks.process, "completions out of order: {upto} after {acks:?}");
            if result.is_ok() {
                acks.process = upto;
                if synced {
                    acks.power = upto;
                }
            }
        })
    }

    pub fn acks(&self) -> Acks {
        *self.acks.lock().unwrap()
    }

    /// One step of the writer.
    pub fn write(&mut self) -> Step {
        let (before, safe) = (self.log.wal.stats(), self.acks());
        let step = self.log.writer.run_once();
        let after = self.log.wal.stats();
        let (segment, offset) = after.last_frame;
        // A segment is synced before the next one is begun.
        let all_synced = before.sequence == before.durable_sequence || segment != before.last_frame.0;
        if after.sequence > before.sequence && all_synced {
            self.runs.push(Run { safe, segment, offset, first_sequence: after.sequence });
        }
        self.durable = after.durable_sequence;
        if self.log.wal.is_disk_full() {
            self.tally.count("log: waited for space");
        }
        step
    }

    /// Runs the writer and the keeper until they have nothing left to do.
    pub fn settle(&mut self) {
        for _ in 0..4 {
            while self.write() == Step::Again {}
            while self.log.keeper.run_once() == Step::Again {}
        }
    }

    /// Closes the log cleanly.
    pub fn close(&mut self) {
        let acknowledged = Arc::new(Mutex::new(false));
        let flag = Arc::clone(&acknowledged);
        let complete = self.done(true);
        let done: Completion = Box::new(move |result| {
            *flag.lock().unwrap() = result.is_ok();
            complete(result);
        });
        if self.log.wal.close_clean(done).is_ok() {
            self.closing = true;
            self.settle();
            self.closed = *acknowledged.lock().unwrap();
        }
    }

    /// Updates the model after a call of `accept_reboot`.
    pub fn accept(&mut self, acknowledged: bool) {
        self.may_accept = !acknowledged;
        self.must_report &= !acknowledged;
    }

    /// Compares what the handle shows with the model.
    pub fn compare(&mut self) -> Result<(), Failure> {
        if self.log.wal.stopped().is_some() {
            return Ok(());
        }
        let stats = self.log.wal.stats();
        if stats.tail_bytes < self.model.now.groups.values().flat_map(|g| g.entries.values()).map(|e| e.1.len()).sum() {
            self.tally.count("log: cold reads");
        }
        let shown = contents(&self.log.wal)?;
        match self.model.explain(self.model.len(), &shown) {
            Some(_) => Ok(()),
            None => Err(format!("the handle shows {shown:?}, not {:?}", self.model.now)),
        }
    }

    /// Ends this run and reopens the log. Returns `Ok(false)` if the log was refused because of the flipped bit, which
    /// is permitted.
    pub fn restart(&mut self, end: End, flip: Option<&Rng>, stops: &Rng) -> Result<bool, Failure> {
        self.note_life();
        let (mut ends_by_power, mut flipped, mut tried_again) = (end == End::Power, None, false);
        self.disk = self.end_life(end);
        if let Some(rng) = flip {
            flipped = self.flip_a_bit(rng)?;
        }
        for attempt in 0.. {
            if attempt < OPENINGS && stops.below(4) == 0 {
                match stops.below(3) {
                    0 => self.disk.stop_after(stops.below(12)),
                    1 => self.disk.fail_after(stops.below(12), quorate_env_sim::Fault::Io),
                    _ => self.disk.fail_read_after(stops.below(6)),
                }
            }
            match open(&self.disk, &self.options) {
                Ok(log) => {
                    self.disk.clear_faults();
                    self.log = log;
                    break;
                }
                Err(OpenError::Corrupt { .. }) if flipped.is_some() => {
                    self.tally.count("verdict: damage refused");
                    return Ok(false);
                }
                Err(error) if error.is_retryable() && attempt < OPENINGS => {
                    let stopped = self.disk.has_stopped();
                    self.tally.count(if stopped { "stopped: opening" } else { "fault: read error" });
                    let again = if stops.below(2) == 0 { End::Power } else { End::Kill };
                    ends_by_power |= again == End::Power;
                    tried_again = true;
                    self.disk = self.end_life(again);
                }
                Err(error) => return Err(format!("the log does not open: {error}")),
            }
        }
        self.check(ends_by_power, tried_again, flipped)?;
        Ok(true)
    }

    fn end_life(&mut self, end: End) -> SimDisk {
        match end {
            End::Power => {
                self.tally.count("end: power loss");
                self.disk.crash()
            }
            End::Kill => {
                self.tally.count("end: kill");
                self.disk.kill()
            }
        }
    }

    fn note_life(&mut self) {
        let stats = self.log.wal.stats();
        self.tally.add("log: segments begun", stats.segments_begun);
        self.tally.add("log: segments recycled", stats.segments_recycled);
        if self.disk.has_stopped() {
            self.tally.count("stopped: running");
        } else if self.log.wal.stopped().is_some() && !self.closed {
            self.tally.count("log: poisoned");
        }
    }

    /// Flips a random bit of a random segment.
    fn flip_a_bit(&mut self, rng: &Rng) -> Result<Option<Flip>, Failure> {
        let files = self.disk.list(Path::new(DIR)).map_err(text)?;
        let segments: Vec<(u32, PathBuf, u64)> = files
            .into_iter()
            .filter_map(|item| {
                let segment = item.name.strip_suffix(".wal")?.parse().ok()?;
                Some((segment, Path::new(DIR).join(item.name), item.len))
            })
            .collect();
        let Some((segment, path, len)) = segments.get(rng.below(segments.len() as u64) as usize) else {
            return Ok(None);
        };
        let offset = rng.below(*len / 4096 + 1) * 4096 + rng.below(if rng.below(2) == 0 { 200 } else { 4096 });
        if offset >= *len {
            return Ok(None);
        }
        self.disk.flip_bit(path, offset, rng.below(8) as u32).map_err(text)?;
        self.tally.count("fault: bit flip");
        Ok(Some(Flip { segment: *segment, offset }))
    }

    /// Checks the recovered log against the model.
    fn check(&mut self, power: bool, tried_again: bool, flip: Option<Flip>) -> Result<(), Failure> {
        let recovery = &self.log.recovery;
        let acks = self.acks();
        let safe = if power { acks.power } else { acks.process };
        let found = contents(&self.log.wal)?;
        let kept = match self.model.explain(safe, &found) {
            Some(kept) => kept,
            None => self.explain_damage(power, flip, &found).ok_or_else(|| {
                format!(
                    "no {safe} or more records explain the recovered {found:?}: {:?} {flip:?} {:?}",
                    self.model, self.runs
                )
            })?,
        };
        let submitted = self.model.len();
        let all_kept = self.model.explain(submitted, &found).is_some();
        self.tally.count(match kept {
            _ if flip.is_some() && kept < safe => "verdict: last frame damaged",
            _ if flip.is_some() => "verdict: damage harmless",
            _ if all_kept => "verdict: all kept",
            _ if kept == safe => "verdict: unacknowledged lost",
            _ => "verdict: unacknowledged partly kept",
        });
        if recovery.cut.is_some() {
            self.tally.count("verdict: torn tail cut");
        }
        if kept < acks.process && flip.is_none() {
            self.tally.count("verdict: os entries lost with power");
        }
        self.check_restart(power, tried_again, all_kept, flip)?;
        for (group, _) in GROUPS {
            let index = |id: Option<LogId>| id.map(|id| id.index);
            let committed = index(self.log.wal.committed(group));
            let saved = index(self.model.committed.get(&group).copied());
            if committed > saved || committed > index(self.log.wal.last_log_id(group)) {
                return Err(format!(
                    "committed id {committed:?} of {group:?} is beyond the end, or beyond the saved {saved:?}"
                ));
            }
        }
        self.model.restart(found);
        (self.acks, self.runs, self.closed, self.durable) = (Arc::default(), Vec::new(), false, 0);
        Ok(())
    }

    /// The number of records left after damage to the frames of the last sync. This is the one permitted loss: if
    /// everything after these frames was lost, nothing shows that they had been synced.
    fn explain_damage(&self, power: bool, flip: Option<Flip>, found: &Contents) -> Option<usize> {
        let flip = flip?;
        let hit = self.runs.iter().rposition(|run| run.segment == flip.segment && run.offset <= flip.offset)?;
        let last = self.runs.iter().rposition(|run| run.first_sequence <= self.durable).unwrap_or(0);
        let run = self.runs.get(hit).filter(|_| hit >= last)?;
        self.model.explain(if power { run.safe.power } else { run.safe.process }, found)
    }

    /// Checks that the opening reports correctly how the previous run ended. Failed openings may have been runs of
    /// their own, and damage to the last frame may hide a clean close.
    fn check_restart(
        &mut self,
        power: bool,
        tried_again: bool,
        all_kept: bool,
        flip: Option<Flip>,
    ) -> Result<(), Failure> {
        let accepted = !self.must_report || self.may_accept;
        let (may_be_clean, clean) = (self.closing && all_kept && accepted, self.closed && accepted);
        let reported = self.log.recovery.restart;
        let fits = match reported {
            Restart::Fresh => false,
            Restart::Clean => may_be_clean,
            Restart::ProcessOnly => accepted && (!power || may_be_clean && tried_again),
            Restart::Rebooted => self.must_report || power && (!clean || tried_again),
        };
        if reported == Restart::Rebooted {
            self.tally.count("verdict: restart reported");
        }
        if !fits && flip.is_none() {
            return Err(format!(
                "the opening reported {reported:?}, but accepted: {accepted}, closed: {}, power: {power}",
                self.closed
            ));
        }
        (self.must_report, self.may_accept, self.closing) = (reported == Restart::Rebooted, false, false);
        Ok(())
    }
}

pub fn open(disk: &SimDisk, options: &WalOptions) -> Result<Opened, OpenError> {
    let opened = Wal::open(Arc::new(disk.clone()), Path::new(DIR), options.clone())?;
    for (group, durability) in GROUPS {
        opened.wal.set_durability(group, durability);
    }
    Ok(opened)
}

/// The visible state of a log, read through its handle.
fn contents(wal: &Wal) -> Result<Contents, Failure> {
    let mut contents = Contents { identity: wal.identity(), ..Contents::default() };
    for (id, _) in GROUPS {
        let mut group = Group { floor: wal.purged(id), vote: wal.vote(id), ..Group::default() };
        let mut next = group.next();
        let last = wal.last_log_id(id);
        while last.is_some_and(|last| next <= last.index) {
            let some: Vec<(LogId, Bytes)> = wal.entries(id, next..u64::MAX, 500).map_err(text)?;
            for (at, bytes) in some {
                if group.entries.is_empty() {
                    next = at.index;
                }
                if at.index != next || wal.log_id_at(id, next) != Some(at) {
                    return Err(format!("entry {next} of {id:?} is {at:?}"));
                }
                group.entries.insert(at.index, (at, bytes));
                next += 1;
            }
        }
        if group.last() != last {
            return Err(format!("{id:?} ends with {:?}, but its last log id is {last:?}", group.last()));
        }
        contents.groups.insert(id, group);
    }
    Ok(contents)
}

fn text(error: impl std::fmt::Display) -> Failure {
    error.to_string()
}
