//! Deliberate bugs, which show that the tests can fail.
//!
//! Each of them would make the database lose data or answer wrongly, and is in the code where such a mistake could be
//! made. They exist only in builds with the feature `mutants`, which is never shipped, and at most one is on at a time.
//! `cargo xtask mutants` shows that the simulator finds each of them.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The log acknowledges records that it has written but not synced.
    AcknowledgedBeforeSync,
    /// The log treats a failed sync as successful.
    SyncErrorIgnored,
    /// Recovery accepts any valid frame as the next one, including frames left from an earlier use of a segment's file.
    StaleFrameAccepted,
    /// Recovery accepts a torn frame as a whole one.
    TornFrameAccepted,
    /// A segment is recycled before the purge of its entries is durable.
    SegmentReusedEarly,
    /// The log store reports entries to openraft as stored as soon as they are submitted.
    AppendNotAwaited,
    /// A vote is answered before it is durable.
    VoteNotAwaited,
    /// A restarted leader continues to lead in its former term.
    LeaderRestored,
    /// Entries are applied before this node's own log has them.
    AppliedBeforeLogged,
    /// The log is purged up to the last applied entry although its effects are not yet durable.
    PurgedBeforeDurable,
    /// A linearizable read does not contact a majority.
    ReadWithoutQuorum,
    /// A read of bounded age uses the last quorum round, no matter how long ago it began.
    AgeNotChecked,
    /// A node that lost its disk comes back with its former id.
    LostIdentityReused,
    /// A node whose log or database is damaged forgets the cluster that it belongs to.
    FoundedFromDamaged,
    /// A node serves reads before it is a member or has caught up.
    LearnerServes,
    /// A retried write is applied as a new one.
    RetryIsNew,
    /// Sessions are written after the transaction of their entries, not in it.
    SessionsOutsideTransaction,
    /// Sessions are lost when a node starts and when an image is installed.
    SessionsForgotten,
    /// Outcomes are not kept for retries.
    OutcomeNotKept,
    /// The keys of requests are not remembered.
    KeyForgotten,
    /// The reads of a transaction are not checked again before its writes are applied.
    ReadChecksIgnored,
    /// A transaction that was run before it was proposed takes effect even if another entry was applied in between.
    DryRunNotChecked,
    /// A node proposes what the format level of the cluster does not allow yet.
    LevelNotChecked,
    /// A pipeline fails as a whole when a command ends its transaction.
    PipelineIsAtomic,
    /// A tick sweeps by the clock of the node that applies it, not by the stamp.
    TickReadsClock,
    /// Waiters are woken when an entry is run ahead of its commit.
    WokenBeforeCommit,
    /// A turn that a remote waiter does not use is lost.
    TurnLost,
    /// The outcome hash leaves out the replies of one family.
    FamilyNotHashed,
    /// A key expires up to a second before its time.
    ExpiredEarly,
    /// A key whose time has come is there until it is swept.
    ExpiredIsAlive,
    /// A string that is set anew keeps the expiry of the one before.
    ExpiryKept,
    /// A write to a key that exists does not raise its version.
    VersionKept,
    /// A field that is added to loses its expiry.
    FieldExpiryForgotten,
    /// A field whose time has come is there until it is swept.
    FieldIsAlive,
    /// A member that is removed from a large sorted set still counts for the ranks of those after it.
    RemovedIsRanked,
    /// The ranks of a sorted set count members that have expired and were not swept.
    ExpiredIsRanked,
    /// A pipeline that depends on the version of a key is not refused when the key has another one.
    PremiseIgnored,
    /// The commands of a pipeline after the first that fails do not run.
    PipelineStops,
    /// A change of a key wakes nobody.
    KeyNotTold,
    /// A node publishes the changes of keys of the last entry in a transaction only.
    LastChangesOnly,
    /// A batch that depends on the token of a lock is not refused when the lock is no longer held with it.
    FencingIgnored,
    /// A lock is granted to one more than it has permits.
    PermitTooMany,
    /// A grant of a lock has a lower token than the grant before it.
    TokenLowered,
    /// A lock that is given back is not granted to those who wait.
    WaitersForgotten,
    /// A lease is renewed with the token of a grant that has ended.
    StaleRenewed,
    /// Of those who wait for a lock, the one that came last gets it.
    LastIsServedFirst,
    /// A lease ends by the clock of the node that applies the entry, not by the stamp.
    LeaseByNodeClock,
    /// Of the events of a statement only the first is added.
    FirstEventOnly,
    /// The events of a statement are added in reverse order.
    EventsReversed,
    /// The events of a statement that fails are added with those of the next one.
    FailedEventsKept,
    /// A listener that resumes after an event gets that event again.
    EventHeardAgain,
    /// A listener is not told that events which it did not get are not kept any more.
    GapNotTold,
    /// A read position of `main` is taken for one of another group.
    PositionOfMain,
    /// A write forwarded to a leader that did not answer counts as not done.
    ForwardedIsNotDone,
    /// A write in doubt whose session has expired counts as not done, and is done again by the next session.
    ExpiredIsNotDone,
    /// An expired session starts again with the next request.
    ExpiredIsFresh,
    /// A migration runs without a second check of whether it has already been run.
    MigrationNotReadAgain,
    /// A snapshot is not a transaction: each of its queries sees the current state.
    SnapshotNotKept,
    /// An exclusive lock on the database is granted although readers in the same process hold it.
    ReadersNotCounted,
    /// Commands may use any function that their node's program has registered.
    ExtensionsOfProcess,
    /// The random sequence of an entry continues that of the entry before it.
    SeedCarriedOver,
    /// Deferred foreign keys are checked at the end of the batch, not of the entry.
    DeferredKeysAtBatch,
    /// Work that ran ahead of commit is used for other entries with the same indexes.
    AheadByIndex,
    /// A checkpoint reports the `-wal` as durable without syncing it.
    CheckpointWithoutSync,
    /// Checkpoints write to the database file while an image holds them back.
    CheckpointDuringHold,
    /// An image claims a position one entry beyond its actual one.
    ImagePositionOff,
    /// An image is taken although the checkpoint before it was only partly completed.
    ImageOfPartialCheckpoint,
    /// A received image is not read back and checked before it is installed.
    ImageNotReadAgain,
    /// A store continues after a failed sync of its database, and trusts the next sync.
    SyncBelievedAgain,
    /// Nodes do not compare their outcomes.
    OutcomesNotCompared,
    /// A node is set aside because a single other node has different data.
    OneIsBelieved,
    /// An entry that a minority of the voters can't apply is rejected.
    RejectedByMinority,
    /// An entry is rejected although a voter has applied it.
    AppliedIsRejected,
    /// A restart makes a node forget which entry it has promised not to apply.
    HaltForgotten,
    /// A node that stops because it is stuck does not record the entry.
    StuckNotNoted,
    /// A leader assumes that an absent voter has not applied an entry.
    AbsentVoterIgnored,
    /// A node does not record that a read found its database damaged.
    ReadDamageIgnored,
    /// A node whose address has changed does not announce the new one.
    MoveNotAnnounced,
    /// A node checks logins against the users that it had when it started.
    UsersNotPublished,
    /// A transaction that goes back to a savepoint keeps what ran after it.
    SavepointIgnored,
    /// A capture leaves out the pages by which the database has grown since the last boundary.
    GrowthPagesLeftOut,
    /// A boundary of a capture counts as captured what was committed while it was read.
    BoundaryBeforeCommit,
    /// The pages of a boundary are read without its read transaction, so checkpoints put later pages in their place.
    CheckpointBeforeCapture,
    /// The manifest of an archive is replaced whatever version is there.
    ManifestWithoutSwap,
    /// A file of an archive whose name is taken counts as the archiver's own.
    SlotTakenIsOurs,
    /// After a request that failed, the next segment of an archive begins one entry too late.
    EntryMissingBetween,
    /// Tidying up deletes the snapshot that the states within the time that is kept build on.
    ChainCutByRetention,
}

