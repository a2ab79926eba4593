//! What a client says of itself, and the rows of the commands of connections.

use std::sync::Arc;

use bytes::Bytes;

use super::clients;
use super::introspect::HELP;
use super::session;
use super::{Call, Connection};
use crate::batch::Step;
use crate::error::{Refusal, whole_text};
use crate::frame::Frame;
use crate::limits::LABEL_BYTES_MAX;
use crate::summary::Summary;
use crate::table::{Access, Spec, local, sub};

/// The rows of commands of connections.
pub const COMMANDS: &[Spec] = &[
    local("hello", -1, "6.0.0", "Begins a connection, and chooses the protocol.", session::hello)
        .before_login()
        .alone(),
    local("auth", -2, "1.0.0", "Logs in.", session::auth).before_login().alone(),
    local("quit", -1, "1.0.0", "Closes the connection.", session::quit).before_login(),
    local("reset", 1, "6.2.0", "Makes the connection as it was at its beginning.", session::reset).before_login(),
    local("ping", -1, "1.0.0", "Returns that the server is there.", session::ping),
    local("echo", 2, "1.0.0", "Returns what it is given.", session::echo),
    local("select", 2, "1.0.0", "Changes the database.", session::select),
    sub("client", "2.4.0", "What there is to say of connections.", CLIENT),
];

const CLIENT: &[Spec] = &[
    local("id", 2, "5.0.0", "Returns the number of the connection.", id),
    local("getname", 2, "2.6.9", "Returns the name of the connection.", get_name),
    local("setname", 3, "2.6.9", "Gives the connection a name.", set_name),
    local("setinfo", 4, "7.2.0", "Says which library the client is.", set_info),
    local("info", 2, "6.2.0", "Describes the connection.", info),
    local("list", -2, "2.4.0", "Describes connections of the node.", clients::list),
    local("kill", -3, "2.4.0", "Ends connections of the node.", clients::kill).access(Access::Write),
    local("unblock", -3, "5.0.0", "Ends what a client waits for.", clients::unblock).access(Access::Write),
    local("reply", 3, "3.2.0", "Chooses which requests have replies.", session::reply),
    local("no-evict", 3, "7.0.0", "Does nothing: no client is thrown out for its memory.", on_or_off),
    local("no-touch", 3, "7.2.0", "Does nothing: times of access are not kept.", on_or_off),
    local("tracking", -3, "6.0.0", "Is refused.", tracking),
    HELP,
];

type Ran = Result<Step, Refusal>;

/// Checks the name that a client gives its connection.
pub fn name(word: Bytes) -> Result<Bytes, Refusal> {
    label("Client names", word)
}

/// Checks what a client says of itself.
fn label(what: &str, word: Bytes) -> Result<Bytes, Refusal> {
    let is_plain = word.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if !is_plain {
        return Err(Refusal::Label(what.to_owned()));
    }
    if word.len() > LABEL_BYTES_MAX {
        return Err(Refusal::Text("ERR the name has more than 256 bytes"));
    }
    // A copy, since a slice would hold the bytes of the whole request.
    Ok(Bytes::copy_from_slice(&word))
}

impl Connection {
    /// Returns what others are shown of the connection.
    pub fn summary(&self) -> Summary {
        Summary {
            id: self.id,
            address: Arc::clone(&self.address),
            since: self.since,
            labels: self.labels.clone(),
            space: self.space,
            channels: self.subscriptions.channels(),
            patterns: self.subscriptions.patterns(),
            shards: self.subscriptions.shards(),
            queued: self.transaction.as_ref().map(super::Transaction::len),
            watched: self.watched.len(),
            last: self.last,
            user: self.user.as_ref().map(|(user, _)| user.clone()),
            protocol: self.protocol,
        }
    }
}

fn id(call: &mut Call) -> Ran {
    Ok(Frame::count(call.connection.id).into())
}

fn get_name(call: &mut Call) -> Ran {
    let name = call.connection.labels.name.clone();
    Ok(Frame::bulk_or_null(Some(name).filter(|name| !name.is_empty())).into())
}

fn set_name(call: &mut Call) -> Ran {
    call.connection.labels.name = name(call.args.next()?)?;
    Ok(Frame::OK.into())
}

fn set_info(call: &mut Call) -> Ran {
    let (what, word) = (call.args.next()?, call.args.next()?);
    let labels = &mut call.connection.labels;
    let place = match what.to_ascii_lowercase().as_slice() {
        b"lib-name" => &mut labels.library,
        b"lib-ver" => &mut labels.version,
        _ => return Err(Refusal::Option(whole_text(&what))),
    };
    *place = label(&whole_text(&what), word)?;
    Ok(Frame::OK.into())
}

fn info(call: &mut Call) -> Ran {
    Ok(Frame::Text(call.connection.summary().line(call.args.moment.now) + "\n").into())
}

fn on_or_off(call: &mut Call) -> Ran {
    call.args.choice(&[("ON", ()), ("OFF", ())]).ok_or(Refusal::Syntax)?;
    Ok(Frame::OK.into())
}

fn tracking(_: &mut Call) -> Ran {
    Err(Refusal::Text("ERR client-side caching is not supported"))
}
