//! The faults that the simulator draws, with their weights.

use std::collections::BTreeSet;

use crate::cluster::End;
use crate::coverage::Phase;

/// A kind of fault, with what it is applied to.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The process lives of the nodes end.
    End(End, Whom),
    /// A process life ends in the middle of an I/O operation, some operations later.
    EndAtIo(End, Whom),
    /// A process life ends as soon as a node is in the phase; with [`Whom::All`], the lives of all other nodes end too.
    EndIn(End, Phase, Whom),
    /// An operator removes a member, and starts a node with the same name and an empty directory.
    Remove(Whom),
    /// The same, and the leader is killed during the removal.
    RemoveKilled(Whom),
    /// An operator hands leadership to a node.
    Transfer,
    /// An operator asks for a verification that all nodes hold the same data.
    Verify,
    /// A node is cut off from all others.
    Isolate(Whom),
    /// The archiver is cut off from all other nodes, but not from the store, until another has taken over the archive,
    /// or longer.
    Depose,
    /// Two nodes are cut off from each other; both can still reach the other nodes.
    Cut,
    /// The same, in one direction.
    CutWay,
    /// A link comes and goes.
    Flap,
    /// Streams break.
    Reset,
    /// Bits flip on the connections between two nodes.
    Garble,
    /// A disk is lost, and the image that replaces its data comes over a slow network or from a slow node.
    SlowImage,
    /// A disk is lost, and a bit of the image that replaces its data flips while the image arrives.
    BadImage,
    /// The whole network is slow.
    Latency,
    /// A process is paused.
    Pause,
    /// A node's clock is hours wrong.
    Clock,
    /// A node's clock is a year wrong.
    ClockYear,
    /// The clocks of all nodes jump by more than a day at once, so that every session expires.
    Day,
    /// A node's clock goes too fast or too slow.
    Drift,
    /// A node's disk and processor are slow.
    Slow,
    /// One write of a node fails.
    WriteFails(Whom),
    /// One read of a node fails.
    ReadFails(Whom),
    /// One sync of a node fails.
    SyncFails(Whom),
    /// A node's disk is full for a while.
    Full(Whom),
    /// A process outside Quorate reads a node's database file for a while, in one transaction.
    Reader(Whom),
    /// A process outside Quorate changes a node's data without its knowledge.
    Tamper(Whom),
    /// A page of a node's database is overwritten on its disk, and a client reads all rows on that node.
    BadPage(Whom),
    /// A node is restarted at another address.
    Move(Whom),
}

/// The nodes that a fault strikes.
#[derive(Clone, Copy, Debug)]
pub enum Whom {
    /// The leader, or any node if none leads.
    Leader,
    /// Any one node.
    One,
    /// Two nodes at once.
    Two,
    /// All nodes at once.
    All,
}

use Fault::{
    BadImage, BadPage, Clock, ClockYear, Cut, CutWay, Day, Depose, Drift, EndAtIo, EndIn, Flap, Full, Garble, Isolate,
    Latency, Move, Pause, ReadFails, Reader, Remove, RemoveKilled, Reset, Slow, SlowImage, SyncFails, Tamper, Transfer,
    Verify, WriteFails,
};
use Whom::{All, Leader, One, Two};

