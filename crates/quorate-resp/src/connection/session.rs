//! How a connection begins, changes its user or its database, and ends.

use std::sync::Arc;

use bytes::Bytes;

use super::{Call, Connection, Replies};
use crate::batch::{Hello, Step};
use crate::commands::keys::database;
use crate::error::{Refusal, whole_text};
use crate::frame::{Frame, Protocol};
use crate::host::NOAUTH;
use crate::number::integer;

/// The version of Redis that the door tells its clients: it answers the commands of that version as Redis does.
pub const REDIS_VERSION: &str = "7.4.0";

type Ran = Result<Step, Refusal>;

pub fn ping(call: &mut Call) -> Ran {
    if call.args.left() > 1 {
        return Err(call.args.arity());
    }
    let message = call.args.next().ok();
    let is_listening = !call.connection.subscriptions.is_empty() && call.connection.protocol == Protocol::Two;
    Ok(match message {
        message if is_listening => Frame::bulks([Bytes::from_static(b"pong"), message.unwrap_or_default()]),
        Some(message) => Frame::Bulk(message),
        None => Frame::Simple("PONG"),
    }
    .into())
}

pub fn echo(call: &mut Call) -> Ran {
    Ok(Frame::Bulk(call.args.next()?).into())
}

pub fn quit(call: &mut Call) -> Ran {
    call.connection.is_closing = true;
    Ok(Frame::OK.into())
}

pub fn select(call: &mut Call) -> Ran {
    call.connection.space = database(&call.args.next()?)?;
    Ok(Frame::OK.into())
}

/// Makes the connection as it was at its beginning.
pub fn reset(call: &mut Call) -> Ran {
    let connection = &mut *call.connection;
    let (address, common) = (Arc::clone(&connection.address), Arc::clone(&connection.common));
    *connection = Connection::new(connection.id, address, connection.since, common);
    Ok(Frame::Simple("RESET").into())
}

pub fn auth(call: &mut Call) -> Ran {
    let words = call.args.rest();
    let (user, password) = match words.as_slice() {
        [_] if call.host.anonymous().is_ok() => return Err(NO_PASSWORD),
        [password] => (Bytes::from_static(b"default"), password.clone()),
        [user, password] => (user.clone(), password.clone()),
        _ => return Err(Refusal::Syntax),
    };
    Ok(Step::Login { user, password, hello: None })
}

pub fn hello(call: &mut Call) -> Ran {
    let mut hello = Hello { protocol: call.connection.protocol, name: None };
    if !call.args.is_empty() {
        let version = integer(&call.args.next()?);
        hello.protocol = match version.ok_or(NO_VERSION)? {
            2 => Protocol::Two,
            3 => Protocol::Three,
            _ => return Err(Refusal::Text("NOPROTO unsupported protocol version")),
        };
    }
    let mut login = None;
    while let Some(word) = call.args.peek() {
        if call.args.left() > 2 && call.args.option("AUTH") {
            login = Some((call.args.next()?, call.args.next()?));
        } else if call.args.left() > 1 && call.args.option("SETNAME") {
            hello.name = Some(super::client::name(call.args.next()?)?);
        } else {
            return Err(Refusal::HelloOption(whole_text(word)));
        }
    }
    match login {
        Some((user, password)) => Ok(Step::Login { user, password, hello: Some(hello) }),
        None => match call.connection.role(call.host) {
            Ok(_) => Ok(call.connection.greet(hello).into()),
            Err(NOAUTH) => Err(NO_LOGIN),
            Err(why) => Err(Refusal::NoRole(why.to_owned())),
        },
    }
}

const NO_LOGIN: Refusal = Refusal::Text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
     option can be used to authenticate the client and select the RESP protocol version at the same time",
);

/// As in Redis: the client takes it that there are users, and there are none.
const NO_PASSWORD: Refusal = Refusal::Text(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration \
     is correct?",
);

const NO_VERSION: Refusal = Refusal::Text("ERR Protocol version is not an integer or out of range");

impl Connection {
    /// Does what HELLO asks for.
    pub(super) fn greet(&mut self, hello: Hello) -> Frame {
        self.protocol = hello.protocol;
        if let Some(name) = hello.name {
            self.labels.name = name;
        }
        let version = match hello.protocol {
            Protocol::Two => 2,
            Protocol::Three => 3,
        };
        let facts = [
            ("server", Frame::bulk("redis")),
            ("version", Frame::bulk(REDIS_VERSION)),
            ("proto", Frame::Integer(version)),
            ("id", Frame::count(self.id)),
            ("mode", Frame::bulk("standalone")),
            ("role", Frame::bulk("master")),
            ("modules", Frame::Array(Vec::new())),
        ];
        Frame::Map(facts.into_iter().map(|(name, fact)| (Frame::bulk(name), fact)).collect())
    }
}

/// Reads how the client wants its replies.
pub fn reply(call: &mut Call) -> Ran {
    let modes = [("ON", Replies::On), ("OFF", Replies::Off), ("SKIP", Replies::SkipNext)];
    let mode = call.args.choice(&modes).ok_or(Refusal::Syntax)?;
    // What is off stays off: there is no reply to skip.
    if (call.connection.replies, mode) != (Replies::Off, Replies::SkipNext) {
        call.connection.replies = mode;
    }
    Ok(Frame::OK.into())
}
