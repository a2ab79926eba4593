//! The freshness of reads.

use std::time::Duration;

use quorate_model::Position;

/// The freshness of a read: the oldest state that it may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// The state that this node has applied, however long ago it last heard from the other nodes. Needs no network and
    /// no wait. The default of [`Node::sql`](crate::Node::sql).
    Local,
    /// At least the state after the write that returned this position, for example to read one's own writes on any
    /// node. Waits until the node has applied that write; needs no network.
    AtLeast(Position),
    /// The latest acknowledged state, on any node. Costs one round trip to a majority; reads that arrive together share
    /// it. The default of [`Client`](crate::Client).
    Linearizable,
    /// A state that is at most this old: it contains every write that was acknowledged by that time. Costs nothing if
    /// the node has confirmed a linearizable read, or another read of this level, within this time; otherwise it costs
    /// one round trip, as a linearizable read does. A node therefore makes at most one round trip in this time for such
    /// reads, however many there are. The node measures time by its own clock, which may stop while its machine is
    /// suspended.
    Bounded(Duration),
}
