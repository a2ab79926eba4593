//! The seam between consensus and what it replicates.

use std::time::Duration;

use bytes::Bytes;

use crate::{Entry, LogId, Outcome};

/// Where a store stands: written in the same transaction as the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The last applied entry.
    pub log_id: Option<LogId>,
    /// The id of the entry that set the membership in force, and the membership in consensus's encoding.
    pub membership: Option<(LogId, Bytes)>,
}

impl Applied {
    /// The index of the last applied entry, or 0.
    pub fn index(&self) -> u64 {
        self.log_id.map_or(0, |id| id.index)
    }
}

/// The node's own trouble with a store: never an outcome, because other nodes do not share it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// The file system is full. Nothing was applied; try again when there is space.
    #[error("no space left for the database: {0}; free some, the node goes on by itself")]
    Full(String),
    /// Reading or writing failed. The store must be closed; the node may come back after a restart.
    #[error("the database can't be read or written: {0}; see to the disk, then restart the node")]
    Io(String),
    /// This node has not the memory or the temporary files that a statement needs.
    #[error("an entry can't be applied: {0}")]
    Memory(String),
    /// A statement needs more memory or temporary files, or moves more through them, than this node lets one have.
    #[error("an entry can't be applied: {0}")]
    TooMuch(String),
    /// A statement runs for much longer than its budget of steps allows for.
    #[error("an entry takes too long to apply: {0}; look at the load of the machine")]
    Slow(String),
    /// A statement runs on though it was told to end. The process must end: nothing else stops it.
    #[error("the node can't go on: {0}; restart it, and the nodes will settle what becomes of the entry")]
    Stuck(String),
    /// The database is damaged and must be replaced by an image of another node.
    #[error("the database is damaged: {0}; it must be replaced by a copy from another node")]
    Damaged(String),
    /// The data are not those of the other nodes. Nothing is applied and nothing served until a copy of theirs is
    /// installed.
    #[error("the data differ from those of the other nodes: {0}")]
    Diverged(String),
    /// An entry is of a format that this build does not know. A newer build must take over.
    #[error("an entry can't be read by this version: {0}; install the version that the other nodes run")]
    Unsupported(String),
    /// An image was given up: it took too long, or what it was made from went away.
    #[error("the image was given up: {0}; try again")]
    ImageLost(String),
    /// The store was closed.
    #[error("the store is closed: start the node again")]
    Closed,
}

impl StoreFault {
    /// Whether the same call may succeed later without help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full(_) | Self::ImageLost(_) | Self::Diverged(_))
    }
}

/// A statement that runs at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningStatement {
    /// The entry that it is of; none where it is tried out before it becomes one.
    pub entry: Option<u64>,
    /// For how long it has run on since it was to end, because a single step of it takes long; zero while it is in
    /// time.
    pub overdue: Duration,
}

/// Rejected entries that a store remembers.
pub const REJECTIONS_MAX: usize = 64;

/// What a store calls with the outcomes of entries that were handed over together. It may call it several times: each
/// call gives the outcomes of the next entries, in order, as soon as the store has applied them. The call with a fault
/// is the last one, and the entries that have no outcome by then are not applied.
///
/// `None` stands for an entry that had been applied before, by an earlier life or by the sender of an image: nobody
/// here knows what came of it.
pub type OnApplied = Box<dyn FnMut(Result<Vec<Option<Outcome>>, StoreFault>) + Send>;

/// A deterministic state machine, as consensus sees it: a handle to its writer. No call blocks for long unless it says
/// so.
pub trait StateMachine: Send + Sync + 'static {
    /// Where it stands.
    fn applied(&self) -> Applied;

    /// Applies committed entries, in order, and calls `on_applied` from the writer's thread.
    ///
    /// Every outcome must be as if each entry had been applied alone.
    ///
    /// A fault is the fault of one entry: the one that follows [`StateMachine::applied`]. The caller has the outcomes
    /// of those before it by then; it and those after it are not applied, and may be handed over again.
    ///
    /// Where no caller of this node waits for any of them (`is_awaited`), the store gives an entry up sooner that
    /// takes long.
    fn apply(&self, entries: Vec<Entry>, is_awaited: bool, on_applied: OnApplied);

    /// The statement that runs at the moment, of an entry or of what may become one.
    fn running(&self) -> Option<RunningStatement>;

    /// The indexes of the latest [`Payload::Rejected`](crate::Payload::Rejected) that were applied, at most
    /// [`REJECTIONS_MAX`]. An image brings them along.
    fn rejections(&self) -> Vec<u64>;

    /// The fault that applying ended with is this node's own, by the word of a node that has applied the entry: it is
    /// noted, and nothing is applied until an image is installed.
    fn condemn(&self, fault: &StoreFault);

    /// Announces entries that will probably be applied next. The state machine may do their work ahead, so that
    /// [`StateMachine::apply`] has less to do. Nothing of it may be seen before that, because other entries may come.
    fn prefetch(&self, entries: Vec<Entry>);

    /// The latest state known to survive power loss without the log: the log may be purged up to it.
    fn durable(&self) -> Applied;

    /// Why nothing is applied at the moment, if so. A node with such a fault must not lead.
    fn fault(&self) -> Option<StoreFault>;

    /// Begins an image of the present state. Blocks.
    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault>;

    /// Begins to receive an image. Blocks. The present state serves on until [`WholeImage::install`].
    fn receive_image(&self) -> Result<Box<dyn ImageSink>, StoreFault>;
}

/// An image on its way out. Dropping it gives it up. Its calls block.
pub trait ImageSource: Send {
    /// Where the store stood when the image was begun; the image may end further on.
    fn begun_at(&self) -> Applied;

    /// The next piece, at most a few MiB, opaque to all but a sink; `None` after the last.
    ///
    /// While another round of changes has to be awaited, a piece may be empty.
    fn next(&mut self) -> Result<Option<Bytes>, StoreFault>;
}

/// An image on its way in. Dropping it gives it up and leaves no trace. Its calls block.
pub trait ImageSink: Send {
    /// Takes the next piece.
    fn write(&mut self, piece: Bytes) -> Result<(), StoreFault>;

    /// After the last piece: makes the image durable and verifies it. An error costs nothing but the image.
    fn finish(self: Box<Self>) -> Result<Box<dyn WholeImage>, StoreFault>;
}

/// An image that came as a whole and is sound. Dropping it gives it up and leaves no trace.
pub trait WholeImage: Send {
    /// Where the state ends that it brings.
    fn end(&self) -> Option<LogId>;

    /// Puts it in the place of the present state and returns where the store stands then. Readers of the old state keep
    /// it until they are done. Blocks.
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
                "no space left for the database: this is why; free some, the node goes on by itself",
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
            // What to do differs, and comes with why.
            (StoreFault::Diverged(why()), true, "the data differ from those of the other nodes: this is why"),
            (
                StoreFault::Unsupported(why()),
                false,
                "an entry can't be read by this version: this is why; install the version that the other nodes run",
            ),
            (StoreFault::ImageLost(why()), true, "the image was given up: this is why; try again"),
            (StoreFault::Closed, false, "the store is closed: start the node again"),
        ];
        for (fault, is_retryable, text) in cases {
            assert_eq!((fault.is_retryable(), fault.to_string().as_str()), (is_retryable, text));
        }
    }
}
