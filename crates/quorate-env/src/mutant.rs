//! Deliberate bugs: tests are to be believed when they have been seen to fail.
//!
//! Each is a mistake by which a database like this one loses data, at the place where it would be made. They are there
//! in builds with the feature `mutants` alone, which nobody ships, and at most one is on. `cargo xtask mutants` shows
//! that the simulator finds each of them.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The log acknowledges what it has written and not synced.
    AcknowledgedBeforeSync,
    /// The log takes a sync that failed for one that did not.
    SyncErrorIgnored,
    /// Recovery takes whatever frame it finds for the next one: those of an earlier life of a segment too.
    StaleFrameAccepted,
    /// Recovery takes a torn frame for a whole one.
    TornFrameAccepted,
    /// A segment is used again before the purge of what it holds is durable.
    SegmentReusedEarly,
    /// openraft is told that entries are in the log as soon as they are handed over.
    AppendNotAwaited,
    /// A vote is answered before it is durable.
    VoteNotAwaited,
    /// A leader that restarts leads on in its former term.
    LeaderRestored,
    /// Entries are applied before this node's own log has them.
    AppliedBeforeLogged,
    /// The log is purged up to what is applied and not yet durable.
    PurgedBeforeDurable,
    /// A linearizable read asks no majority.
    ReadWithoutQuorum,
    /// A read of bounded age takes the last round, however long ago that began.
    AgeNotChecked,
    /// A node whose disk was lost comes back with its former id.
    LostIdentityReused,
    /// A node whose log or database is damaged forgets the cluster that it belongs to.
    FoundedFromDamaged,
    /// A node that is no member yet, or has not caught up, serves reads.
    LearnerServes,
    /// A write that is tried again is a new one.
    RetryIsNew,
    /// Sessions are written behind the transaction of their entries.
    SessionsOutsideTransaction,
    /// Sessions are forgotten at a start, and when an image is installed.
    SessionsForgotten,
    /// Outcomes are not kept for retries.
    OutcomeNotKept,
    /// What a transaction has read is not looked at again before its writes are done.
    ReadChecksIgnored,
    /// What was run before it was proposed takes effect whatever came in between.
    DryRunNotChecked,
    /// What was handed on to a leader that did not answer counts as not done.
    ForwardedIsNotDone,
    /// A write in doubt whose session has ended counts as not done, and is done by the next session.
    ExpiredIsNotDone,
    /// A session that has ended begins anew with the next request.
    ExpiredIsFresh,
    /// A migration is run without another look at whether somebody has run it meanwhile.
    MigrationNotReadAgain,
    /// A snapshot is no transaction: each of its queries sees what there is.
    SnapshotNotKept,
    /// Whoever wants a lock of the database exclusively gets it although readers of the same process use it.
    ReadersNotCounted,
    /// Commands find whatever functions their node's program happens to have.
    ExtensionsOfProcess,
    /// Randomness goes on from the entry before.
    SeedCarriedOver,
    /// Deferred foreign keys are checked when the batch ends, not the entry.
    DeferredKeysAtBatch,
    /// Work that ran ahead is kept for other entries with the same indexes.
    AheadByIndex,
    /// A checkpoint says that the `-wal` is durable without a sync of it.
    CheckpointWithoutSync,
    /// Checkpoints write to the database file while an image holds it.
    CheckpointDuringHold,
    /// An image says that it stands one entry further than it does.
    ImagePositionOff,
    /// An image is taken when a checkpoint has come to its end only in part.
    ImageOfPartialCheckpoint,
    /// What was received of an image is not read again before it is put in force.
    ImageNotReadAgain,
    /// A store goes on after a sync of its database has failed, and believes the next one.
    SyncBelievedAgain,
    /// Nodes do not compare what they have done.
    OutcomesNotCompared,
    /// One node that holds something else is believed.
    OneIsBelieved,
    /// An entry that a minority of the voters can't apply is rejected.
    RejectedByMinority,
    /// An entry is rejected although a voter has applied it.
    AppliedIsRejected,
    /// A node forgets with its process which entry it has promised not to apply.
    HaltForgotten,
    /// A node that ends because it is stuck takes no note of the entry.
    StuckNotNoted,
    /// A leader takes it for granted that a voter that is away has not applied an entry.
    AbsentVoterIgnored,
    /// A node takes no note when a read finds its database damaged.
    ReadDamageIgnored,
    /// A node that has another address than before does not announce it.
    MoveNotAnnounced,
}

use Mutant::{
    AbsentVoterIgnored, AcknowledgedBeforeSync, AgeNotChecked, AheadByIndex, AppendNotAwaited, AppliedBeforeLogged,
    AppliedIsRejected, CheckpointDuringHold, CheckpointWithoutSync, DeferredKeysAtBatch, DryRunNotChecked,
    ExpiredIsFresh, ExpiredIsNotDone, ExtensionsOfProcess, ForwardedIsNotDone, FoundedFromDamaged, HaltForgotten,
    ImageNotReadAgain, ImageOfPartialCheckpoint, ImagePositionOff, LeaderRestored, LearnerServes, LostIdentityReused,
    MigrationNotReadAgain, MoveNotAnnounced, OneIsBelieved, OutcomeNotKept, OutcomesNotCompared, PurgedBeforeDurable,
    ReadChecksIgnored, ReadDamageIgnored, ReadWithoutQuorum, ReadersNotCounted, RejectedByMinority, RetryIsNew,
    SeedCarriedOver, SegmentReusedEarly, SessionsForgotten, SessionsOutsideTransaction, SnapshotNotKept,
    StaleFrameAccepted, StuckNotNoted, SyncBelievedAgain, SyncErrorIgnored, TornFrameAccepted, VoteNotAwaited,
};

impl Mutant {
    /// All.
    pub const ALL: [Self; 46] = [
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
        ReadChecksIgnored,
        DryRunNotChecked,
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
    ];

    /// The mutant of a name, as [`std::fmt::Debug`] gives it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name)
    }

    /// Whether this bug is there. Without the feature it never is.
    #[cfg(not(feature = "mutants"))]
    #[inline]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Whether this bug is there.
    #[cfg(feature = "mutants")]
    pub fn is_on(self) -> bool {
        ON.load(Ordering::Relaxed) == self as usize
    }

    /// Puts this bug, and no other, into all of the process. Without the feature nothing happens, and `false` is said.
    pub fn turn_on(self) -> bool {
        #[cfg(feature = "mutants")]
        ON.store(self as usize, Ordering::Relaxed);
        self.is_on()
    }
}

#[cfg(feature = "mutants")]
static ON: AtomicUsize = AtomicUsize::new(usize::MAX);
