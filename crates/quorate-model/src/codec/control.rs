//! The family of the cluster and its clients, users, and the archiver: see `docs/model-format.md`.

use std::str;

use super::decode::Field::{Bytes as Content, Number};
use super::decode::{Decode, Fields, Flaw, Part, empty, only_field, small, text};
use super::encode::{Empty, Message, Out};
use crate::limits::USER_TOKENS_MAX;
use crate::{
    Appointment, Archiver, ControlCommand, ControlReply, NodeId, SessionId, TokenHash, TokenId, User, UserCommand,
    UserRole, UserToken, Verifier,
};

impl Message for ControlCommand {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::OpenSession => out.message(1, &Empty),
            Self::CloseSession(session) => out.number(2, session.0),
            Self::Verify => out.message(3, &Empty),
            Self::Tick => out.message(4, &Empty),
            Self::Raise(level) => out.number(5, (*level).into()),
            Self::User(command) => out.message(6, command),
            Self::Appoint(appointment) => out.message(7, appointment),
        }
    }
}

impl Message for ControlReply {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Done => out.message(1, &Empty),
            Self::Session(session) => out.number(2, session.0),
            Self::Archiver(Some(archiver)) => out.message(3, archiver),
            Self::Archiver(None) => out.message(3, &Empty),
        }
    }
}

impl Decode for ControlCommand {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Content(part)) => empty(part, Self::OpenSession),
            (2, Number(session)) => Ok(Self::CloseSession(SessionId(session))),
            (3, Content(part)) => empty(part, Self::Verify),
            (4, Content(part)) => empty(part, Self::Tick),
            (5, Number(level)) => small(level).map(Self::Raise),
            (6, Content(part)) => UserCommand::decode(part).map(Self::User),
            (7, Content(part)) => Appointment::decode(part).map(Self::Appoint),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Decode for ControlReply {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Content(part)) => empty(part, Self::Done),
            (2, Number(session)) => Ok(Self::Session(SessionId(session))),
            (3, Content(part)) if part.bytes().is_empty() => Ok(Self::Archiver(None)),
            (3, Content(part)) => Archiver::decode(part).map(|archiver| Self::Archiver(Some(archiver))),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Message for Appointment {
    fn put(&self, out: &mut impl Out) {
        self.node.iter().for_each(|node| out.number(1, node.0));
        out.number_unless_0(2, self.expected);
    }
}

impl Decode for Appointment {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut appointment = Self { node: None, expected: 0 };
        for field in Fields::of(part) {
            match field? {
                (1, Number(node)) => appointment.node = Some(NodeId(node)),
                (2, Number(expected)) => appointment.expected = expected,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(appointment)
    }
}

impl Message for Archiver {
    fn put(&self, out: &mut impl Out) {
        out.number(1, self.node.0);
        out.number_unless_0(2, self.token);
    }
}

impl Decode for Archiver {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (mut archiver, mut token) = (None, 0);
        for field in Fields::of(part) {
            match field? {
                (1, Number(node)) => archiver = Some(NodeId(node)),
                (2, Number(number)) => token = number,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { node: archiver.ok_or(Flaw::Unknown)?, token })
    }
}

/// What a command says about a user; each command has some of the fields.
#[derive(Default)]
struct Facts<'a> {
    name: &'a str,
    role: Option<UserRole>,
    verifier: Option<&'a str>,
    hash: Option<TokenHash>,
    id: Option<TokenId>,
}

impl Message for Facts<'_> {
    fn put(&self, out: &mut impl Out) {
        out.text_unless_empty(1, self.name);
        self.role.iter().for_each(|role| out.number(2, role.number().into()));
        self.verifier.iter().for_each(|verifier| out.bytes(3, verifier.as_bytes()));
        self.hash.iter().for_each(|hash| out.bytes(4, hash.bytes()));
        self.id.iter().for_each(|id| out.number(5, id.0));
    }
}

