//! Follows a database that other processes write, and says which pages have changed from boundary to boundary.
//!
//! # How it works
//!
//! SQLite appends what commits change to the `-wal`, copies it into the main file (a checkpoint), and begins the `-wal`
//! anew when all of it is copied (a restart). Who wants to know which pages have changed must have read every frame
//! before a restart takes it away. So a [`Follower`] always holds a read transaction. Now and then it **advances**: it
//! opens a second read transaction, notes the pages of all frames that it has not seen, and only then ends the first.
//!
//! Why no frame is missed. A read transaction has one of two kinds of marks:
//!
//! - A mark above 0 keeps everybody from restarting the `-wal`, because a restart needs the locks of all these marks.
//! - Mark 0 is given if all frames were copied at that moment. It keeps everybody from copying, because a checkpoint
//!   needs its lock. A restart is possible as long as all frames are copied: so only before anything is appended, and
//!   at most once, because nothing of what is appended afterwards is copied.
//!
//! So while a transaction is held there is at most one restart, and only if all frames of the `-wal` were copied, and
//! hence noted, when the follower advanced last. Then the header of the `-wal` is another one, and what has happened is
//! in the new `-wal` from its first frame on. If the header is another one although frames were not copied, somebody
//! has broken the rules of SQLite's locks; then the next boundary says that [any page](Changed::All) may have changed.
//!
//! What a page is at a boundary. SQLite says how many frames there are, L, and how many of them are copied, C. A page
//! is in its last frame up to L if that is after C, and otherwise in the main file. This remains true as long as the
//! read transaction is held: it was opened before L was asked for, so no checkpoint copies frames after L. Frames up
//! to C may be gone after a restart, but are not needed. C must be the one at the moment of L: a later checkpoint may
//! belong to a smaller database and leave out pages beyond its end, although it counts their frames as copied. So the
//! follower asks until C and the header stay the same.
//!
//! # Invariants
//!
//! - Once it has begun, a read transaction is held until the last boundary and the follower are gone.
//! - The number of a page that a commit has changed is in the next boundary, and in all later ones until one is kept.
//! - Nothing is ever written to the database, except that SQLite copies frames into the main file.
//! - In this process the main file is opened once, before the first connection, and closed after the last: closing
//!   another handle of it would drop SQLite's POSIX locks. So no other code of the process may open the database.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use quorate_archive::{Changed, PageSource};
use quorate_env::disk::{File, OpenMode};
use quorate_env::{Env, lock};

use crate::boundary::Boundary;
use crate::connections::{Checkpointed, Connections, Hold, Sample};
use crate::error::ReplicateError;
use crate::place;
use crate::wal::{Header, Position};

/// How often the state of the `-wal` is asked for until it stays the same for a moment.
const SAMPLES_MAX: usize = 20;

/// The frames that may be copied while the application can't write. If there are more, the checkpoint waits for a
/// quieter moment.
const LOCKED_FRAMES_MAX: u32 = 4096;

/// Follows one database. Its methods block.
pub struct Follower {
    env: Env,
    path: PathBuf,
    /// What distinguishes the file from another one that is put in its place.
    identity: Option<(u64, u64)>,
    inner: Arc<Inner>,
    seen: Seen,
    restarts: u64,
    losses: u64,
}

/// What a boundary needs as long as it exists. The connections are closed before the file.
pub struct Inner {
    connections: Mutex<Connections>,
    pub progress: Mutex<Progress>,
    pub wal: Arc<dyn File>,
    pub main: Arc<dyn File>,
}

/// The `-wal` as the follower saw it last.
#[derive(Default)]
struct Seen {
    /// How far it was read; `None` if it was empty.
    position: Option<Position>,
    /// Whether all frames were copied into the main file.
    is_copied: bool,
    /// The last frame of each page, by the number of the page.
    frames: Arc<HashMap<u32, u32>>,
    copied: u32,
    page_size: u32,
    pages: u32,
}

