//! Decodes the messages of `docs/model-format.md` directly into the types of this crate; every node decodes every
//! proposal.
//!
//! These decoders accept repeated fields, and numbers in more bytes than necessary. The caller that decodes a whole
//! message compares its length with that of its own encoding, so that each message has only one valid encoding
//! ([`super::decode_strictly`]).

use std::borrow::Cow;

use bytes::Bytes;
use prost::encoding::decode_varint;

use super::{DecodeError, FAILED, PIPELINE, family};
use crate::events::EventsQuery;
use crate::limits::{COMMANDS_MAX, EXTENSIONS_MAX, PARAMETERS_MAX, READ_CHECKS_MAX};
use crate::{
    Bulk, Column, Command, CommandResult, ControlCommand, ControlReply, DryRunRecord, EventsCommand, EventsReply,
    Failure, ItemsCommand, ItemsReply, KeysReply, LocksCommand, LocksReply, Mode, Origin, Outcome, PackedRows, Param,
    Proposal, Read, ReadCheck, Reply, RequestKey, Returned, SessionId, SpaceCommand, SqlCommand, SqlReply, Stamp,
    Statement, StatementResult, Value,
};

/// The bits of a field's key that give the type of its content.
const KEY_TYPE: u64 = 7;
const KEY_TYPE_BITS: u32 = 3;
const VARINT: u64 = 0;
const SIXTY_FOUR_BITS: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

/// Why bytes are not a message. It is small, because decoding every field may return one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flaw {
    Malformed(&'static str),
    Unknown,
}

impl From<Flaw> for DecodeError {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Malformed(what) => Self::Malformed(what.to_owned()),
            Flaw::Unknown => Self::Unknown,
        }
    }
}

const SHORT: Flaw = Flaw::Malformed("a field is cut short");
const TOO_LARGE: Flaw = Flaw::Malformed("a number is too large");
const TOO_MANY: Flaw = Flaw::Malformed("a list is longer than it may be");
pub(super) const NOT_UTF8: Flaw = Flaw::Malformed("a text is not UTF-8");

/// Part of an encoded message.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    bytes: &'a [u8],
    /// The whole buffer that contains the part.
    whole: &'a Bytes,
}

impl<'a> Part<'a> {
    pub(super) fn whole(whole: &'a Bytes) -> Self {
        Self { bytes: whole, whole }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes, which share the memory of the whole buffer.
    pub(super) fn slice(self) -> Bytes {
        self.whole.slice_ref(self.bytes)
    }
}

/// A type that can be read from the fields of a message.
pub(super) trait Decode: Sized {
    fn decode(part: Part<'_>) -> Result<Self, Flaw>;
}

/// The content of a field.
pub(super) enum Field<'a> {
    Number(u64),
    Double(f64),
    Bytes(Part<'a>),
}

use Field::{Bytes as Content, Double, Number};

/// Iterates over the fields of a message, whose tags must not descend.
///
/// Taking a field is inlined into each decoder, even where the compiler thinks it too large: there the tags are
/// constants, and a field stays in registers.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    whole: &'a Bytes,
    /// The tag of the previous field.
    last: u32,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Field<'a>), Flaw>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.field())
    }
}

impl<'a> Fields<'a> {
    pub(super) fn of(part: Part<'a>) -> Self {
        Self { rest: part.bytes, whole: part.whole, last: 0 }
    }

