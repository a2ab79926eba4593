//! Encodes the types of this crate directly as the messages of `docs/model-format.md`. Each write of a client is
//! encoded once, and its outcome on every node.
//!
//! A message lists its fields once ([`Message::put`]), both for computing its length and for writing it.

use prost::encoding::{WireType, encode_varint, encoded_len_varint, key_len};

use super::{FAILED, PIPELINE, family};
use crate::{
    Bulk, Column, Command, CommandResult, DryRunRecord, Mode, Origin, Outcome, PackedRows, Param, Proposal, Read,
    ReadCheck, Reply, RequestKey, Returned, SqlCommand, SqlReply, Stamp, Statement, StatementResult, Value,
};

/// A type that is encoded as tagged fields. Never reuse or renumber a tag: logs and sessions on disk contain them.
pub(super) trait Message {
    /// Puts the fields in the order of their tags, without those of default value.
    fn put(&self, out: &mut impl Out);

    fn encoded_len(&self) -> usize {
        let mut length = Length(0);
        self.put(&mut length);
        length.0
    }

    fn encode(&self) -> Vec<u8> {
        self.encode_sized(self.encoded_len())
    }

    /// Encodes a message whose length is known.
    fn encode_sized(&self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        self.put(&mut bytes);
        bytes
    }
}

/// A destination for fields.
pub(super) trait Out {
    fn number(&mut self, tag: u32, number: u64);
    fn double(&mut self, tag: u32, number: f64);
    fn bytes(&mut self, tag: u32, bytes: &[u8]);
    fn message(&mut self, tag: u32, message: &impl Message);

    fn number_unless_0(&mut self, tag: u32, number: u64) {
        if number != 0 {
            self.number(tag, number);
        }
    }

    fn signed_unless_0(&mut self, tag: u32, number: i64) {
        self.number_unless_0(tag, zigzag(number));
    }

    fn text_unless_empty(&mut self, tag: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(tag, text.as_bytes());
        }
    }

    fn bytes_unless_empty(&mut self, tag: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes(tag, bytes);
        }
    }

    fn messages<'a>(&mut self, tag: u32, messages: impl IntoIterator<Item = &'a (impl Message + 'a)>) {
        messages.into_iter().for_each(|message| self.message(tag, message));
    }

    fn texts(&mut self, tag: u32, texts: &[String]) {
        texts.iter().for_each(|text| self.bytes(tag, text.as_bytes()));
    }

    /// Puts a text for people, which may differ between nodes.
    fn prose(&mut self, tag: u32, text: &str) {
        self.text_unless_empty(tag, text);
    }

    /// Puts the name of a column, which may differ between nodes; that there is one may not.
    fn column(&mut self, tag: u32, name: &str) {
        self.bytes(tag, name.as_bytes());
    }
}

/// Maps numbers that are close to 0, of either sign, to small numbers.
pub(super) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// Counts the bytes that would be written.
struct Length(usize);

impl Length {
    fn add(&mut self, tag: u32, content: usize) {
        self.0 = self.0.saturating_add(key_len(tag)).saturating_add(content);
    }
}

impl Out for Length {
    fn number(&mut self, tag: u32, number: u64) {
        self.add(tag, encoded_len_varint(number));
    }

    fn double(&mut self, tag: u32, _: f64) {
        self.add(tag, size_of::<f64>());
    }

    fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        self.add(tag, encoded_len_varint(bytes.len() as u64).saturating_add(bytes.len()));
    }

    fn message(&mut self, tag: u32, message: &impl Message) {
        let length = message.encoded_len();
        self.add(tag, encoded_len_varint(length as u64).saturating_add(length));
    }
}

/// Always inlined: where the tag is a constant, this writes one byte.
#[inline(always)]
fn put_key(out: &mut Vec<u8>, tag: u32, wire_type: WireType) {
    put_varint(out, u64::from(tag << 3 | wire_type as u32));
}