use Mutant::{
    AbsentVoterIgnored, AcknowledgedBeforeSync, AgeNotChecked, AheadByIndex, AppendNotAwaited, AppliedBeforeLogged,
    AppliedIsRejected, BoundaryBeforeCommit, ChainCutByRetention, CheckpointBeforeCapture, CheckpointDuringHold,
    CheckpointWithoutSync, DeferredKeysAtBatch, DryRunNotChecked, EntryMissingBetween, EventHeardAgain, EventsReversed,
    ExpiredEarly, ExpiredIsAlive, ExpiredIsFresh, ExpiredIsNotDone, ExpiredIsRanked, ExpiryKept, ExtensionsOfProcess,
    FailedEventsKept, FamilyNotHashed, FencingIgnored, FieldExpiryForgotten, FieldIsAlive, FirstEventOnly,
    ForwardedIsNotDone, FoundedFromDamaged, GapNotTold, GrowthPagesLeftOut, HaltForgotten, ImageNotReadAgain,
    ImageOfPartialCheckpoint, ImagePositionOff, KeyForgotten, KeyNotTold, LastChangesOnly, LastIsServedFirst,
    LeaderRestored, LearnerServes, LeaseByNodeClock, LevelNotChecked, LostIdentityReused, ManifestWithoutSwap,
    MigrationNotReadAgain, MoveNotAnnounced, OneIsBelieved, OutcomeNotKept, OutcomesNotCompared, PermitTooMany,
    PipelineIsAtomic, PipelineStops, PositionOfMain, PremiseIgnored, PurgedBeforeDurable, ReadChecksIgnored,
    ReadDamageIgnored, ReadWithoutQuorum, ReadersNotCounted, RejectedByMinority, RemovedIsRanked, RetryIsNew,
    SavepointIgnored, SeedCarriedOver, SegmentReusedEarly, SessionsForgotten, SessionsOutsideTransaction,
    SlotTakenIsOurs, SnapshotNotKept, StaleFrameAccepted, StaleRenewed, StuckNotNoted, SyncBelievedAgain,
    SyncErrorIgnored, TickReadsClock, TokenLowered, TornFrameAccepted, TurnLost, UsersNotPublished, VersionKept,
    VoteNotAwaited, WaitersForgotten, WokenBeforeCommit,
};