    #[inline(always)]
    fn field(&mut self) -> Result<(u32, Field<'a>), Flaw> {
        let key = self.varint()?;
        let field = match key & KEY_TYPE {
            VARINT => Number(self.varint()?),
            SIXTY_FOUR_BITS => {
                let (bytes, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
                self.rest = rest;
                Double(f64::from_le_bytes(*bytes))
            }
            LENGTH_DELIMITED => {
                let length = small(self.varint()?)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
                self.rest = rest;
                Content(Part { bytes, whole: self.whole })
            }
            _ => return Err(Flaw::Unknown),
        };
        let number = small(key >> KEY_TYPE_BITS)?;
        // The same fields in another order have the same length, so comparing lengths would not detect it.
        if number < self.last {
            return Err(Flaw::Unknown);
        }
        self.last = number;
        Ok((number, field))
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, Flaw> {
        match self.rest.split_first() {
            // Most numbers are small.
            Some((byte, rest)) if *byte < 0x80 => {
                self.rest = rest;
                Ok((*byte).into())
            }
            _ => long_varint(&mut self.rest),
        }
    }
}

#[inline(never)]
fn long_varint(bytes: &mut &[u8]) -> Result<u64, Flaw> {
    decode_varint(bytes).map_err(|_| SHORT)
}

/// Reverses the `zigzag` of [`super::encode`].
pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

pub(super) fn small<T: TryFrom<N>, N>(number: N) -> Result<T, Flaw> {
    T::try_from(number).map_err(|_| TOO_LARGE)
}

pub(super) fn text(part: Part<'_>) -> Result<String, Flaw> {
    std::str::from_utf8(part.bytes).map(str::to_owned).map_err(|_| NOT_UTF8)
}

/// Adds to a list, or fails if it is full. The check is made here so that a hostile message can't fill the memory with
/// elements before `check_limits` counts them.
#[inline]
pub(super) fn push<T>(list: &mut Vec<T>, max: usize, item: T) -> Result<(), Flaw> {
    if list.len() >= max {
        return Err(TOO_MANY);
    }
    list.push(item);
    Ok(())
}

/// Decodes a message without fields.
pub(super) fn empty<T>(part: Part<'_>, value: T) -> Result<T, Flaw> {
    if part.bytes.is_empty() { Ok(value) } else { Err(Flaw::Unknown) }
}

impl Decode for Proposal {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        // Nearly all proposals have one command.
        let mut proposal = Self { level: 0, budget: 0, ..Self::new(None, Vec::with_capacity(1)) };
        for field in Fields::of(part) {
            match field? {
                (1, Number(level)) => proposal.level = small(level)?,
                (2, Content(part)) => proposal.origin = Some(Origin::decode(part)?),
                (3, Number(budget)) => proposal.budget = budget,
                (4, Content(part)) => push(&mut proposal.commands, COMMANDS_MAX, Command::decode(part)?)?,
                (5, Content(part)) => push(&mut proposal.read_checks, READ_CHECKS_MAX, ReadCheck::decode(part)?)?,
                (6, Content(part)) => proposal.dry_run = Some(DryRunRecord::decode(part)?),
                (7, Number(PIPELINE)) => proposal.mode = Mode::Pipeline,
                (8, Content(part)) => proposal.key = Some(RequestKey::decode(part)?),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(proposal)
    }
}

impl Decode for Origin {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut origin = Self { session: SessionId(0), sequence: 0, floor: 0 };
        for field in Fields::of(part) {
            match field? {
                (1, Number(session)) => origin.session = SessionId(session),
                (2, Number(sequence)) => origin.sequence = sequence,
                (3, Number(floor)) => origin.floor = floor,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(origin)
    }
}

impl Decode for RequestKey {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (mut key, mut hash) = (None, None);
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => key = Some(part.slice()),
                (2, Content(part)) => hash = part.bytes().try_into().ok(),
                _ => return Err(Flaw::Unknown),
            }
        }
        let (key, hash) = key.zip(hash).ok_or(Flaw::Unknown)?;
        Self::new(key, hash).map_err(|_| Flaw::Malformed("a key of a request is empty or too long"))
    }
}

/// Returns the only field of a message that has one of several fields.
#[inline(always)]
pub(super) fn only_field(part: Part<'_>) -> Result<(u32, Field<'_>), Flaw> {
    let mut fields = Fields::of(part);
    let field = fields.field()?;
    if fields.rest.is_empty() { Ok(field) } else { Err(Flaw::Unknown) }
}

impl Decode for Command {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (family::CONTROL, Content(part)) => ControlCommand::decode(part).map(Self::Control),
            (family::SQL, Content(part)) => SqlCommand::decode(part).map(Self::Sql),
            (family::KEYS, Content(part)) => SpaceCommand::decode(part).map(Self::Keys),
            (family::LOCKS, Content(part)) => LocksCommand::decode(part).map(Self::Locks),
            (family::EVENTS, Content(part)) => EventsCommand::decode(part).map(Self::Events),
            (family::ITEMS, Content(part)) => ItemsCommand::decode(part).map(Self::Items),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Decode for SqlCommand {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Content(part)) => Statement::decode(part).map(Self::Statement),
            (2, Content(part)) => Bulk::decode(part).map(Self::Bulk),
            (3, Content(part)) => empty(part, Self::Vacuum),
            (4, Content(part)) => names(part).map(Self::Extend),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Decode for Read {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (family::SQL, Content(part)) => Statement::decode(part).map(Self::Sql),
            (family::KEYS, Content(part)) => SpaceCommand::decode(part).map(Self::Keys),
            (family::LOCKS, Content(part)) => LocksCommand::decode(part).map(Self::Locks),
            (family::EVENTS, Content(part)) => EventsQuery::decode(part).map(Self::Events),
            _ => Err(Flaw::Unknown),
        }
    }
}

fn names(part: Part<'_>) -> Result<Vec<String>, Flaw> {
    let name = |field: Result<_, _>| match field? {
        (1, Content(part)) => text(part),
        _ => Err(Flaw::Unknown),
    };
    let mut names = Vec::new();
    Fields::of(part).try_for_each(|field| push(&mut names, EXTENSIONS_MAX, name(field)?))?;
    Ok(names)
}

