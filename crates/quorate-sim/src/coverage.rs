//! Counts how often each class of fault struck, and in which phases the struck nodes were.
//!
//! A fault that never happens proves nothing. So a run of many seeds fails if a class of fault never struck.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::atlas::classes;

/// What a node was doing when a fault struck it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It was the leader.
    Leads,
    /// It had just been elected: no entry of its term was known to be committed.
    Elected,
    /// No node led.
    NoLeader,
    /// It was starting: it was recovering its log, or joining the cluster.
    Starts,
    /// Its log held unsynced data: an append had begun and was not complete.
    Append,
    /// It was applying entries.
    Apply,
    /// It had run entries ahead of their commit, in an open transaction.
    Ahead,
    /// It had stopped before an entry that it, or another node, could not apply.
    Blocked,
    /// A checkpoint had written to the database file and had not synced it yet.
    Checkpoint,
    /// It was sending an image.
    SendsImage,
    /// It was receiving or installing an image.
    GetsImage,
}

impl Phase {
    const ALL: [Self; 11] = [
        Self::Leads,
        Self::Elected,
        Self::NoLeader,
        Self::Starts,
        Self::Append,
        Self::Apply,
        Self::Ahead,
        Self::Blocked,
        Self::Checkpoint,
        Self::SendsImage,
        Self::GetsImage,
    ];

    /// Whether only a node that lost data, or the node that sends it an image, can be in this phase.
    pub fn is_of_images(self) -> bool {
        matches!(self, Self::SendsImage | Self::GetsImage)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Leads => "leads",
            Self::Elected => "elected",
            Self::NoLeader => "no leader",
            Self::Starts => "starts",
            Self::Append => "append",
            Self::Apply => "apply",
            Self::Ahead => "ahead",
            Self::Blocked => "blocked",
            Self::Checkpoint => "checkpoint",
            Self::SendsImage => "sends image",
            Self::GetsImage => "gets image",
        }
    }
}

/// What happened in one or more seeds, and how often.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// How often each class of fault struck.
    faults: BTreeMap<&'static str, u64>,
    /// How often each class struck a node in each phase.
    met: BTreeMap<(&'static str, Phase), u64>,
    /// How often each of [`HAPPENINGS`] happened.
    happened: BTreeMap<&'static str, u64>,
}

/// What a run of many seeds must have met in addition to faults.
const HAPPENINGS: [&str; 64] = [
    WORK_RIGHT,
    WORK_WRONG,
    TRANSACTION,
    RERUN,
    CONFLICT,
    PIPELINE,
    PIPELINE_ENDED,
    KEYS,
    CELL_EXEC,
    CELL_CONFLICT,
    CELL_EXPIRED,
    CELL_READ,
    KEY_AWAITED,
    KEY_WATCHED,
    CHANGES_NOTICED,
    HASH,
    FIELD_EXPIRED,
    MEMBER_EXPIRED,
    SORTED_SET,
    COLLECTION_READ,
    LOCK_HELD,
    LOCK_TIMED_OUT,
    FENCED,
    RENEWED_LATE,
    EVENTS,
    LISTENER,
    LISTENER_GAP,
    INTERACTIVE,
    ABORTED,
    ROLLED_BACK,
    UNDONE,
    HEALED,
    DAMAGE_READ,
    EXPIRED,
    EXPIRED_RETRY,
    ENDED,
    DROPPED,
    DOUBT_ENDED,
    SENT_AGAIN,
    OVERLOADED,
    SNAPSHOT,
    MIGRATION,
    UPKEEP,
    VACUUM,
    SCHEMA,
    EXTENDED,
    NOT_EXTENDED,
    TICKED,
    NOT_TICKED,
    APPOINTED,
    NOT_APPOINTED,
    AILED,
    REJECTED,
    ITEM_TAKEN,
    TOKEN_ACCEPTED,
    TOKEN_REFUSED,
    ITEM_EXPIRED,
    ITEM_WAITED,
    TURN_PASSED,
    LED_APART,
    RESTORED,
    ARCHIVER_CHANGED,
    GENERATION,
    ARCHIVE_MERGED,
];

/// Statements that some nodes could not apply: those that took effect, and those that the cluster rejected.
pub const AILED: &str = "entry that ailed and stayed";
pub const REJECTED: &str = "entry that was rejected";

/// Hints to work ahead of commit that were followed by exactly these entries, and those that were not.
pub const WORK_RIGHT: &str = "work ahead that was right";
pub const WORK_WRONG: &str = "work ahead that was wrong";