/// All faults that may be drawn, each with its weight.
pub const ATLAS: [(u64, Fault); 76] = [
    (3, Fault::End(End::Power, One)),
    (3, Fault::End(End::Power, Leader)),
    (2, Fault::End(End::Power, Two)),
    (2, Fault::End(End::Power, All)),
    (2, Fault::End(End::Kill, One)),
    (3, Fault::End(End::Kill, Leader)),
    (1, Fault::End(End::Kill, All)),
    (2, Fault::End(End::Wipe, One)),
    (1, Fault::End(End::Wipe, Leader)),
    (1, Fault::End(End::BadLog, One)),
    (1, Fault::End(End::BadDatabase, One)),
    (1, Fault::End(End::BadPointer, One)),
    (2, EndAtIo(End::Power, One)),
    (3, EndAtIo(End::Power, Leader)),
    (1, EndAtIo(End::Power, All)),
    (1, EndAtIo(End::Kill, One)),
    (1, EndAtIo(End::Kill, Leader)),
    (1, EndIn(End::Power, Phase::Starts, One)),
    (1, EndIn(End::Kill, Phase::Starts, One)),
    (1, EndIn(End::Power, Phase::NoLeader, One)),
    (2, EndIn(End::Power, Phase::Elected, All)),
    (1, EndIn(End::Power, Phase::Append, One)),
    (2, EndIn(End::Kill, Phase::Append, Leader)),
    (1, EndIn(End::Power, Phase::Apply, One)),
    (1, EndIn(End::Kill, Phase::Apply, One)),
    (1, EndIn(End::Kill, Phase::Apply, All)),
    (1, EndIn(End::Power, Phase::Ahead, One)),
    (1, EndIn(End::Power, Phase::Append, All)),
    (2, EndIn(End::Power, Phase::Ahead, All)),
    (1, EndIn(End::Kill, Phase::Ahead, All)),
    (2, EndIn(End::Kill, Phase::Blocked, One)),
    (1, EndIn(End::Power, Phase::Blocked, All)),
    (1, EndIn(End::Power, Phase::Checkpoint, All)),
    (1, EndIn(End::Power, Phase::Checkpoint, One)),
    (1, EndIn(End::Kill, Phase::Checkpoint, One)),
    (1, EndIn(End::Power, Phase::SendsImage, One)),
    (1, EndIn(End::Kill, Phase::SendsImage, One)),
    (1, EndIn(End::Power, Phase::GetsImage, One)),
    (1, EndIn(End::Kill, Phase::GetsImage, One)),
    (1, Remove(One)),
    (1, Remove(Leader)),
    (1, RemoveKilled(One)),
    (2, Transfer),
    (1, Verify),
    (2, Isolate(One)),
    (2, Isolate(Leader)),
    (1, Depose),
    (2, Cut),
    (2, CutWay),
    (1, Flap),
    (1, Reset),
    (1, Garble),
    (3, SlowImage),
    (2, BadImage),
    (1, Latency),
    (2, Pause),
    (2, Clock),
    (1, ClockYear),
    (2, Day),
    (1, Drift),
    (2, Slow),
    (1, WriteFails(One)),
    (1, WriteFails(Leader)),
    (1, ReadFails(One)),
    (1, SyncFails(One)),
    (1, SyncFails(Leader)),
    (1, SyncFails(All)),
    (1, Full(One)),
    (1, Full(Leader)),
    (1, Reader(One)),
    (2, Reader(Leader)),
    (2, Tamper(One)),
    (1, Tamper(Leader)),
    (4, BadPage(One)),
    (2, BadPage(Leader)),
    (2, Move(One)),
];

/// Returns the names of all classes of faults.
pub fn classes() -> BTreeSet<&'static str> {
    ATLAS.iter().map(|(_, fault)| fault.class()).collect()
}

impl Fault {
    /// Returns the name of its class, as the coverage table prints it.
    pub fn class(self) -> &'static str {
        match self {
            Self::End(end, _) | EndIn(end, ..) => end.name(),
            EndAtIo(End::Kill, _) => "kill at an I/O",
            EndAtIo(..) => "power at an I/O",
            Remove(_) => "removal",
            RemoveKilled(_) => "cut removal",
            Transfer => "transfer",
            Verify => "verify",
            Isolate(_) => "isolation",
            Depose => "deposed archiver",
            Cut => "cut",
            CutWay => "one-way cut",
            Flap => "flapping link",
            Reset => "broken streams",
            Garble => "garbled streams",
            SlowImage => "slow image",
            BadImage => "bad image",
            Latency => "slow network",
            Pause => "pause",
            Clock => "clock hours off",
            ClockYear => "clock a year off",
            Day => "a day passes",
            Drift => "clock drift",
            Slow => "slow node",
            WriteFails(_) => "failed write",
            ReadFails(_) => "failed read",
            SyncFails(_) => "failed sync",
            Full(_) => "full disk",
            Reader(_) => "long reader",
            Tamper(_) => "tampering",
            BadPage(_) => "bad page",
            Move(_) => "changed address",
        }
    }

    /// Whether it separates nodes from each other.
    pub fn is_partition(self) -> bool {
        matches!(self, Isolate(_) | Depose | Cut | CutWay | Flap)
    }
}
