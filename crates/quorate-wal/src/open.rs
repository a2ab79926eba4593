//! Opening of a log.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::disk::{Disk, make_dir};
use quorate_model::{GroupId, LogId};

use crate::error::OpenError;
use crate::handle::Wal;
use crate::keeper::SegmentKeeper;
use crate::options::WalOptions;
use crate::recovery;
use crate::recovery::reopen::{cut_unused, reopen};
use crate::shared::{Shared, State};
use crate::writer::WalWriter;

/// An open log: the handle, its two active parts, and what was found.
#[derive(Debug)]
pub struct Opened {
    /// The handle.
    pub wal: Wal,
    /// Writes. Nothing completes until it runs.
    pub writer: WalWriter,
    /// Takes care of files. Without it the log works, but makes its segments on the spot and frees no space.
    pub keeper: SegmentKeeper,
    /// What was found.
    pub recovery: Recovery,
}

/// How the former life of a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// There was none.
    Fresh,
    /// By [`Wal::close_clean`].
    Clean,
    /// By the end of the process; the machine ran on.
    ProcessOnly,
    /// The machine was restarted, or it can't be told: what was not synced may be lost.
    Rebooted,
}

/// What was found when a log was opened. All of it is durable now.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// How the former life ended.
    pub restart: Restart,
    /// The node's identity.
    pub identity: Option<Bytes>,
    /// What was found of each group.
    pub groups: BTreeMap<GroupId, GroupRecovery>,
    /// The segment and the offset where a torn tail was cut, if there was one. Nothing in it was acknowledged.
    pub cut: Option<(PathBuf, u64)>,
    /// Segments read.
    pub segments: usize,
    /// Bytes of headers and frames read.
    pub bytes_read: u64,
}

/// What was found of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRecovery {
    /// The last purged id.
    pub purged: Option<LogId>,
    /// The last id, purged or not.
    pub last: Option<LogId>,
    /// The last vote.
    pub vote: Option<Bytes>,
    /// Up to where the group was known to be committed; may be out of date.
    pub committed: Option<LogId>,
}

impl Recovery {
    /// Whether entries of groups with [`Durability::Os`](crate::Durability::Os) that were acknowledged may be lost. It
    /// stays so through all openings until [`Wal::accept_reboot`].
    pub fn may_have_lost(&self) -> bool {
        self.restart == Restart::Rebooted
    }
}

impl Wal {
    /// Opens the log in `dir`, which is made if it does not exist (its parent must) and must hold nothing else.
    ///
    /// Blocks for the reading of the whole log and a few syncs. After [`OpenError::Corrupt`] nothing was changed that
    /// another opening would judge differently.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: WalOptions) -> Result<Opened, OpenError> {
        let options = options.bounded();
        make_dir(&*disk, dir).map_err(OpenError::io("create", dir))?;
        let lock = disk.lock_dir(dir).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::Busy { dir: dir.to_path_buf() },
            _ => OpenError::io("lock", dir)(error),
        })?;
        // A name that is only in memory must not be built upon.
        disk.sync_dir(dir).map_err(OpenError::io("sync", dir))?;

        let boot = Bytes::from(disk.boot_id().unwrap_or_default());
        let found = recovery::read_dir(&*disk, dir, options.segment_bytes)?;
        let mut replay = found.replay;
        let segments = replay.segments.len();
        let (start, restart) = reopen(&*disk, dir, &options, &boot, &mut replay, found.useless)?;
        cut_unused(&mut replay, &found.segments)?;
        let groups = replay.groups.iter().map(|(id, group)| {
            let state = group.state.clone();
            let (purged, last, committed) = (state.floor, state.last, state.committed);
            (*id, GroupRecovery { purged, last, vote: state.vote, committed })
        });
        let recovery = Recovery {
            restart,
            identity: replay.logged.identity.clone(),
            groups: groups.collect(),
            cut: found.cut,
            segments,
            bytes_read: found.bytes_read,
        };
        let floors = recovery.groups.iter().filter_map(|(id, group)| Some((*id, group.purged?.index)));
        let state = State {
            durable_floors: floors.collect(),
            groups: replay.groups,
            identity: recovery.identity.clone(),
            boot,
            rebooted: recovery.may_have_lost(),
            segments: replay.segments,
            spares: found.spares,
            sequence: start.sequence,
            durable: start.sequence,
            last_frame: (start.active.epoch.ordinal, start.offset),
            ..State::default()
        };
        let shared = Arc::new(Shared::new(disk, dir.to_path_buf(), options, lock, state));
        shared.keeper_bell.wake();
        let writer = WalWriter::new(Arc::clone(&shared), start);
        let keeper = SegmentKeeper::new(Arc::clone(&shared), found.next_spare);
        Ok(Opened { wal: Wal(shared), writer, keeper, recovery })
    }
}