/// What has changed since the last boundary that was kept.
#[derive(Debug, Default)]
pub struct Progress {
    /// The pages with frames.
    changed: BTreeSet<u32>,
    /// The smallest size of the database, in pages.
    smallest: Option<u32>,
    /// The size in the last kept boundary; `None` if any page may differ from the archive.
    kept: Option<u32>,
    /// Whether frames were seen since.
    is_touched: bool,
}

/// What a follower has seen happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often SQLite has begun the `-wal` anew.
    pub restarts: u64,
    /// How often the follower has lost track, so that all pages had to be compared.
    pub losses: u64,
}

impl Follower {
    /// Begins to follow a database, which must exist. Switches it to WAL mode if it is in another one.
    ///
    /// # Errors
    ///
    /// Returns [`ReplicateError::NotWal`] if SQLite refuses the mode.
    pub fn begin(env: &Env, path: &Path) -> Result<Self, ReplicateError> {
        let open = |path: &Path| env.disk().open(path, OpenMode::Read);
        let identity = identity(env, path)?;
        let main = open(path).map_err(ReplicateError::io("open the database"))?;
        let mut connections = Connections::open(path)?;
        connections.hold(Hold::Read)?;
        let wal = open(&wal_path(path)).map_err(ReplicateError::io("open the -wal"))?;
        let inner = Inner { connections: Mutex::new(connections), progress: Mutex::default(), wal, main };
        let mut follower = Self {
            env: env.clone(),
            path: path.to_owned(),
            identity,
            inner: Arc::new(inner),
            seen: Seen::default(),
            restarts: 0,
            losses: 0,
        };
        follower.look()?;
        Ok(follower)
    }

    /// Returns how many bytes of pages, at most, have changed since the last boundary that was kept; `None` if nothing
    /// has. Costs a few microseconds.
    ///
    /// # Errors
    ///
    /// Returns [`ReplicateError::Replaced`] if another file has got the name of the database. Then begin anew.
    pub fn news(&mut self) -> Result<Option<u64>, ReplicateError> {
        if identity(&self.env, &self.path)? != self.identity {
            return Err(ReplicateError::Replaced);
        }
        let sample = self.sample()?;
        let position = self.seen.position.as_ref();
        let is_same = sample.header.as_ref() == position.map(Position::header);
        let seen = position.filter(|_| is_same).map_or(0, Position::frames);
        let has_unseen = sample.frames > 0 && !(is_same && sample.frames == seen);
        let noted = lock(&self.inner.progress).noted(self.seen.pages);
        if noted.is_none() && !has_unseen {
            return Ok(None);
        }
        let pages = u64::from(sample.frames.saturating_sub(seen)).saturating_add(noted.unwrap_or(0));
        Ok(Some(pages.saturating_mul(self.seen.page_size.into())))
    }

    /// Takes a boundary after the last commit. `index` is its number in the archive. Returns `None` if the database has
    /// no page yet.
    ///
    /// # Errors
    ///
    /// Returns [`ReplicateError::Busy`] while the boundary before exists.
    pub fn boundary(&mut self, index: u64) -> Result<Option<Box<dyn PageSource>>, ReplicateError> {
        self.advance(Hold::Read)?;
        let time = place::millis(&self.env);
        let Seen { frames, copied, page_size, pages, .. } = &self.seen;
        let changed = lock(&self.inner.progress).changed(*page_size, *pages);
        let boundary = Boundary {
            index,
            time,
            page_size: *page_size,
            pages: *pages,
            changed,
            frames: Arc::clone(frames),
            copied: *copied,
            inner: Arc::clone(&self.inner),
        };
        Ok((*pages > 0).then(|| Box::new(boundary) as Box<dyn PageSource>))
    }

    /// Returns how many frames the `-wal` has, and how many of them are not copied into the main file.
    pub fn wal_frames(&mut self) -> Result<(u32, u32), ReplicateError> {
        let Sample { frames, copied, .. } = self.sample()?;
        Ok((frames, frames.saturating_sub(copied)))
    }