impl Decode for ReadCheck {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (mut read, mut stamp, mut answer) = (None, Stamp::default(), None);
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => read = Some(Read::decode(part)?),
                (2, Number(now)) => stamp.now = now,
                (3, Number(seed)) => stamp.seed = seed,
                (4, Content(part)) => answer = Some(u128::from_le_bytes(part.bytes.try_into().map_err(|_| SHORT)?)),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { read: read.ok_or(Flaw::Unknown)?, stamp, answer: answer.ok_or(Flaw::Unknown)? })
    }
}

impl Decode for DryRunRecord {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut dry_run = Self::default();
        for field in Fields::of(part) {
            match field? {
                (1, Number(index)) => dry_run.index = index,
                (2, Content(part)) => push(&mut dry_run.stamps, COMMANDS_MAX, Stamp::decode(part)?)?,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(dry_run)
    }
}

impl Decode for Stamp {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut stamp = Self::default();
        for field in Fields::of(part) {
            match field? {
                (1, Number(now)) => stamp.now = now,
                (2, Number(seed)) => stamp.seed = seed,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(stamp)
    }
}

impl<P: Decode> Decode for Statement<P> {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut statement = Self::default();
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => statement.sql = text(part)?.into(),
                (2, Content(part)) => push(&mut statement.params, PARAMETERS_MAX, P::decode(part)?)?,
                (3, Content(part)) => push(&mut statement.names, PARAMETERS_MAX, text(part)?)?,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(statement)
    }
}

impl Decode for Bulk {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (mut sql, mut width, mut rows) = (Cow::Borrowed(""), 0, Bytes::new());
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => sql = text(part)?.into(),
                (2, Number(number)) => width = small(number)?,
                (3, Content(part)) => rows = part.slice(),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { sql, rows: PackedRows::decode(width, rows).map_err(Flaw::Malformed)? })
    }
}

impl Decode for Value {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        if part.bytes.is_empty() { Ok(Self::Null) } else { value(only_field(part)?) }
    }
}

/// Decodes the value, other than NULL, that a field contains.
#[inline]
fn value(field: (u32, Field<'_>)) -> Result<Value, Flaw> {
    match field {
        (1, Number(number)) => Ok(Value::Integer(unzigzag(number))),
        (2, Double(number)) => Ok(Value::Real(number)),
        (3, Content(part)) => text(part).map(Value::Text),
        (4, Content(part)) => Ok(Value::Blob(part.slice())),
        _ => Err(Flaw::Unknown),
    }
}

impl Decode for Param {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        if part.bytes.is_empty() {
            return Ok(Self::Value(Value::Null));
        }
        match only_field(part)? {
            (5, Content(part)) => Returned::decode(part).map(Self::Returned),
            field => value(field).map(Self::Value),
        }
    }
}

impl Decode for Returned {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (mut step, mut column) = (0, None);
        for field in Fields::of(part) {
            match field? {
                (1, Number(number)) => step = small(number)?,
                (2, Number(number)) => column = Some(Column::Number(small(number)?)),
                (3, Content(part)) => column = Some(Column::Name(text(part)?)),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { step, column: column.ok_or(Flaw::Unknown)? })
    }
}

/// A row.
impl Decode for Vec<Value> {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut row = Self::new();
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => row.push(Value::decode(part)?),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(row)
    }
}

impl Decode for Outcome {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Content(part)) => Reply::decode(part).map(Ok),
            (2, Content(part)) => Failure::decode(part).map(Err),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Decode for Reply {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut reply = Self::default();
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => reply.results.push(CommandResult::decode(part)?),
                (2, Number(index)) => reply.first = Some(index),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(reply)
    }
}

impl Decode for CommandResult {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (family::CONTROL, Content(part)) => ControlReply::decode(part).map(Self::Control),
            (family::SQL, Content(part)) => SqlReply::decode(part).map(Self::Sql),
            (family::KEYS, Content(part)) => KeysReply::decode(part).map(Self::Keys),
            (family::LOCKS, Content(part)) => LocksReply::decode(part).map(Self::Locks),
            (family::EVENTS, Content(part)) => EventsReply::decode(part).map(Self::Events),
            (family::ITEMS, Content(part)) => ItemsReply::decode(part).map(Self::Items),
            (FAILED, Content(part)) => Failure::decode(part).map(Self::Failed),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Decode for SqlReply {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Content(part)) => empty(part, Self::Done),
            (2, Content(part)) => StatementResult::decode(part).map(Self::Statement),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Decode for StatementResult {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut result = Self::default();
        for field in Fields::of(part) {
            match field? {
                (1, Number(changes)) => result.changes = changes,
                (2, Number(rowid)) => result.last_insert_rowid = unzigzag(rowid),
                (3, Content(part)) => result.columns.push(text(part)?),
                (4, Content(part)) => result.rows.push(Decode::decode(part)?),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(result)
    }
}
