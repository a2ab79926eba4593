//! The messages of `docs/model-format.md`, read straight into the types of this crate: every node reads every proposal.
//!
//! What is read here may still say something twice, or in more bytes than it needs. Whoever asks for a whole message
//! compares its length with what encoding it would take, which leaves one encoding of each ([`super::strictly`]).

use bytes::Bytes;
use prost::encoding::decode_varint;

use super::DecodeError;
use crate::limits::{COMMANDS_MAX, EXTENSIONS_MAX, PARAMETERS_MAX, PREMISES_MAX};
use crate::{
    Bulk, Column, Command, CommandResult, Failure, FailureKind, Origin, Outcome, PackedRows, Param, Premise, Proposal,
    Rehearsal, Reply, Returned, SessionId, Stamp, Statement, StatementResult, Value,
};

/// The part of a field's key that says how its content stands there.
const KEY_TYPE: u64 = 7;
const KEY_TYPE_BITS: u32 = 3;
const VARINT: u64 = 0;
const SIXTY_FOUR_BITS: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

/// Why bytes are no message. Small, since every field may have one.
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
const NO_TEXT: Flaw = Flaw::Malformed("a text is not UTF-8");

/// What can be read from the fields of a message.
pub(super) trait Decode: Sized {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw>;
}

/// The content of a field.
pub(super) enum Field<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

use Field::{Bytes as Content, Double, Number};

/// The fields of a message, as they come: in the order of their numbers.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    /// The number of the field before.
    last: u32,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Field<'a>), Flaw>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.field())
    }
}

impl<'a> Fields<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, last: 0 }
    }

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
                Content(bytes)
            }
            _ => return Err(Flaw::Unknown),
        };
        let number = small(key >> KEY_TYPE_BITS)?;
        // The same said in another order has the same length, so comparing lengths would not see it.
        if number < self.last {
            return Err(Flaw::Unknown);
        }
        self.last = number;
        Ok((number, field))
    }

    fn varint(&mut self) -> Result<u64, Flaw> {
        match self.rest.split_first() {
            // Most numbers are small.
            Some((byte, rest)) if *byte < 0x80 => {
                self.rest = rest;
                Ok((*byte).into())
            }
            _ => decode_varint(&mut self.rest).map_err(|_| SHORT),
        }
    }
}

/// What [`super::encode`] makes small of either sign.
fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn small<T: TryFrom<N>, N>(number: N) -> Result<T, Flaw> {
    T::try_from(number).map_err(|_| TOO_LARGE)
}

fn text(bytes: &[u8]) -> Result<String, Flaw> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| NO_TEXT)
}

/// Adds to a list, or fails if it is full. Checked here, so that a hostile message can't fill the memory with elements
/// before `check_limits` counts them.
fn push<T>(list: &mut Vec<T>, max: usize, item: T) -> Result<(), Flaw> {
    if list.len() >= max {
        return Err(TOO_MANY);
    }
    list.push(item);
    Ok(())
}

/// A message without fields.
fn empty<T>(bytes: &[u8], value: T) -> Result<T, Flaw> {
    if bytes.is_empty() { Ok(value) } else { Err(Flaw::Unknown) }
}

impl Decode for Proposal {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        // One command is what nearly all have.
        let commands = Vec::with_capacity(1);
        let mut proposal = Self { level: 0, origin: None, budget: 0, commands, premises: Vec::new(), rehearsal: None };
        for field in Fields::of(bytes) {
            match field? {
                (1, Number(level)) => proposal.level = small(level)?,
                (2, Content(bytes)) => proposal.origin = Some(Origin::decode(bytes)?),
                (3, Number(budget)) => proposal.budget = budget,
                (4, Content(bytes)) => push(&mut proposal.commands, COMMANDS_MAX, Command::decode(bytes)?)?,
                (5, Content(bytes)) => push(&mut proposal.premises, PREMISES_MAX, Premise::decode(bytes)?)?,
                (6, Content(bytes)) => proposal.rehearsal = Some(Rehearsal::decode(bytes)?),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(proposal)
    }
}

impl Decode for Origin {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut origin = Self { session: SessionId(0), sequence: 0, floor: 0 };
        for field in Fields::of(bytes) {
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

/// The only field of a message that is one of several.
fn only_field(bytes: &[u8]) -> Result<(u32, Field<'_>), Flaw> {
    let mut fields = Fields::of(bytes);
    let field = fields.field()?;
    if fields.rest.is_empty() { Ok(field) } else { Err(Flaw::Unknown) }
}

impl Decode for Command {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        match only_field(bytes)? {
            (1, Content(bytes)) => Statement::decode(bytes).map(Self::Statement),
            (2, Content(bytes)) => empty(bytes, Self::OpenSession),
            (3, Number(session)) => Ok(Self::CloseSession(SessionId(session))),
            (4, Content(bytes)) => empty(bytes, Self::Vacuum),
            (5, Content(bytes)) => Bulk::decode(bytes).map(Self::Bulk),
            (6, Content(bytes)) => empty(bytes, Self::Verify),
            (7, Content(bytes)) => names(bytes).map(Self::Extend),
            _ => Err(Flaw::Unknown),
        }
    }
}

fn names(bytes: &[u8]) -> Result<Vec<String>, Flaw> {
    let name = |field: Result<_, _>| match field? {
        (1, Content(bytes)) => text(bytes),
        _ => Err(Flaw::Unknown),
    };
    let mut names = Vec::new();
    Fields::of(bytes).try_for_each(|field| push(&mut names, EXTENSIONS_MAX, name(field)?))?;
    Ok(names)
}

/// How many fields a message has, at most this many and one more.
pub(super) fn count(bytes: &[u8], max: usize) -> usize {
    Fields::of(bytes).map_while(Result::ok).take(max.saturating_add(1)).count()
}

impl Decode for Premise {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let (mut query, mut stamp, mut rows) = (None, Stamp::default(), None);
        for field in Fields::of(bytes) {
            match field? {
                (1, Content(bytes)) => query = Some(Statement::decode(bytes)?),
                (2, Number(now)) => stamp.now = now,
                (3, Number(seed)) => stamp.seed = seed,
                (4, Content(bytes)) => rows = Some(u128::from_le_bytes(bytes.try_into().map_err(|_| SHORT)?)),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { query: query.ok_or(Flaw::Unknown)?, stamp, rows: rows.ok_or(Flaw::Unknown)? })
    }
}

impl Decode for Rehearsal {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut rehearsal = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, Number(index)) => rehearsal.index = index,
                (2, Content(bytes)) => push(&mut rehearsal.stamps, COMMANDS_MAX, Stamp::decode(bytes)?)?,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(rehearsal)
    }
}

