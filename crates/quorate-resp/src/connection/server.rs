//! Commands on the server.

use bytes::Bytes;

use super::Call;
use super::introspect::{self, HELP};
use crate::batch::Step;
use crate::error::{Refusal, text, whole_text};
use crate::frame::Frame;
use crate::glob::Glob;
use crate::notifications::{NOTIFY, Notifications};
use crate::number::integer;
use crate::slow_log;
use crate::table::{Access, Spec, local, sub, sub_or};

/// The rows of commands on the server.
pub const SERVER_COMMANDS: &[Spec] = &[
    local("info", -1, "1.0.0", "Describes the server.", info),
    local("time", 1, "2.6.0", "Returns the time of the server.", time),
    local("role", 1, "2.8.12", "Returns that writes are taken here.", role),
    local("wait", 3, "3.0.0", "Returns how many other members have each write.", wait),
    sub_or("command", "2.8.13", "Describes commands.", introspect::COMMAND, introspect::every),
    sub("config", "2.0.0", "The parameters of the server.", CONFIG),
    sub("slowlog", "2.2.12", "The requests that took long.", SLOWLOG),
    sub("latency", "2.8.13", "What took long.", LATENCY),
];

const CONFIG: &[Spec] = &[
    local("get", -3, "2.0.0", "Returns parameters.", config_get),
    local("set", -4, "2.0.0", "Sets parameters of the node until it ends; few can be changed.", config_set)
        .access(Access::Write),
    local("resetstat", 2, "2.0.0", "Does nothing: the counts are kept.", ok),
    HELP,
];

const SLOWLOG: &[Spec] = &[
    local("get", -2, "2.2.12", "Returns the latest requests of the node that took long.", slow_requests),
    local("len", 2, "2.2.12", "Returns how many there are.", slow_count),
    local("reset", 2, "2.2.12", "Forgets them.", forget_slow).access(Access::Write),
    HELP,
];

const LATENCY: &[Spec] = &[
    local("latest", 2, "2.8.13", "Returns none: the metrics of the server say what took long.", none),
    local("history", 3, "2.8.13", "Returns none.", none),
    local("reset", -2, "2.8.13", "Returns 0.", zero),
    HELP,
];

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

type Ran = Result<Step, Refusal>;

fn ok(_: &mut Call) -> Ran {
    Ok(Frame::OK.into())
}

fn none(_: &mut Call) -> Ran {
    Ok(Frame::Array(Vec::new()).into())
}

fn zero(_: &mut Call) -> Ran {
    Ok(Frame::Integer(0).into())
}

fn info(call: &mut Call) -> Ran {
    let sections = call.args.rest();
    let sections: Vec<_> = sections.iter().map(|name| String::from_utf8_lossy(name).to_lowercase()).collect();
    Ok(Frame::Text(call.host.info(&sections)).into())
}

fn time(call: &mut Call) -> Ran {
    let now = call.args.moment.now;
    let parts = [now / SECOND, now % SECOND / MICROSECOND];
    Ok(Frame::bulks(parts.map(|part| part.to_string().into())).into())
}

fn role(_: &mut Call) -> Ran {
    Ok(Frame::Array(vec![Frame::bulk("master"), Frame::Integer(0), Frame::Array(Vec::new())]).into())
}

fn wait(call: &mut Call) -> Ran {
    call.args.integer()?;
    timeout(call)?;
    Ok(Frame::count(call.host.replicas()).into())
}

/// Reads how long a client would wait, and checks it. No client waits: each acknowledged write is on the disks of a
/// majority.
pub fn timeout(call: &mut Call) -> Result<(), Refusal> {
    let timeout = integer(&call.args.next()?);
    let milliseconds = (call.args.moment.now / MILLISECOND) as i64;
    match timeout {
        None => Err(Refusal::Text("ERR timeout is not an integer or out of range")),
        Some(timeout) if timeout < 0 => Err(Refusal::Text("ERR timeout is negative")),
        Some(timeout) if timeout > i64::MAX - milliseconds => Err(Refusal::Text("ERR timeout is out of range")),
        Some(_) => Ok(()),
    }
}

