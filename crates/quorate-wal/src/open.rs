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

/// An open log: the handle, its two workers, and the result of recovery.
#[derive(Debug)]
pub struct Opened {
    /// The handle.
    pub wal: Wal,
    /// The writer. Nothing completes until it runs.
    pub writer: WalWriter,
    /// The keeper of the files. The log works without it, but the writer then makes each segment when it is needed, and
    /// no space is freed.
    pub keeper: SegmentKeeper,
    /// The result of recovery.
    pub recovery: Recovery,
}

/// How the previous run of a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// There was no previous run.
    Fresh,
    /// The log was closed by [`Wal::close_clean`].
    Clean,
    /// The process ended without closing the log; the machine was not restarted.
    ProcessOnly,
    /// The machine was restarted, or this can't be determined: unsynced records may be lost.
    Rebooted,
}

/// The result of recovery when a log is opened. Everything in it is durable.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// How the previous run ended.
    pub restart: Restart,
    /// The node's identity.
    pub identity: Option<Bytes>,
    /// The recovered state of each group.
    pub groups: BTreeMap<GroupId, GroupRecovery>,
    /// The segment and the offset at which a torn tail was cut off, if there was one. Nothing in it was acknowledged.
    pub cut: Option<(PathBuf, u64)>,
    /// The number of segments read.
    pub segments: usize,
    /// The number of bytes of headers and frames read.
    pub bytes_read: u64,
}

/// The recovered state of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRecovery {
    /// The last purged id.
    pub purged: Option<LogId>,
    /// The last id, purged or not.
    pub last: Option<LogId>,
    /// The last vote.
    pub vote: Option<Bytes>,
    /// The last recorded committed id; may be out of date.
    pub committed: Option<LogId>,
}

impl Recovery {
    /// Whether acknowledged entries of groups with [`Durability::Os`](crate::Durability::Os) may be lost. Every opening
    /// reports this until [`Wal::accept_reboot`] is called.
    pub fn may_have_lost(&self) -> bool {
        self.restart == Restart::Rebooted
    }
}

impl Wal {
    /// Opens the log in `dir`. The directory is created if it does not exist, but its parent must exist. It must hold
    /// nothing but the log.
    ///
    /// Blocks while it reads the whole log and syncs a few times. After [`OpenError::Corrupt`] another opening reaches
    /// the same result.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: WalOptions) -> Result<Opened, OpenError> {
        let options = options.bounded();
        make_dir(&*disk, dir).map_err(OpenError::io("create", dir))?;
        let lock = disk.lock_dir(dir).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::Busy { dir: dir.to_path_buf() },
            _ => OpenError::io("lock", dir)(error),
        })?;
        // A directory entry that is not yet durable must not be relied on.
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
        shared.keeper_signal.wake();
        let writer = WalWriter::new(Arc::clone(&shared), start);
        let keeper = SegmentKeeper::new(Arc::clone(&shared), found.next_spare);
        Ok(Opened { wal: Wal(shared), writer, keeper, recovery })
    }
}
