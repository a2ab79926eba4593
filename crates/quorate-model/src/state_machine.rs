//! The interface between consensus and the state machine that it replicates.

use std::time::Duration;

use bytes::Bytes;

use crate::limits::BASE_LEVEL;
use crate::{Entry, LogId, Outcome};

/// Up to where a state machine has applied, and what the rest of the node must know of that. It is written in the same
/// transaction as the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The last applied entry.
    pub log_id: Option<LogId>,
    /// The id of the entry that set the current membership, and the membership in the encoding of the consensus crate.
    pub membership: Option<(LogId, Bytes)>,
    /// The format level that entries may use: every member understands it.
    pub level: u32,
    /// The time at which something in the stores is due next, if anything is; 0 if its time has come.
    pub due: Option<u64>,
}

impl Default for Applied {
    fn default() -> Self {
        Self { log_id: None, membership: None, level: BASE_LEVEL, due: None }
    }
}

impl Applied {
    /// Returns the index of the last applied entry, or 0.
    pub fn index(&self) -> u64 {
        self.log_id.map_or(0, |id| id.index)
    }
}

/// A fault of this node's own store. It is never an outcome, because other nodes do not share it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// The file system is full. Nothing was applied; try again when there is space.
    #[error("no space left for the database: {0}; free some, and the node continues by itself")]
    Full(String),
    /// Reading or writing failed. The store must be closed; the node may work again after a restart.
    #[error("the database can't be read or written: {0}; see to the disk, then restart the node")]
    Io(String),
    /// This node does not have the memory or the temporary files that a statement needs.
    #[error("an entry can't be applied: {0}")]
    Memory(String),
    /// A statement needs more memory or temporary files, or moves more bytes through them, than this node allows.
    #[error("an entry can't be applied: {0}")]
    TooMuch(String),
    /// A statement runs for much longer than its budget of steps allows.
    #[error("an entry takes too long to apply: {0}; look at the load of the machine")]
    Slow(String),
    /// A statement continues to run after it was interrupted. The process must end, because nothing else stops the
    /// statement.
    #[error("the node can't go on: {0}; restart it, and the nodes will settle what becomes of the entry")]
    Stuck(String),
    /// The database is damaged and must be replaced by an image of another node.
    #[error("the database is damaged: {0}; it must be replaced by a copy from another node")]
    Damaged(String),
    /// The data are not those of the other nodes. Nothing is applied or served until a copy of theirs is installed.
    #[error("the data differ from those of the other nodes: {0}")]
    Diverged(String),
    /// An entry or the database has a format that this build does not know. A newer build must take over.
    #[error("this version can't read the data: {0}; install the version that the other nodes run")]
    Unsupported(String),
    /// An image was given up: it took too long, or its source is no longer there.
    #[error("the image was given up: {0}; try again")]
    ImageLost(String),
    /// The store was closed.
    #[error("the store is closed: start the node again")]
    Closed,
}

impl StoreFault {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full(_) | Self::ImageLost(_) | Self::Diverged(_))
    }
}

/// A statement that is running at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningStatement {
    /// The entry that it belongs to; `None` in a dry run, before it becomes an entry.
    pub entry: Option<u64>,
    /// For how long it has continued after it should have ended, because a single step takes long; zero while it is
    /// within its time.
    pub overdue: Duration,
}

/// The number of rejected entries that a store remembers.
pub const REJECTIONS_MAX: usize = 64;

/// The callback for the outcomes of entries that were handed over together. The store may call it several times. Each
/// call passes the outcomes of the next entries, in order, as soon as the store has applied them. A call with a fault
/// is the last one; the entries without an outcome by then are not applied.
///
/// `None` stands for an entry that had been applied before, by an earlier run of the node or by the sender of an image:
/// its outcome is not known here.
pub type OnApplied = Box<dyn FnMut(Result<Vec<Option<Outcome>>, StoreFault>) + Send>;

