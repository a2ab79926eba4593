//! Our own commands on locks.
//!
//! A client that holds a lock renews it by itself. It is known by the name of the holder: its own, or one that the
//! reply tells it.

use bytes::Bytes;
use quorate_keys::{Page, Span};
use quorate_model::locks::limits::LIST_MAX;
use quorate_model::locks::{Claim, LockInfo, LocksCommand, LocksReply, Token};
use quorate_model::{Command, CommandResult};

use super::own::OURS;
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::plan::{Awaited, Plan, Results, Wait};
use crate::replies;
use crate::table::{NONE, Spec, read, write};

/// The rows of commands on locks. What only reads locks is asked by itself.
pub const COMMANDS: &[Spec] = &[
    write("q.lock", -3, NONE, OURS, "Acquires a lock for milliseconds; returns its token, and the holder.", acquire)
        .alone(),
    write("q.renew", 5, NONE, OURS, "Begins the time of a lock that is held anew.", renew),
    write("q.unlock", 3, NONE, OURS, "Gives a lock back, or ends the wait for it.", release),
    write("q.forceunlock", -2, NONE, OURS, "Takes a lock from all who hold it, or from one of them.", force),
    write("q.holds", 3, NONE, OURS, "Fails unless a lock is held with this token.", holds),
    read("q.lockinfo", 2, NONE, OURS, "Returns who holds a lock, and who waits for it.", inspect).alone(),
    read("q.locks", -1, NONE, OURS, "Returns the locks that start so, in their order.", list).alone(),
];

const MILLISECOND: u64 = 1_000_000;

/// Reads milliseconds, and returns nanoseconds.
fn time(args: &mut Args) -> Result<u64, Refusal> {
    Ok(args.positive()?.saturating_mul(MILLISECOND))
}

fn token(args: &mut Args) -> Result<Token, Refusal> {
    args.positive().map(Token)
}

fn plan(command: LocksCommand, finish: impl FnOnce(LocksReply) -> Frame + Send + 'static) -> Plan {
    Plan::of(vec![Command::Locks(command)], |results: Results| match results.into_iter().next() {
        Some(CommandResult::Locks(reply)) => finish(reply),
        Some(CommandResult::Failed(failure)) => failure.into(),
        other => replies::unexpected(&other),
    })
}

fn acquire(args: &mut Args) -> Planned {
    let (name, ttl) = (args.next()?, time(args)?);
    let mut holder = Bytes::from(format!("{:016x}", args.moment.seed));
    let (mut permits, mut wait, mut note) = (1, None, Bytes::new());
    while !args.is_empty() {
        if args.option("HOLDER") {
            holder = args.next()?;
        } else if args.option("PERMITS") {
            permits = args.positive()?;
        } else if args.option("WAIT") {
            wait = Some(time(args)?).filter(|wait| *wait > 0);
        } else if args.option("NOTE") {
            note = args.next()?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    let command = LocksCommand::Acquire { name, holder: holder.clone(), ttl, permits, wait: None, note };
    let asked = command.clone();
    let ask = move || {
        let holder = holder.clone();
        plan(asked.clone(), |reply| granted(reply, holder))
    };
    let Some(wait) = wait else { return Ok(ask()) };
    let until = Some(args.moment.now.saturating_add(wait));
    Ok(Plan::or_wait(ask, Wait { awaited: Awaited::Lock(command), until, otherwise: Frame::NullArray }))
}

/// Returns the token of a lock, and its holder; null if it is not free.
fn granted(reply: LocksReply, holder: Bytes) -> Frame {
    match reply {
        LocksReply::Held(lease) => Frame::Array(vec![Frame::count(lease.token.0), Frame::Bulk(holder)]),
        LocksReply::Busy(_) | LocksReply::Waiting(_) => Frame::NullArray,
        LocksReply::OtherPermits(permits) => Frame::error(format!(
            "ERR the lock has {permits} permits as long as somebody holds it or waits; ask for as many"
        )),
        other => replies::unexpected(&other),
    }
}

fn renew(args: &mut Args) -> Planned {
    let (name, holder, token, ttl) = (args.next()?, args.next()?, token(args)?, time(args)?);
    Ok(plan(LocksCommand::Renew { name, holder, token, ttl }, is_held))
}

fn is_held(reply: LocksReply) -> Frame {
    Frame::Integer(i64::from(matches!(reply, LocksReply::Held(_))))
}

fn release(args: &mut Args) -> Planned {
    let (name, holder) = (args.next()?, args.next()?);
    Ok(plan(LocksCommand::Release { name, holder }, |reply| {
        Frame::Integer(i64::from(matches!(reply, LocksReply::Released(_) | LocksReply::Withdrawn)))
    }))
}

fn force(args: &mut Args) -> Planned {
    let name = args.next()?;
    let token = if args.is_empty() { None } else { Some(token(args)?) };
    args.end()?;
    Ok(plan(LocksCommand::Force { name, token }, |reply| match reply {
        LocksReply::Forced(tokens) => {
            Frame::Array(tokens.into_iter().map(|Token(number)| Frame::count(number)).collect())
        }
        other => replies::unexpected(&other),
    }))
}

fn holds(args: &mut Args) -> Planned {
    let (name, token) = (args.next()?, token(args)?);
    Ok(plan(LocksCommand::Expect { name, token }, is_held))
}

fn inspect(args: &mut Args) -> Planned {
    let name = args.next()?;
    Ok(plan(LocksCommand::Inspect { name }, |reply| match reply {
        LocksReply::Lock(info) => described(info),
        LocksReply::Missing => Frame::NullArray,
        other => replies::unexpected(&other),
    }))
}

fn list(args: &mut Args) -> Planned {
    let prefix = if args.is_empty() { Bytes::new() } else { args.next()? };
    let (mut names, mut limit) = (Span::prefix(&prefix), LIST_MAX);
    while !args.is_empty() {
        if args.option("LIMIT") {
            limit = args.positive()?.clamp(1, LIST_MAX);
        } else if args.option("FROM") {
            names.from = names.from.max(args.next()?);
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok(plan(LocksCommand::List { names, limit }, |reply| match reply {
        LocksReply::Locks(Page { rows, next }) => {
            let rows = rows.into_iter().map(described).collect();
            Frame::Array(vec![Frame::bulk_or_null(next), Frame::Array(rows)])
        }
        other => replies::unexpected(&other),
    }))
}

fn described(LockInfo { name, permits, holders, waiters }: LockInfo) -> Frame {
    let claims = |claims: Vec<Claim>| Frame::Array(claims.into_iter().map(claim).collect());
    map([
        ("name", Frame::Bulk(name)),
        ("permits", Frame::count(permits)),
        ("holders", claims(holders)),
        ("waiters", claims(waiters)),
    ])
}

fn claim(Claim { holder, token, left, note }: Claim) -> Frame {
    map([
        ("holder", Frame::Bulk(holder)),
        ("token", Frame::count(token.0)),
        ("left", Frame::count(left / MILLISECOND)),
        ("note", Frame::Bulk(note)),
    ])
}

fn map<const N: usize>(facts: [(&'static str, Frame); N]) -> Frame {
    Frame::Map(facts.into_iter().map(|(name, fact)| (Frame::bulk(name), fact)).collect())
}