impl Mutant {
    /// All mutants.
    pub const ALL: [Self; 87] = [
        AcknowledgedBeforeSync,
        SyncErrorIgnored,
        StaleFrameAccepted,
        TornFrameAccepted,
        SegmentReusedEarly,
        AppendNotAwaited,
        VoteNotAwaited,
        LeaderRestored,
        AppliedBeforeLogged,
        PurgedBeforeDurable,
        ReadWithoutQuorum,
        AgeNotChecked,
        LostIdentityReused,
        FoundedFromDamaged,
        LearnerServes,
        RetryIsNew,
        SessionsOutsideTransaction,
        SessionsForgotten,
        OutcomeNotKept,
        KeyForgotten,
        ReadChecksIgnored,
        DryRunNotChecked,
        LevelNotChecked,
        PipelineIsAtomic,
        TickReadsClock,
        WokenBeforeCommit,
        TurnLost,
        FamilyNotHashed,
        ExpiredEarly,
        ExpiredIsAlive,
        ExpiryKept,
        VersionKept,
        FieldExpiryForgotten,
        FieldIsAlive,
        RemovedIsRanked,
        ExpiredIsRanked,
        PremiseIgnored,
        PipelineStops,
        KeyNotTold,
        LastChangesOnly,
        FencingIgnored,
        PermitTooMany,
        TokenLowered,
        WaitersForgotten,
        StaleRenewed,
        LastIsServedFirst,
        LeaseByNodeClock,
        FirstEventOnly,
        EventsReversed,
        FailedEventsKept,
        EventHeardAgain,
        GapNotTold,
        PositionOfMain,
        ForwardedIsNotDone,
        ExpiredIsNotDone,
        ExpiredIsFresh,
        MigrationNotReadAgain,
        SnapshotNotKept,
        ReadersNotCounted,
        ExtensionsOfProcess,
        SeedCarriedOver,
        DeferredKeysAtBatch,
        AheadByIndex,
        CheckpointWithoutSync,
        CheckpointDuringHold,
        ImagePositionOff,
        ImageOfPartialCheckpoint,
        ImageNotReadAgain,
        SyncBelievedAgain,
        OutcomesNotCompared,
        OneIsBelieved,
        RejectedByMinority,
        AppliedIsRejected,
        HaltForgotten,
        StuckNotNoted,
        AbsentVoterIgnored,
        ReadDamageIgnored,
        MoveNotAnnounced,
        UsersNotPublished,
        SavepointIgnored,
        GrowthPagesLeftOut,
        BoundaryBeforeCommit,
        CheckpointBeforeCapture,
        ManifestWithoutSwap,
        SlotTakenIsOurs,
        EntryMissingBetween,
        ChainCutByRetention,
    ];

    /// The mutant with this name, as [`std::fmt::Debug`] prints it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name)
    }

    /// Whether this bug is on. Always false without the feature.
    #[cfg(not(feature = "mutants"))]
    #[inline]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Whether this bug is on.
    #[cfg(feature = "mutants")]
    pub fn is_on(self) -> bool {
        ON.load(Ordering::Relaxed) == self as usize
    }

    /// Turns on this bug, and no other, in the whole process. Without the feature this does nothing and returns
    /// `false`.
    pub fn turn_on(self) -> bool {
        #[cfg(feature = "mutants")]
        ON.store(self as usize, Ordering::Relaxed);
        self.is_on()
    }
}

#[cfg(feature = "mutants")]
static ON: AtomicUsize = AtomicUsize::new(usize::MAX);
