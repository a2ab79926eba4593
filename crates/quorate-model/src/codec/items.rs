//! The family of the store for tests: see `docs/model-format.md`.

use bytes::Bytes;

use super::decode::Field::{Bytes as Content, Number};
use super::decode::{Decode, Fields, Flaw, Part, empty, only_field};
use super::encode::{Empty, Message, Out};
use crate::{ItemsCommand, ItemsReply};

/// A key, or a key with a value and a time.
struct Item<'a>(&'a [u8], &'a [u8], u64);

impl Message for Item<'_> {
    fn put(&self, out: &mut impl Out) {
        let Self(key, value, ttl) = self;
        out.bytes_unless_empty(1, key);
        out.bytes_unless_empty(2, value);
        out.number_unless_0(3, *ttl);
    }
}

impl Message for ItemsCommand {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Add { key, value, ttl } => out.message(1, &Item(key, value, *ttl)),
            Self::Take(key) => out.bytes(2, key),
            Self::Expect { key, value } => out.message(3, &Item(key, value, 0)),
            Self::Abort => out.message(4, &Empty),
        }
    }
}

impl Message for ItemsReply {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Done => out.message(1, &Empty),
            Self::Exists => out.message(2, &Empty),
            Self::Missing => out.message(3, &Empty),
            Self::Taken(value) => out.bytes(4, value),
        }
    }
}

impl Decode for ItemsCommand {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Content(part)) => item(part).map(|(key, value, ttl)| Self::Add { key, value, ttl }),
            (2, Content(part)) => Ok(Self::Take(part.slice())),
            (3, Content(part)) => match item(part)? {
                (key, value, 0) => Ok(Self::Expect { key, value }),
                _ => Err(Flaw::Unknown),
            },
            (4, Content(part)) => empty(part, Self::Abort),
            _ => Err(Flaw::Unknown),
        }
    }
}

/// Decodes the key of an item, its value and its time.
fn item(part: Part<'_>) -> Result<(Bytes, Bytes, u64), Flaw> {
    let (mut key, mut value, mut ttl) = Default::default();
    for field in Fields::of(part) {
        match field? {
            (1, Content(part)) => key = part.slice(),
            (2, Content(part)) => value = part.slice(),
            (3, Number(number)) => ttl = number,
            _ => return Err(Flaw::Unknown),
        }
    }
    Ok((key, value, ttl))
}

impl Decode for ItemsReply {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Content(part)) => empty(part, Self::Done),
            (2, Content(part)) => empty(part, Self::Exists),
            (3, Content(part)) => empty(part, Self::Missing),
            (4, Content(part)) => Ok(Self::Taken(part.slice())),
            _ => Err(Flaw::Unknown),
        }
    }
}
