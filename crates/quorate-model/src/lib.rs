//! The data that Quorate's nodes exchange with each other and with their stores.
//!
//! A client encodes a [`Proposal`] once: commands, the client's session, a budget. The leader puts a [`Stamp`] before
//! it, and both together form an [`Entry`] of the log; the log, the followers and the stores share its bytes. A
//! [`StateMachine`] applies committed entries and answers each with an [`Outcome`], the same on every node. A
//! [`Position`] is the place of an entry in the history.
//!
//! # Invariants
//!
//! - This crate does no I/O.
//! - Encodings are tagged and versioned by a format level ([`codec`]). `docs/model-format.md` describes them byte by
//!   byte, and golden files pin them.
//! - No bytes make a decoder panic, and a decoder never skips what it does not know: a node that skipped part of a
//!   command would diverge from the others.
//! - All limits are constants of [`limits`], [`keys::limits`], [`locks::limits`] and [`events::limits`].

#![forbid(unsafe_code)]

mod archiver;
mod bulk;
pub mod codec;
mod command;
mod control;
mod entry;
pub mod events;
mod failure;
mod items;
pub mod keys;
pub mod limits;
pub mod locks;
mod origin;
mod outcome;
mod param;
mod position;
mod proposal;
mod request;
mod sql;
mod state_machine;
mod topic;
pub mod users;
mod value;

pub use archiver::{ARCHIVER_LEVEL, Appointment, Archiver};
pub use bulk::{Bulk, PackedRows, RawValue, RawValues, RowPacker, ValueRef};
pub use codec::DecodeError;
pub use command::{Command, CommandResult, Read, Results};
pub use control::{ControlCommand, ControlReply};
pub use entry::{Entry, Payload};
pub use events::{EventsCommand, EventsReply};
pub use failure::{Failure, FailureKind};
pub use items::{ItemsCommand, ItemsReply};
pub use keys::{KeysCommand, KeysReply, SpaceCommand};
pub use locks::{LocksCommand, LocksReply};
pub use origin::{Origin, SessionId};
pub use outcome::{Outcome, Reply};
pub use param::{Column, Param, Returned, Step};
pub use position::{Epoch, GroupId, LogId, NodeId, Position, STAMP_AHEAD_MAX, Stamp, StoreIdentity};
pub use proposal::{ALONE, DryRunRecord, Mode, Proposal, ReadCheck};
pub use request::{REQUEST_KEYS_LEVEL, RequestKey};
pub use sql::{Row, SqlCommand, SqlReply, Statement, StatementResult};
pub use state_machine::{
    Applied, ImageSink, ImageSource, OnApplied, REJECTIONS_MAX, RunningStatement, StateMachine, StoreFault, WholeImage,
};
pub use topic::Topic;
pub use users::{TokenHash, TokenId, User, UserCommand, UserRole, UserToken, Verifier};
pub use value::Value;