/// A deterministic state machine, as consensus sees it: a handle to its writer. No call blocks for long unless its
/// documentation says so.
pub trait StateMachine: Send + Sync + 'static {
    /// Returns its position.
    fn applied(&self) -> Applied;

    /// Applies committed entries, in order, and calls `on_applied` from the writer's thread.
    ///
    /// Every outcome must be the same as if each entry had been applied alone.
    ///
    /// A fault belongs to one entry: the one after [`StateMachine::applied`]. The caller has received the outcomes of
    /// the entries before it by then. That entry and those after it are not applied, and may be handed over again.
    ///
    /// If no caller of this node waits for any of the entries (`is_awaited` is false), the store gives up a slow entry
    /// sooner.
    fn apply(&self, entries: Vec<Entry>, is_awaited: bool, on_applied: OnApplied);

    /// Returns the statement that is running at the moment, of an entry or of a dry run.
    fn running(&self) -> Option<RunningStatement>;

    /// Returns the indexes of the latest applied [`Payload::Rejected`](crate::Payload::Rejected), at most
    /// [`REJECTIONS_MAX`]. An image contains them.
    fn rejections(&self) -> Vec<u64>;

    /// Records that the fault that ended applying is this node's own, because another node has applied the entry.
    /// Nothing is applied until an image is installed.
    fn condemn(&self, fault: &StoreFault);

    /// Announces entries that will probably be committed and applied next. The state machine may run them ahead, so
    /// that [`StateMachine::apply`] has less to do. Their effects must not be visible before `apply`, and other entries
    /// may come instead.
    fn prefetch(&self, entries: Vec<Entry>);

    /// Returns the latest state known to survive power loss without the log: the log may be purged up to it.
    fn durable(&self) -> Applied;

    /// Returns whether applied entries survive the end of the process. If they do not, a node can't tell after a crash
    /// whether it had applied an entry and answered the caller. So the cluster never rejects an entry because processes
    /// crash in it.
    fn outlives_process(&self) -> bool;

    /// Returns whether applying is slowed now so that checkpoints keep up. The leader then postpones entries of its own
    /// that nobody waits for.
    fn is_slowed(&self) -> bool;

    /// Returns why nothing is applied at the moment, if that is so. A node with such a fault must not lead.
    fn fault(&self) -> Option<StoreFault>;

    /// Begins an image of the current state. Blocks.
    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault>;

    /// Begins to receive an image. Blocks. The current state is served until [`WholeImage::install`].
    fn receive_image(&self) -> Result<Box<dyn ImageSink>, StoreFault>;
}

/// An image that is being sent. Dropping it gives it up. Its calls block.
pub trait ImageSource: Send {
    /// Returns the position of the store when the image was begun; the image may end at a later one.
    fn begun_at(&self) -> Applied;

    /// Returns the next piece, at most a few MiB, which only a sink understands; `None` after the last one.
    ///
    /// A piece may be empty while the source waits for another round of changes.
    fn next(&mut self) -> Result<Option<Bytes>, StoreFault>;
}

/// An image that is being received. Dropping it gives it up and leaves no trace. Its calls block.
pub trait ImageSink: Send {
    /// Takes the next piece.
    fn write(&mut self, piece: Bytes) -> Result<(), StoreFault>;

    /// Makes the image durable and verifies it, after the last piece. An error loses nothing but the image.
    fn finish(self: Box<Self>) -> Result<Box<dyn WholeImage>, StoreFault>;
}

/// A complete and verified image. Dropping it gives it up and leaves no trace.
pub trait WholeImage: Send {
    /// Returns the last entry in the state of the image.
    fn end(&self) -> Option<LogId>;

    /// Replaces the current state with the image and returns the new position of the store. Readers of the old state
    /// keep it until they are done. Blocks.
    fn install(self: Box<Self>) -> Result<Applied, StoreFault>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_says_what_to_do() {
        let why = || "this is why".to_owned();
        let cases = [
            (
                StoreFault::Full(why()),
                true,
                "no space left for the database: this is why; free some, and the node continues by itself",
            ),
            (
                StoreFault::Io(why()),
                false,
                "the database can't be read or written: this is why; see to the disk, then restart the node",
            ),
            (StoreFault::Memory(why()), false, "an entry can't be applied: this is why"),
            (
                StoreFault::Slow(why()),
                false,
                "an entry takes too long to apply: this is why; look at the load of the machine",
            ),
            (
                StoreFault::Stuck(why()),
                false,
                "the node can't go on: this is why; restart it, and the nodes will settle what becomes of the entry",
            ),
            (
                StoreFault::Damaged(why()),
                false,
                "the database is damaged: this is why; it must be replaced by a copy from another node",
            ),
            // The text of the fault includes what to do, because that differs.
            (StoreFault::Diverged(why()), true, "the data differ from those of the other nodes: this is why"),
            (
                StoreFault::Unsupported(why()),
                false,
                "this version can't read the data: this is why; install the version that the other nodes run",
            ),
            (StoreFault::ImageLost(why()), true, "the image was given up: this is why; try again"),
            (StoreFault::Closed, false, "the store is closed: start the node again"),
        ];
        for (fault, is_retryable, text) in cases {
            assert_eq!((fault.is_retryable(), fault.to_string().as_str()), (is_retryable, text));
        }
    }
}