/// Transactions that committed in the first run, that had to run again, and that were in conflict until their deadline.
pub const TRANSACTION: &str = "transaction that ran once";
pub const RERUN: &str = "transaction that ran again";
pub const CONFLICT: &str = "transaction in conflict to the end";

/// Pipelines, and those in which a statement ended the transaction.
pub const PIPELINE: &str = "pipeline";
pub const PIPELINE_ENDED: &str = "pipeline whose transaction ended";

/// A batch of SQL and keys was acknowledged.
pub const KEYS: &str = "batch of SQL and keys";

/// Pipelines that set two keys because one of them was as it had been read, and those that found it changed; keys that
/// were written about when they expired; reads of keys; waits for keys, and watches; changes of keys that a node has
/// told of.
pub const CELL_EXEC: &str = "pipeline with a premise on a key";
pub const CELL_CONFLICT: &str = "premise that did not hold";
pub const CELL_EXPIRED: &str = "write of a key that expires";
pub const CELL_READ: &str = "read of a key";
pub const KEY_AWAITED: &str = "key that was waited for";
pub const KEY_WATCHED: &str = "key that was watched";
pub const CHANGES_NOTICED: &str = "changes of keys that were noticed";

/// Batches of SQL and a hash, writes of a field at about the time when it expires, batches of SQL and a sorted set, and
/// reads of both.
pub const HASH: &str = "batch of SQL and a hash";
pub const FIELD_EXPIRED: &str = "write of a field that expires";
pub const MEMBER_EXPIRED: &str = "write of a sorted set of which a member expires";
pub const SORTED_SET: &str = "batch of SQL and a sorted set";
pub const COLLECTION_READ: &str = "read of a hash or a sorted set";

/// Locks that were acquired, those that were not free for too long, batches of holders that were late, and renewals of
/// grants that had ended.
pub const LOCK_HELD: &str = "lock that was acquired";
pub const LOCK_TIMED_OUT: &str = "lock that was not free in time";
pub const FENCED: &str = "batch of a holder that was late";
pub const RENEWED_LATE: &str = "renewal of a grant that had ended";

/// A batch of SQL and events was acknowledged, a listener heard an event, and it was told of a gap.
pub const EVENTS: &str = "batch of SQL and events";
pub const LISTENER: &str = "event that was heard";
pub const LISTENER_GAP: &str = "gap in the events";

/// Interactive transactions that committed, that the cluster aborted, that their clients rolled back, and that rolled
/// back to a savepoint.
pub const INTERACTIVE: &str = "interactive transaction";
pub const ABORTED: &str = "interactive transaction aborted";
pub const ROLLED_BACK: &str = "interactive transaction rolled back";
pub const UNDONE: &str = "interactive transaction rolled back to a savepoint";

/// Nodes whose data were changed and that got the data of the others while they ran.
pub const HEALED: &str = "node that was healed";

/// Reads that found a database damaged, after which the node recorded the damage.
pub const DAMAGE_READ: &str = "damage that a read found";

/// Entries that were refused because their sessions had been idle for too long, and those of them whose write had
/// already been done by an earlier attempt.
pub const EXPIRED: &str = "write of an expired session";
pub const EXPIRED_RETRY: &str = "the same of what had been done";

/// Sessions that their clients ended while writes were in progress.
pub const ENDED: &str = "session that its client ended";

/// Writes whose futures the callers dropped.
pub const DROPPED: &str = "write that was dropped on its way";

/// Requests with a key whose outcome was unknown until they were sent again, and those that were sent again after their
/// answer.
pub const DOUBT_ENDED: &str = "request whose doubt its key ended";
pub const SENT_AGAIN: &str = "request that was sent again";

/// Calls that failed because too many calls were waiting.
pub const OVERLOADED: &str = "call that found too much waiting";

/// Snapshots that were read again after others had written.
pub const SNAPSHOT: &str = "snapshot that was read twice";

/// Migrations that several callers ran at the same time.
pub const MIGRATION: &str = "migration by several at once";

/// Maintenance commands, and changes of the schema.
pub const UPKEEP: &str = "ANALYZE or REINDEX";
pub const VACUUM: &str = "VACUUM";
pub const SCHEMA: &str = "change of the schema";

/// Writes that use a function which the program's latest version adds: those that were applied, and those that were
/// refused because not all nodes ran that version yet.
pub const EXTENDED: &str = "write by a new function";
pub const NOT_EXTENDED: &str = "write by a function that one voter lacks";

/// Ticks, which need the format level of the latest version: those that were applied, and those that were refused
/// because not all nodes ran that version yet.
pub const TICKED: &str = "tick";
pub const NOT_TICKED: &str = "tick that one node can't read";

