//! The follower of a database, shared by what looks at the database and what archives it.
//!
//! Invariants:
//! - One piece of work at a time uses the follower. It runs on a thread where it may block.
//! - Work that nobody waits for any more is done nevertheless, and loses nothing.
//! - After the [end](Following::end), nothing is begun, and no file of the database is open: closing one later would
//!   drop the locks of the next follower.
//! - A follower of a file that has lost its name is dropped, and the next piece of work begins another one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::{Env, Instant, lock, sleep};
use tokio::sync::Semaphore;

use crate::error::ReplicateError;
use crate::follower::Follower;

/// How many databases one process looks at at once: each takes a thread for the time.
const LOOKS_MAX: usize = 4;

/// How many databases one process archives at once: each may hold a file of 128 MiB in memory.
const UPLOADS_MAX: usize = 16;

/// How long the end waits for a boundary that is still being read although nobody needs it, and the pause in between.
const END_MAX: Duration = Duration::from_secs(10);
const END_PAUSE: Duration = Duration::from_millis(2);

/// The turns that all databases of a process take. Clones share them.
#[derive(Clone, Debug)]
pub struct Turns {
    looks: Arc<Semaphore>,
    /// Those to use the store.
    pub(crate) uploads: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { looks: Arc::new(Semaphore::new(LOOKS_MAX)), uploads: Arc::new(Semaphore::new(UPLOADS_MAX)) }
    }
}

/// The follower of a database. Clones share it.
#[derive(Clone)]
pub struct Following {
    env: Env,
    database: PathBuf,
    turns: Turns,
    place: Arc<Mutex<Place>>,
}

#[derive(Default)]
struct Place {
    /// `None` before it has begun.
    follower: Option<Follower>,
    has_begun: bool,
    has_ended: bool,
}

impl Following {
    pub fn new(env: &Env, database: PathBuf, turns: Turns) -> Self {
        Self { env: env.clone(), database, turns, place: Arc::default() }
    }

    /// Lets the follower work, and begins one if there is none.
    ///
    /// # Errors
    ///
    /// Also returns [`ReplicateError::Gone`] if there is no longer a database.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Follower) -> Result<T, ReplicateError> + Send + 'static,
    ) -> Result<T, ReplicateError> {
        let turn = Arc::clone(&self.turns.looks).acquire_owned().await.map_err(|_| ReplicateError::Closed)?;
        let (env, database, place) = (self.env.clone(), self.database.clone(), Arc::clone(&self.place));
        let done = self.env.blocking(move || {
            let _turn = turn;
            lock(&place).with(&env, &database, work)
        });
        done.await.ok_or(ReplicateError::Closed)?
    }

    /// Waits until nothing uses the follower any more, and ends it.
    pub async fn end(&self) {
        let begun = Instant::now();
        loop {
            let place = Arc::clone(&self.place);
            // Others may work with it, and its connections are closed, so this may block.
            let is_ended = self.env.blocking(move || lock(&place).end()).await;
            if is_ended.unwrap_or(true) || begun.elapsed() >= END_MAX {
                return;
            }
            sleep(END_PAUSE).await;
        }
    }
}

impl Place {
    fn with<T>(
        &mut self,
        env: &Env,
        database: &Path,
        work: impl FnOnce(&mut Follower) -> Result<T, ReplicateError>,
    ) -> Result<T, ReplicateError> {
        if self.has_ended {
            return Err(ReplicateError::Closed);
        }
        let begun = match self.follower.take() {
            Some(follower) => Ok(follower),
            None => Follower::begin(env, database),
        };
        let result = begun.and_then(|mut follower| {
            self.has_begun = true;
            let result = work(&mut follower);
            // Nobody wants an archive of a file without a name.
            let is_nameless = matches!(&result, Err(error) if is_replaced(error) || is_missing(error));
            self.follower = (!is_nameless).then_some(follower);
            result
        });
        result.map_err(|error| if self.has_begun && is_missing(&error) { ReplicateError::Gone } else { error })
    }

    /// Ends the follower, and returns whether it is gone: not while a boundary is read.
    fn end(&mut self) -> bool {
        self.has_ended = true;
        self.follower = self.follower.take().filter(Follower::is_read);
        self.follower.is_none()
    }
}

fn is_replaced(error: &ReplicateError) -> bool {
    matches!(error, ReplicateError::Replaced)
}

fn is_missing(error: &ReplicateError) -> bool {
    matches!(error, ReplicateError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
