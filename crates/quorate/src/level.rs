//! How fresh a read must be.

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
    /// meanwhile share. The default of [`RemoteSql`](crate::RemoteSql).
    Linearizable,
}
