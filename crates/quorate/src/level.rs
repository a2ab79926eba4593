//! How fresh a read must be.

use std::time::Duration;

use quorate_model::Position;

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// What this node has applied, however long ago it heard of the others. Costs nothing. The default of
    /// [`Node::sql`](crate::Node::sql).
    Local,
    /// At least the state after the write that returned this position: one's own writes, whichever node answers. Waits
    /// until the node has applied it; costs nothing on the network.
    AtLeast(Position),
    /// The latest acknowledged state, on any node. Costs one round to a majority, which all reads that arrive
    /// meanwhile share. The default of [`Client`](crate::Client).
    Linearizable,
    /// The state as it was at some time that is no longer ago than this, or a later one, on any node: what was
    /// acknowledged before that time is seen. Costs nothing where a linearizable read of that node, or another of this
    /// level, was confirmed within the time, else one round as that does: so at most a round in the time, however many
    /// read. The node measures by its own clock, which may stand still while its machine is suspended.
    Bounded(Duration),
}