#[inline(always)]
fn put_varint(out: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        // Most numbers are small.
        Ok(byte) if byte < 0x80 => out.push(byte),
        _ => put_long_varint(out, number),
    }
}

#[inline(never)]
fn put_long_varint(out: &mut Vec<u8>, number: u64) {
    encode_varint(number, out);
}

impl Out for Vec<u8> {
    fn number(&mut self, tag: u32, number: u64) {
        put_key(self, tag, WireType::Varint);
        put_varint(self, number);
    }

    fn double(&mut self, tag: u32, number: f64) {
        put_key(self, tag, WireType::SixtyFourBit);
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        put_key(self, tag, WireType::LengthDelimited);
        put_varint(self, bytes.len() as u64);
        self.extend_from_slice(bytes);
    }

    fn message(&mut self, tag: u32, message: &impl Message) {
        put_key(self, tag, WireType::LengthDelimited);
        put_varint(self, message.encoded_len() as u64);
        message.put(self);
    }
}

/// Writes a message for comparison between nodes: messages of failures are left out, names of columns are empty, and
/// the length of a nested message follows it.
pub(super) struct Canonical<'a>(pub(super) &'a mut Vec<u8>);

impl Out for Canonical<'_> {
    fn number(&mut self, tag: u32, number: u64) {
        self.0.number(tag, number);
    }

    fn double(&mut self, tag: u32, number: f64) {
        self.0.double(tag, number);
    }

    fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        self.0.bytes(tag, bytes);
    }

    fn message(&mut self, tag: u32, message: &impl Message) {
        put_key(self.0, tag, WireType::LengthDelimited);
        let begin = self.0.len();
        message.put(self);
        let length = self.0.len().saturating_sub(begin) as u64;
        self.0.extend_from_slice(&length.to_le_bytes());
    }

    fn prose(&mut self, _: u32, _: &str) {}

    fn column(&mut self, tag: u32, _: &str) {
        self.bytes(tag, &[]);
    }
}

/// A message without fields; its presence is all that it says.
pub(super) struct Empty;

impl Message for Empty {
    fn put(&self, _: &mut impl Out) {}
}

struct Names<'a>(&'a [String]);

impl Message for Names<'_> {
    fn put(&self, out: &mut impl Out) {
        out.texts(1, self.0);
    }
}

impl Message for Proposal {
    fn put(&self, out: &mut impl Out) {
        out.number_unless_0(1, self.level.into());
        out.messages(2, &self.origin);
        out.number_unless_0(3, self.budget);
        out.messages(4, &self.commands);
        out.messages(5, &self.read_checks);
        out.messages(6, &self.dry_run);
        if self.mode == Mode::Pipeline {
            out.number(7, PIPELINE);
        }
        out.messages(8, &self.key);
    }
}

impl Message for Origin {
    fn put(&self, out: &mut impl Out) {
        out.number_unless_0(1, self.session.0);
        out.number_unless_0(2, self.sequence);
        out.number_unless_0(3, self.floor);
    }
}

impl Message for RequestKey {
    fn put(&self, out: &mut impl Out) {
        out.bytes(1, self.key());
        out.bytes(2, self.hash());
    }
}

impl Message for Command {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Control(command) => out.message(family::CONTROL, command),
            Self::Sql(command) => out.message(family::SQL, command),
            Self::Keys(command) => out.message(family::KEYS, command),
            Self::Locks(command) => out.message(family::LOCKS, command),
            Self::Events(command) => out.message(family::EVENTS, command),
            Self::Items(command) => out.message(family::ITEMS, command),
        }
    }
}

impl Message for SqlCommand {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Statement(statement) => out.message(1, statement),
            Self::Bulk(bulk) => out.message(2, bulk),
            Self::Vacuum => out.message(3, &Empty),
            Self::Extend(names) => out.message(4, &Names(names)),
        }
    }
}