/// Appointments of an archiver: those that replaced the one that they expect, and those that expect another one.
pub const APPOINTED: &str = "archiver that was appointed";
pub const NOT_APPOINTED: &str = "appointment that expects another archiver";

/// What happened to items of the group beside `main`: taken, expired and swept, added while a waiter waited for it.
pub const ITEM_TAKEN: &str = "item that was taken";
pub const ITEM_EXPIRED: &str = "item that expired";
pub const ITEM_WAITED: &str = "item that was waited for";

/// Tokens of users that were checked on a node: those that the user had, and those that were removed.
pub const TOKEN_ACCEPTED: &str = "token of a user";
pub const TOKEN_REFUSED: &str = "token that was removed";

/// Turns that a waiter over the network did not use.
pub const TURN_PASSED: &str = "turn that went on to the next waiter";

/// Steps of clients while different nodes led the two groups.
pub const LED_APART: &str = "groups led by different nodes";

/// States that were restored from an archive, changes of the archiver, generations of an archive after the first, and
/// snapshots that an archiver made by merging files.
pub const RESTORED: &str = "state restored from an archive";
pub const ARCHIVER_CHANGED: &str = "archive that another one continued";
pub const GENERATION: &str = "generation of an archive after another";
pub const ARCHIVE_MERGED: &str = "snapshot made by merging";

impl Coverage {
    /// Counts a fault that strikes a node which is in these phases.
    pub fn struck(&mut self, class: &'static str, phases: &BTreeSet<Phase>) {
        *self.faults.entry(class).or_default() += 1;
        for phase in phases {
            *self.met.entry((class, *phase)).or_default() += 1;
        }
    }

    /// Returns the coverage with the count of `what` increased.
    #[must_use]
    pub fn with(mut self, what: &'static str, count: u64) -> Self {
        *self.happened.entry(what).or_default() += count;
        self
    }

    /// Adds the counts of another seed.
    pub fn add(&mut self, other: &Self) {
        for (class, count) in &other.faults {
            *self.faults.entry(class).or_default() += count;
        }
        for (key, count) in &other.met {
            *self.met.entry(*key).or_default() += count;
        }
        for (what, count) in &other.happened {
            *self.happened.entry(what).or_default() += count;
        }
    }

    fn count(&self, what: &str) -> u64 {
        self.happened.get(what).copied().unwrap_or_default()
    }

    /// Lists what never happened and should have: classes of faults, phases in which no process life ended, and the
    /// other happenings.
    pub fn missing(&self) -> Vec<String> {
        let classes = classes().into_iter().filter(|class| !self.faults.contains_key(class)).map(str::to_owned);
        let ends = |phase: &Phase| ENDS.iter().any(|class| self.met.contains_key(&(*class, *phase)));
        let phases = Phase::ALL.into_iter().filter(|phase| !ends(phase));
        let phases = phases.map(|phase| format!("the end of a life in the phase '{}'", phase.name()));
        let others = HAPPENINGS.into_iter().filter(|what| self.count(what) == 0).map(str::to_owned);
        classes.chain(phases).chain(others).collect()
    }
}

/// Classes of faults that end a process life without loss of synced data.
const ENDS: [&str; 4] = ["power", "kill", "power at an I/O", "kill at an I/O"];

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:18}{:>8}", "fault", "struck")?;
        Phase::ALL.iter().try_for_each(|phase| write!(f, "{:>13}", phase.name()))?;
        for class in classes() {
            write!(f, "\n{class:18}{:>8}", self.faults.get(class).copied().unwrap_or_default())?;
            for phase in Phase::ALL {
                write!(f, "{:>13}", self.met.get(&(class, phase)).copied().unwrap_or_default())?;
            }
        }
        HAPPENINGS.iter().try_for_each(|what| write!(f, "\n{what:36}{:>8}", self.count(what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_names_what_never_happened() {
        let mut coverage = Coverage::default();
        let all: BTreeSet<Phase> = Phase::ALL.into();
        classes().into_iter().for_each(|class| coverage.struck(class, &all));
        assert_eq!(coverage.missing(), HAPPENINGS);
        let coverage = HAPPENINGS.into_iter().fold(coverage, |coverage, what| coverage.with(what, 1));
        assert!(coverage.missing().is_empty());
        let mut other = Coverage::default();
        other.struck("pause", &all);
        assert!(other.missing().contains(&"flapping link".to_owned()));
        assert!(other.missing().contains(&"the end of a life in the phase 'checkpoint'".to_owned()));
        other.add(&coverage);
        assert!(other.missing().is_empty());
    }
}
