//! Scheduled backups: a running node makes one at each time of a schedule, if it leads then, and prunes old ones.
//!
//! All nodes of a cluster run the same [`Plan`]. Invariants:
//!
//! - At most one node makes the backup of a time: it creates a [`Claim`] first, which only one node can create, and
//!   then looks whether the backup is there already.
//! - A time that has passed while no node led, or while an earlier backup was being made, is left out; see
//!   [`WINDOW_MAX`].
//! - Nothing that a node does waits for a backup.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use chrono::DateTime;
use croner::Cron;
use quorate::types::ClusterId;
use quorate_env::{Cause, lock};

use crate::backups::{self, Claim, Keep, NANOS, Name, Stored, env};
use crate::crypt::Encryption;
use crate::error::Error;
use crate::store::{Location, Store};

mod run;
#[cfg(test)]
mod tests;

pub use run::run;
pub(crate) use run::{empty_dir, wait_until};

/// How long after a scheduled time its backup may begin, if no node led then or an attempt failed. It ends earlier if
/// the next time comes.
pub const WINDOW_MAX: Duration = Duration::from_secs(3_600);
/// The number of attempts of one node to make the backup of a time.
pub const ATTEMPTS_MAX: u32 = 10;

/// When to make backups: a cron expression, in UTC.
///
/// ```
/// # use quorate_backup::schedule::Schedule;
/// let nightly: Schedule = "30 2 * * *".parse()?;
/// assert_eq!(nightly.next_after(0), Some(9_000));
/// assert!("at night".parse::<Schedule>().is_err());
/// # Ok::<(), quorate_backup::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    text: String,
    cron: Cron,
}

impl Schedule {
    /// Returns the first time after `time`, both in seconds since 1970-01-01 UTC; `None` if there is none.
    pub fn next_after(&self, time: u64) -> Option<u64> {
        let after = DateTime::from_timestamp(i64::try_from(time).ok()?, 0)?;
        self.cron.find_next_occurrence(&after, false).ok()?.timestamp().try_into().ok()
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let cron = Cron::from_str(text);
        let cron = cron.map_err(|error| Error::Schedule { text: text.to_owned(), source: Cause::from(error) })?;
        Ok(Self { text: text.to_owned(), cron })
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a node is to do; the same on all nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the backups go.
    pub location: Location,
    /// The file with the credentials of the store, if there is one. It is read for each backup.
    pub credentials: Option<PathBuf>,
    /// When to make them.
    pub schedule: Schedule,
    /// Which to keep when another was made.
    pub keep: Keep,
    /// Who can read them.
    pub encryption: Encryption,
    /// A directory of this node alone, for the uncompressed copies. It is created, and emptied first.
    pub scratch: PathBuf,
}

impl Plan {
    /// Tries what the plan needs of its store: lists it, creates an object that can't be created twice, and deletes it.
    /// Returns the backups that are there. The object is the claim of no cluster; if it can't be deleted, it is deleted
    /// with the claims of nodes that were killed.
    ///
    /// # Errors
    ///
    /// Returns why backups could not be made: those of [`Store::open`] and of the requests, and [`Error::Open`] if the
    /// store creates an object twice.
    pub async fn probe(&self) -> Result<Vec<Stored>, Error> {
        let (store, env) = (self.open()?, env());
        let found = backups::list(&store).await?;
        let claim = Claim { time: env.unix_nanos() / NANOS, cluster: ClusterId(env.rng().next_u64().into()) };
        let name = claim.to_string();
        let is_new = store.put_new(&name, Bytes::new()).await?;
        let is_new_again = store.put_new(&name, Bytes::new()).await;
        store.delete(&name).await?;
        if is_new && !is_new_again? {
            return Ok(found);
        }
        let source = "it creates an object although one of the same name exists; use a store with conditional writes";
        Err(Error::Open { location: self.location.to_string(), source: source.into() })
    }

    fn open(&self) -> Result<Store, Error> {
        Store::open(&self.location, self.credentials.as_deref().map(Path::new))
    }
}

/// What a node knows of its scheduled backups, for those who watch it.
#[derive(Debug, Default)]
pub struct State(Mutex<Seen>);

/// A view of [`State`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The next scheduled time, in seconds since 1970-01-01 UTC.
    pub next: Option<u64>,
    /// The newest backup of the cluster that this node has made, or has seen in the store.
    pub last: Option<Last>,
    /// How many attempts of this node have failed.
    pub failures: u64,
    /// Why the last attempt failed; `None` after one that succeeded.
    pub error: Option<String>,
}

/// The newest backup that a node knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// Its name.
    pub name: Name,
    /// The size of the object, in bytes.
    pub bytes: u64,
}

/// A state that begins with what is known already.
impl From<Seen> for State {
    fn from(seen: Seen) -> Self {
        Self(Mutex::new(seen))
    }
}

impl State {
    /// Returns what is known now.
    pub fn seen(&self) -> Seen {
        lock(&self.0).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut lock(&self.0));
    }
}