fn config_get(call: &mut Call) -> Ran {
    let patterns = call.args.rest().into_iter().map(|word| Ok((Glob::new(word.to_ascii_lowercase().into())?, word)));
    let patterns = patterns.collect::<Result<Vec<_>, _>>()?;
    let mut found = Vec::new();
    for (name, value) in parameters(call) {
        let Some((_, word)) = patterns.iter().find(|(glob, _)| glob.matches(name.as_bytes())) else { continue };
        // As in Redis, a name is shown as it was sent.
        let is_name = word.eq_ignore_ascii_case(name.as_bytes());
        let name = if is_name { Frame::Bulk(word.clone()) } else { Frame::bulk(name) };
        found.push((name, Frame::bulk(value)));
    }
    Ok(Frame::Map(found).into())
}

/// Returns all parameters: those of the server, and those that can be changed.
fn parameters(call: &Call) -> Vec<(&'static str, String)> {
    let mut parameters = call.host.parameters();
    parameters.extend(call.connection.common.slow_log.parameters());
    parameters
}

/// What CONFIG SET changes.
enum Change {
    Notifications(Notifications),
    SlowLog(slow_log::Limit),
    Nothing,
}

fn config_set(call: &mut Call) -> Ran {
    let parameters = parameters(call);
    let mut given: Vec<(&'static str, &str, Bytes)> = Vec::new();
    let pairs = call.args.pairs().map_err(|_| Refusal::Syntax)?;
    for (name, value) in pairs {
        let known = parameters.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        let Some((known, is)) = known else {
            return Err(Refusal::Parameter(whole_text(&name)));
        };
        if given.iter().any(|(other, ..)| other == known) {
            return Err(Refusal::ParameterTwice(whole_text(&name)));
        }
        given.push((known, is, value));
    }
    // All are changed, or none.
    let changes = given.into_iter().map(|(name, is, value)| change(name, is, &value));
    for change in changes.collect::<Result<Vec<_>, _>>()? {
        match change {
            Change::Notifications(notifications) => call.host.notify(notifications),
            Change::SlowLog(limit) => call.connection.common.slow_log.set(limit),
            Change::Nothing => {}
        }
    }
    Ok(Frame::OK.into())
}

/// Reads the value that a parameter is to have, which has another one now.
fn change(name: &'static str, is: &str, value: &[u8]) -> Result<Change, Refusal> {
    if name == NOTIFY {
        return Notifications::parse(value).map(Change::Notifications).ok_or(Refusal::EventClass);
    }
    match slow_log::Limit::read(name, value) {
        Some(limit) => limit.map(Change::SlowLog).map_err(|why| Refusal::ParameterValue(name, why)),
        None if value == is.as_bytes() => Ok(Change::Nothing),
        None => Err(Refusal::ParameterValue(name, "it can't have this value here")),
    }
}

fn slow_requests(call: &mut Call) -> Ran {
    const COUNT: i64 = 10;
    if call.args.left() > 1 {
        return Err(Refusal::Subcommand { name: text(call.args.word), of: "slowlog" });
    }
    let count = if call.args.is_empty() { Some(COUNT) } else { integer(&call.args.next()?) };
    let count = count.filter(|count| *count >= -1);
    let count = count.ok_or(Refusal::Text("ERR count should be greater than or equal to -1"))?;
    // -1 is all.
    Ok(call.connection.common.slow_log.latest(usize::try_from(count).unwrap_or(usize::MAX)).into())
}

fn slow_count(call: &mut Call) -> Ran {
    Ok(Frame::count(call.connection.common.slow_log.len() as u64).into())
}

fn forget_slow(call: &mut Call) -> Ran {
    call.connection.common.slow_log.clear();
    Ok(Frame::OK.into())
}