    /// Lets somebody else begin the `-wal` anew, if all of its frames are copied. Otherwise a checkpoint of the
    /// application in the modes `RESTART` and `TRUNCATE` would wait for the follower, and writers for that checkpoint.
    pub fn let_restart(&mut self) -> Result<(), ReplicateError> {
        let Sample { frames, copied, .. } = self.sample()?;
        if frames > 0 && copied >= frames && !self.seen.is_copied {
            self.advance(Hold::Read)?;
        }
        Ok(())
    }

    /// Copies frames of the `-wal` into the main file, beside the application's writes. Returns whether that was
    /// possible: not if others make a checkpoint.
    pub fn copy(&mut self) -> Result<bool, ReplicateError> {
        self.advance(Hold::Read)?;
        Ok(lock(&self.inner.connections).checkpoint()? != Checkpointed::Busy)
    }

    /// Copies the rest while the application's writes have to wait, so that the next commit begins the `-wal` anew.
    /// Returns whether all frames are copied: not if others read older states, or write at this moment.
    pub fn copy_rest(&mut self) -> Result<bool, ReplicateError> {
        if !self.advance(Hold::Write)? {
            return Ok(false);
        }
        let locked = self.checkpoint_locked();
        self.unlock()?;
        locked?;
        Ok(self.seen.is_copied)
    }

    fn checkpoint_locked(&mut self) -> Result<(), ReplicateError> {
        let frames = self.seen.position.as_ref().map_or(0, Position::frames);
        if frames.saturating_sub(self.seen.copied) <= LOCKED_FRAMES_MAX {
            lock(&self.inner.connections).checkpoint()?;
        }
        Ok(())
    }

    /// Returns what has happened so far.
    pub fn counts(&self) -> Counts {
        Counts { restarts: self.restarts, losses: self.losses }
    }

