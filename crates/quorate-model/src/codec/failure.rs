//! Failures: see `docs/model-format.md`.

use super::decode::Field::{Bytes as Content, Number};
use super::decode::{Decode, Fields, Flaw, Part, small, text, unzigzag};
use super::encode::{Message, Out};
use crate::{Failure, FailureKind};

impl Message for Failure {
    fn put(&self, out: &mut impl Out) {
        out.number_unless_0(1, self.kind.number().into());
        out.signed_unless_0(2, self.sqlite_code.into());
        self.command.iter().for_each(|command| out.number(3, (*command).into()));
        out.prose(4, &self.message);
        self.row.iter().for_each(|row| out.number(5, (*row).into()));
    }
}

impl Decode for Failure {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut kind = None;
        let mut failure = Self::new(FailureKind::Sql, String::new());
        for field in Fields::of(part) {
            match field? {
                (1, Number(number)) => kind = FailureKind::from_number(small(number)?),
                (2, Number(number)) => failure.sqlite_code = small(unzigzag(number))?,
                (3, Number(number)) => failure.command = Some(small(number)?),
                (4, Content(part)) => failure.message = text(part)?,
                (5, Number(number)) => failure.row = Some(small(number)?),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { kind: kind.ok_or(Flaw::Unknown)?, ..failure })
    }
}
