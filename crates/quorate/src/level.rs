//! The freshness of reads.

use std::time::Duration;

use quorate_model::Position;

/// How recent the state must be that a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// What this node has applied, however long ago it last heard of the other nodes. Costs nothing. The default of
    /// [`Node::sql`](crate::Node::sql).
    Local,
    /// At least the state after the write that returned this position, for example to read one's own writes, whichever
    /// node answers. Waits until the node has applied it; needs no network.
    AtLeast(Position),
    /// The latest acknowledged state, on any node. Costs one round to a majority, which reads that arrive together
    /// share. The default of [`Client`](crate::Client).
    Linearizable,
    /// A state that contains everything that was acknowledged up to some time, which is at most this long ago, on any
    /// node. Costs nothing if a linearizable read of that node, or another read of this level, was confirmed within
    /// this time, otherwise one round like a linearizable read; so there is at most one round in this time, however
    /// many reads there are. The node measures by its own clock, which may stop while its machine is suspended.
    Bounded(Duration),
}
