//! Commands on the connections of the node: CLIENT LIST, CLIENT KILL and CLIENT UNBLOCK.

use std::collections::BTreeSet;

use super::Call;
use crate::args::Args;
use crate::batch::Step;
use crate::control::Unblocked;
use crate::error::{Refusal, text};
use crate::frame::Frame;
use crate::limits::CACHES_END;
use crate::number::integer;
use crate::summary::Summary;

type Ran = Result<Step, Refusal>;

const SECOND: u64 = 1_000_000_000;

/// Whether a connection is wanted.
type Filter = Box<dyn Fn(&Summary) -> bool>;

/// Which connections are wanted: those that pass all filters.
struct Wanted {
    filters: Vec<Filter>,
    skips_me: bool,
}

impl Wanted {
    /// Reads filters, to the end of the arguments.
    fn read(args: &mut Args, skips_me: bool) -> Result<Self, Refusal> {
        let mut wanted = Self { filters: Vec::new(), skips_me };
        if args.left() == 1 {
            return Err(Refusal::Syntax);
        }
        while !args.is_empty() {
            if args.option("SKIPME") {
                wanted.skips_me = args.choice(&[("YES", true), ("NO", false)]).ok_or(Refusal::Syntax)?;
            } else {
                wanted.filters.push(filter(args)?);
            }
        }
        Ok(wanted)
    }

    /// Returns the connections that are wanted.
    fn of(&self, call: &Call) -> Vec<Summary> {
        let me = call.connection.id;
        let mut found = everyone(call);
        found.retain(|client| !(self.skips_me && client.id == me) && self.filters.iter().all(|filter| filter(client)));
        found
    }
}

/// Returns what is shown of all connections.
fn everyone(call: &Call) -> Vec<Summary> {
    let mut all = call.host.clients(call.connection.id);
    all.push(call.connection.summary());
    all
}

fn filter(args: &mut Args) -> Result<Filter, Refusal> {
    let now = args.moment.now;
    Ok(if args.option("ID") {
        let ids = ids(args)?;
        Box::new(move |client| ids.contains(&client.id))
    } else if args.option("TYPE") {
        of_type(args)?
    } else if args.option("ADDR") {
        let address = args.next()?;
        Box::new(move |client| client.address.as_bytes() == address)
    } else if args.option("USER") {
        let user = args.next()?;
        Box::new(move |client| client.user() == user)
    } else if args.option("NAME") {
        let name = args.next()?;
        Box::new(move |client| client.labels.name == name)
    } else if args.option("LIB-NAME") {
        let name = args.next()?;
        Box::new(move |client| client.labels.library == name)
    } else if args.option("LIB-VER") {
        let version = args.next()?;
        Box::new(move |client| client.labels.version == version)
    } else if args.option("DB") {
        let space = integer(&args.next()?).ok_or(Refusal::Text("ERR DB is not an integer or out of range"))?;
        if !(0..i64::from(CACHES_END)).contains(&space) {
            return Err(Refusal::Text("ERR DB number should be between 0 and 15"));
        }
        Box::new(move |client| i64::from(client.space) == space)
    } else if args.option("MAXAGE") {
        let age = integer(&args.next()?).ok_or(Refusal::Text("ERR maxage is not an integer or out of range"))?;
        let age = u64::try_from(age).ok().filter(|age| *age > 0);
        let age = age.ok_or(Refusal::Text("ERR maxage should be greater than 0"))?;
        Box::new(move |client| now.saturating_sub(client.since) / SECOND >= age)
    } else if args.option("LADDR") {
        return Err(Refusal::Text("ERR the addresses on which clients have connected are not kept; use ADDR or ID"));
    } else {
        return Err(Refusal::Syntax);
    })
}

/// Reads the numbers of connections. They end before the first word that is not a number.
fn ids(args: &mut Args) -> Result<BTreeSet<u64>, Refusal> {
    let mut ids = BTreeSet::new();
    while let Some(id) = args.peek().and_then(|word| integer(word)) {
        args.next()?;
        let id = u64::try_from(id).ok().filter(|id| *id > 0);
        ids.insert(id.ok_or(Refusal::Text("ERR client-id should be greater than 0"))?);
    }
    Ok(ids)
}

fn of_type(args: &mut Args) -> Result<Filter, Refusal> {
    let kind = args.next()?;
    Ok(match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Box::new(|client| !client.is_listening()),
        b"pubsub" => Box::new(Summary::is_listening),
        b"master" | b"primary" | b"replica" | b"slave" => Box::new(|_| false),
        _ => return Err(Refusal::ClientType(text(&kind))),
    })
}

pub fn list(call: &mut Call) -> Ran {
    let found = Wanted::read(&mut call.args, false)?.of(call);
    let now = call.args.moment.now;
    Ok(Frame::Text(found.iter().map(|client| client.line(now) + "\n").collect()).into())
}

pub fn kill(call: &mut Call) -> Ran {
    if call.args.left() == 1 {
        let address = call.args.next()?;
        let found = everyone(call).into_iter().filter(|client| client.address.as_bytes() == address).collect();
        return match end(call, found) {
            0 => Err(Refusal::Text("ERR No such client")),
            _ => Ok(Frame::OK.into()),
        };
    }
    let found = Wanted::read(&mut call.args, true)?.of(call);
    Ok(Frame::count(end(call, found)).into())
}

/// Ends connections, and returns how many there were. That of the client is closed after the reply.
fn end(call: &mut Call, found: Vec<Summary>) -> u64 {
    let me = call.connection.id;
    call.connection.is_closing |= found.iter().any(|client| client.id == me);
    let controls = &call.connection.common.controls;
    found.iter().map(|client| u64::from(client.id == me || controls.kill(client.id))).sum()
}

pub fn unblock(call: &mut Call) -> Ran {
    const HOW: &[(&str, Unblocked)] = &[("TIMEOUT", Unblocked::Late), ("ERROR", Unblocked::Failed)];
    let id = call.args.next()?;
    // As in Redis, more words say nothing.
    let how = if call.args.left() == 1 { call.args.choice(HOW) } else { Some(Unblocked::Late) };
    let how = how.ok_or(Refusal::Text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"))?;
    let id = u64::try_from(integer(&id).ok_or(Refusal::NotInteger)?).unwrap_or(0);
    Ok(Frame::Integer(i64::from(call.connection.common.controls.unblock(id, how))).into())
}