impl Message for Read {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Sql(query) => out.message(family::SQL, query),
            Self::Keys(command) => out.message(family::KEYS, command),
            Self::Locks(command) => out.message(family::LOCKS, command),
            Self::Events(query) => out.message(family::EVENTS, query),
        }
    }
}

impl Message for ReadCheck {
    fn put(&self, out: &mut impl Out) {
        out.message(1, &self.read);
        out.number_unless_0(2, self.stamp.now);
        out.number_unless_0(3, self.stamp.seed);
        out.bytes(4, &self.answer.to_le_bytes());
    }
}

impl Message for DryRunRecord {
    fn put(&self, out: &mut impl Out) {
        out.number_unless_0(1, self.index);
        out.messages(2, &self.stamps);
    }
}

impl Message for Stamp {
    fn put(&self, out: &mut impl Out) {
        out.number_unless_0(1, self.now);
        out.number_unless_0(2, self.seed);
    }
}

impl<P: Message> Message for Statement<P> {
    fn put(&self, out: &mut impl Out) {
        out.text_unless_empty(1, &self.sql);
        out.messages(2, &self.params);
        out.texts(3, &self.names);
    }
}

impl Message for Bulk {
    fn put(&self, out: &mut impl Out) {
        out.text_unless_empty(1, &self.sql);
        self.rows.put(out);
    }
}

impl Message for PackedRows {
    fn put(&self, out: &mut impl Out) {
        out.number_unless_0(2, self.width() as u64);
        if !self.is_empty() {
            out.bytes(3, self.bytes());
        }
    }
}

impl Message for Value {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Null => {}
            Self::Integer(value) => out.number(1, zigzag(*value)),
            Self::Real(value) => out.double(2, *value),
            Self::Text(text) => out.bytes(3, text.as_bytes()),
            Self::Blob(bytes) => out.bytes(4, bytes),
        }
    }
}

impl Message for Param {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Value(value) => value.put(out),
            Self::Returned(returned) => out.message(5, returned),
        }
    }
}

impl Message for Returned {
    fn put(&self, out: &mut impl Out) {
        out.number_unless_0(1, self.step.into());
        match &self.column {
            Column::Number(number) => out.number(2, (*number).into()),
            Column::Name(name) => out.bytes(3, name.as_bytes()),
        }
    }
}

/// A row.
impl Message for [Value] {
    fn put(&self, out: &mut impl Out) {
        out.messages(1, self);
    }
}

impl Message for Vec<Value> {
    fn put(&self, out: &mut impl Out) {
        self.as_slice().put(out);
    }
}

impl Message for Outcome {
    fn put(&self, out: &mut impl Out) {
        match self {
            Ok(reply) => out.message(1, reply),
            Err(failure) => out.message(2, failure),
        }
    }
}

impl Message for Reply {
    fn put(&self, out: &mut impl Out) {
        out.messages(1, &self.results);
        self.first.iter().for_each(|index| out.number(2, *index));
    }
}

impl Message for CommandResult {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Control(reply) => out.message(family::CONTROL, reply),
            Self::Sql(reply) => out.message(family::SQL, reply),
            Self::Keys(reply) => out.message(family::KEYS, reply),
            Self::Locks(reply) => out.message(family::LOCKS, reply),
            Self::Events(reply) => out.message(family::EVENTS, reply),
            Self::Items(reply) => out.message(family::ITEMS, reply),
            Self::Failed(failure) => out.message(FAILED, failure),
        }
    }
}

impl Message for SqlReply {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Done => out.message(1, &Empty),
            Self::Statement(statement) => out.message(2, statement),
        }
    }
}

impl Message for StatementResult {
    fn put(&self, out: &mut impl Out) {
        out.number_unless_0(1, self.changes);
        out.signed_unless_0(2, self.last_insert_rowid);
        self.columns.iter().for_each(|column| out.column(3, column));
        out.messages(4, &self.rows);
    }
}