impl<'a> Facts<'a> {
    fn decode(part: Part<'a>) -> Result<Self, Flaw> {
        let mut facts = Self::default();
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => facts.name = borrowed(part)?,
                (2, Number(number)) => facts.role = Some(role(number)?),
                (3, Content(part)) => facts.verifier = Some(borrowed(part)?),
                (4, Content(part)) => facts.hash = Some(hash(part)?),
                (5, Number(number)) => facts.id = Some(TokenId(number)),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(facts)
    }
}

fn borrowed(part: Part<'_>) -> Result<&str, Flaw> {
    str::from_utf8(part.bytes()).map_err(|_| super::decode::NOT_UTF8)
}

fn role(number: u64) -> Result<UserRole, Flaw> {
    UserRole::from_number(small(number)?).ok_or(Flaw::Unknown)
}

fn hash(part: Part<'_>) -> Result<TokenHash, Flaw> {
    part.bytes().try_into().map(TokenHash::new).map_err(|_| Flaw::Unknown)
}

fn verifier_text(verifier: &Option<Verifier>) -> Option<&str> {
    verifier.as_ref().map(Verifier::text)
}

impl Message for UserCommand {
    fn put(&self, out: &mut impl Out) {
        let facts = Facts { name: self.name(), ..Facts::default() };
        match self {
            Self::Add { role, verifier, token, .. } => {
                let verifier = verifier_text(verifier);
                out.message(1, &Facts { role: Some(*role), verifier, hash: *token, ..facts });
            }
            Self::Remove(_) => out.message(2, &facts),
            Self::SetRole { role, .. } => out.message(3, &Facts { role: Some(*role), ..facts }),
            Self::SetVerifier { verifier, .. } => {
                out.message(4, &Facts { verifier: verifier_text(verifier), ..facts });
            }
            Self::AddToken { hash, .. } => out.message(5, &Facts { hash: Some(*hash), ..facts }),
            Self::RemoveToken { id, .. } => out.message(6, &Facts { id: Some(*id), ..facts }),
        }
    }
}

impl Decode for UserCommand {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (tag, Content(part)) = only_field(part)? else { return Err(Flaw::Unknown) };
        let Facts { name, role, verifier, hash, id } = Facts::decode(part)?;
        let (name, verifier) = (name.to_owned(), verifier.map(Verifier::new));
        // A field that the command does not have is an error, and so is one that is missing.
        match (tag, role, verifier, hash, id) {
            (1, Some(role), verifier, token, None) => Ok(Self::Add { name, role, verifier, token }),
            (2, None, None, None, None) => Ok(Self::Remove(name)),
            (3, Some(role), None, None, None) => Ok(Self::SetRole { name, role }),
            (4, None, verifier, None, None) => Ok(Self::SetVerifier { name, verifier }),
            (5, None, None, Some(hash), None) => Ok(Self::AddToken { name, hash }),
            (6, None, None, None, Some(id)) => Ok(Self::RemoveToken { name, id }),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Message for UserToken {
    fn put(&self, out: &mut impl Out) {
        out.bytes(1, self.hash.bytes());
        out.number_unless_0(2, self.created);
    }
}

impl Decode for UserToken {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (mut token, mut created) = (None, 0);
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => token = Some(hash(part)?),
                (2, Number(number)) => created = number,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { hash: token.ok_or(Flaw::Unknown)?, created })
    }
}

impl Message for User {
    fn put(&self, out: &mut impl Out) {
        out.text_unless_empty(1, &self.name);
        out.number(2, self.role.number().into());
        self.verifier.iter().for_each(|verifier| out.bytes(3, verifier.text().as_bytes()));
        out.messages(4, &self.tokens);
    }
}

impl Decode for User {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (mut name, mut kind, mut verifier, mut tokens) = (String::new(), None, None, Vec::new());
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => name = text(part)?,
                (2, Number(number)) => kind = Some(role(number)?),
                (3, Content(part)) => verifier = Some(Verifier::new(text(part)?)),
                (4, Content(part)) => super::decode::push(&mut tokens, USER_TOKENS_MAX, UserToken::decode(part)?)?,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { name, role: kind.ok_or(Flaw::Unknown)?, verifier, tokens })
    }
}