    /// Whether a boundary is being read.
    pub(crate) fn is_read(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Opens the next transaction, notes what has been written, and ends the transaction before. Returns whether there
    /// is a new one: not if somebody else writes and `hold` wants to.
    fn advance(&mut self, hold: Hold) -> Result<bool, ReplicateError> {
        if self.is_read() {
            return Err(ReplicateError::Busy);
        }
        if !lock(&self.inner.connections).hold(hold)? {
            return Ok(false);
        }
        let looked = self.look();
        let mut connections = lock(&self.inner.connections);
        match looked {
            Ok(()) => connections.release_older(),
            // What was not noted must stay.
            Err(_) => connections.release_newest(),
        }
        looked.map(|()| true)
    }

    /// Ends the transaction that keeps the application from writing, after the next one is open.
    fn unlock(&mut self) -> Result<(), ReplicateError> {
        let advanced = self.advance(Hold::Read);
        if advanced.is_err() {
            // The application must go on. So nothing is held for a moment, and anything may happen in it.
            lock(&self.inner.connections).release_newest();
            self.lose_track();
        }
        advanced.map(drop)
    }

    fn lose_track(&mut self) {
        *lock(&self.inner.progress) = Progress::default();
        self.losses = self.losses.saturating_add(1);
    }

    /// Notes all frames that were written since the last time.
    fn look(&mut self) -> Result<(), ReplicateError> {
        let sample = self.sample()?;
        let is_first = self.seen.page_size == 0;
        // Without frames, the `-wal` is empty, or its header is going to be replaced.
        let header = sample.header.filter(|_| sample.frames > 0);
        let before = self.seen.position.take();
        let was_begun = before.is_some();
        let is_copied = !was_begun || self.seen.is_copied;
        let is_same = |before: &Position| Some(before.header()) == header.as_ref() && before.frames() <= sample.frames;
        if let Some(before) = before.filter(is_same) {
            return self.note(&sample, Some(before));
        }
        self.restarts = self.restarts.saturating_add(u64::from(was_begun));
        self.seen.frames = Arc::default();
        if !is_first && !is_copied {
            self.lose_track();
        }
        let start = header.map(Position::start).transpose().map_err(ReplicateError::io("read the -wal"))?;
        self.note(&sample, start)
    }

    /// Reads the frames of a sample from a position on, and notes their pages.
    fn note(&mut self, sample: &Sample, position: Option<Position>) -> Result<(), ReplicateError> {
        let Some(mut position) = position else {
            let (page_size, pages) = lock(&self.inner.connections).size()?;
            self.seen = Seen { is_copied: true, page_size, pages, ..Seen::default() };
            return Ok(());
        };
        let Seen { frames, pages, .. } = &mut self.seen;
        let frames = Arc::make_mut(frames);
        let mut progress = lock(&self.inner.progress);
        let noted = position.read_on(&*self.inner.wal, sample.frames, |frame| {
            frames.insert(frame.page, frame.number);
            progress.add(frame.page, frame.commit);
            if frame.commit > 0 {
                *pages = frame.commit;
            }
        });
        drop(progress);
        if let Err(error) = noted {
            self.lose_track();
            return Err(ReplicateError::io("read the -wal")(error));
        }
        self.seen.copied = sample.copied;
        self.seen.is_copied = sample.copied >= sample.frames;
        self.seen.page_size = position.header().page_size();
        self.seen.position = Some(position);
        Ok(())
    }

    /// Asks SQLite for the state of the `-wal`.
    fn sample(&mut self) -> Result<Sample, ReplicateError> {
        let connections = lock(&self.inner.connections);
        let mut before = None;
        for _ in 0..SAMPLES_MAX {
            let (frames, copied) = connections.frames()?;
            let header = Header::read(&*self.inner.wal).map_err(ReplicateError::io("read the -wal"))?;
            let sample = Sample { frames, copied, header };
            if before.is_some_and(|(copied, header)| (copied, header) == (sample.copied, sample.header)) {
                return Ok(sample);
            }
            before = Some((sample.copied, sample.header));
        }
        Err(ReplicateError::Unsteady)
    }
}

impl Progress {
    /// Returns how many pages of a database of this size may have changed; `None` if none has.
    fn noted(&self, pages: u32) -> Option<u64> {
        match self.kept {
            None => Some(pages.into()),
            Some(_) => self.is_touched.then(|| u64::try_from(self.changed.len()).unwrap_or(u64::MAX)),
        }
    }

    fn add(&mut self, page: u32, commit: u32) {
        self.changed.insert(page);
        self.is_touched = true;
        if commit > 0 {
            self.smallest = Some(self.smallest.map_or(commit, |smallest| smallest.min(commit)));
        }
    }

    /// Returns the pages that may differ from the last kept boundary, if the database has this size now.
    fn changed(&self, page_size: u32, pages: u32) -> Changed {
        let Some(kept) = self.kept else { return Changed::All };
        let lock_page = lock_page(page_size);
        // A page that was never written has no frame, and neither has one that is there again after the database was
        // smaller.
        let same = self.smallest.map_or(kept, |smallest| smallest.min(kept)).min(pages);
        let written = self.changed.range(..=same).copied();
        let grown = same.saturating_add(1)..=pages;
        Changed::Pages(written.chain(grown).filter(|number| *number != lock_page).collect())
    }

    /// Records that a boundary with everything so far is stored.
    pub fn keep(&mut self, pages: u32) {
        *self = Self { kept: Some(pages), ..Self::default() };
    }
}

fn identity(env: &Env, path: &Path) -> Result<Option<(u64, u64)>, ReplicateError> {
    env.disk().identity(path).map_err(ReplicateError::io("look at the database"))
}

/// The path of the `-wal` of a database.
fn wal_path(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    wal.into()
}

/// The number of the page that SQLite never uses, if the database is that large.
fn lock_page(page_size: u32) -> u32 {
    0x4000_0000_u32.checked_div(page_size).unwrap_or(u32::MAX).saturating_add(1)
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower")
            .field("pages", &self.seen.pages)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