impl Decode for Stamp {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut stamp = Self::default();
        for field in Fields::of(bytes) {
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
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut statement = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, Content(bytes)) => statement.sql = text(bytes)?,
                (2, Content(bytes)) => push(&mut statement.params, PARAMETERS_MAX, P::decode(bytes)?)?,
                (3, Content(bytes)) => push(&mut statement.names, PARAMETERS_MAX, text(bytes)?)?,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(statement)
    }
}

impl Decode for Bulk {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let (mut sql, mut width, mut rows) = (String::new(), 0, Bytes::new());
        for field in Fields::of(bytes) {
            match field? {
                (1, Content(bytes)) => sql = text(bytes)?,
                (2, Number(number)) => width = small(number)?,
                (3, Content(bytes)) => rows = Bytes::copy_from_slice(bytes),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { sql, rows: PackedRows::decode(width, rows).map_err(Flaw::Malformed)? })
    }
}

impl Decode for Value {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        if bytes.is_empty() { Ok(Self::Null) } else { value(only_field(bytes)?) }
    }
}

/// The value, other than NULL, that a field holds.
fn value(field: (u32, Field<'_>)) -> Result<Value, Flaw> {
    match field {
        (1, Number(number)) => Ok(Value::Integer(unzigzag(number))),
        (2, Double(number)) => Ok(Value::Real(number)),
        (3, Content(bytes)) => text(bytes).map(Value::Text),
        (4, Content(bytes)) => Ok(Value::Blob(bytes.to_vec())),
        _ => Err(Flaw::Unknown),
    }
}

impl Decode for Param {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        if bytes.is_empty() {
            return Ok(Self::Value(Value::Null));
        }
        match only_field(bytes)? {
            (5, Content(bytes)) => Returned::decode(bytes).map(Self::Returned),
            field => value(field).map(Self::Value),
        }
    }
}

impl Decode for Returned {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let (mut step, mut column) = (0, None);
        for field in Fields::of(bytes) {
            match field? {
                (1, Number(number)) => step = small(number)?,
                (2, Number(number)) => column = Some(Column::Number(small(number)?)),
                (3, Content(bytes)) => column = Some(Column::Name(text(bytes)?)),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { step, column: column.ok_or(Flaw::Unknown)? })
    }
}

/// A row.
impl Decode for Vec<Value> {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let value = |field: Result<_, _>| match field? {
            (1, Content(bytes)) => Value::decode(bytes),
            _ => Err(Flaw::Unknown),
        };
        Fields::of(bytes).map(value).collect()
    }
}

impl Decode for Outcome {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        match only_field(bytes)? {
            (1, Content(bytes)) => Reply::decode(bytes).map(Ok),
            (2, Content(bytes)) => Failure::decode(bytes).map(Err),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Decode for Reply {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let result = |field: Result<_, _>| match field? {
            (1, Content(bytes)) => CommandResult::decode(bytes),
            _ => Err(Flaw::Unknown),
        };
        Ok(Self { results: Fields::of(bytes).map(result).collect::<Result<_, _>>()? })
    }
}

impl Decode for CommandResult {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        match only_field(bytes)? {
            (1, Content(bytes)) => empty(bytes, Self::Done),
            (2, Content(bytes)) => StatementResult::decode(bytes).map(Self::Statement),
            (3, Number(session)) => Ok(Self::Session(SessionId(session))),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Decode for StatementResult {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut result = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, Number(changes)) => result.changes = changes,
                (2, Number(rowid)) => result.last_insert_rowid = unzigzag(rowid),
                (3, Content(bytes)) => result.columns.push(text(bytes)?),
                (4, Content(bytes)) => result.rows.push(Decode::decode(bytes)?),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(result)
    }
}

impl Decode for Failure {
    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut kind = None;
        let mut failure = Self::new(FailureKind::Sql, String::new());
        for field in Fields::of(bytes) {
            match field? {
                (1, Number(number)) => kind = FailureKind::from_number(small(number)?),
                (2, Number(number)) => failure.sqlite_code = small(unzigzag(number))?,
                (3, Number(number)) => failure.command = Some(small(number)?),
                (4, Content(bytes)) => failure.message = text(bytes)?,
                (5, Number(number)) => failure.row = Some(small(number)?),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { kind: kind.ok_or(Flaw::Unknown)?, ..failure })
    }
}
