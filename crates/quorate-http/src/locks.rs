//! Locks over HTTP: a lock is a resource that is acquired by `POST`, renewed by `PUT` and given back by `DELETE`.
//!
//! Invariants:
//! - Nobody renews a lease but who holds it: an answer grants it for the time that it says.
//! - A request that is sent again changes nothing: the same holder has the same token, or the same place.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use quorate::keys::{Page, Span};
use quorate::locks::limits::LIST_MAX;
use quorate::locks::{Claim, Lease, LockInfo, LocksCommand, LocksReply, TTL_DEFAULT, Token};
use quorate::steps;

use crate::asked::Asked;
use crate::error::Problem;
use crate::json::{Json, seconds};
use crate::message::{Answer, Content, Request, answer, empty, is_read, with_position};
use crate::octets::{encoded, write};
use crate::options::LOCK_WAIT_MAX;
use crate::resource::Resource;
use crate::work::Work;

/// The path of all locks.
pub(crate) const ALL: &str = "/locks";

/// What the path of a lock starts with. The rest is its name, percent-encoded; it may contain slashes as they are.
const ONE: &str = "/locks/";

/// The paths, as they are described.
#[cfg(test)]
pub(crate) const PATHS: [&str; 2] = ["/locks", "/locks/{name}"];

/// Returns the methods that a path allows, as the header `Allow` lists them.
pub(crate) fn methods(resource: Resource) -> &'static str {
    match resource {
        Resource::All => "GET, HEAD",
        Resource::One => "GET, HEAD, POST, PUT, DELETE",
    }
}

/// Answers a request.
pub(crate) async fn serve(work: &mut Work, resource: Resource, request: &Request) -> Result<Answer, Problem> {
    let asked = Asked::of(request)?;
    if resource == Resource::All {
        return list(work, &asked).await;
    }
    let name = asked.rest_of_path(ONE)?;
    if is_read(&request.method) {
        return inspect(work, &asked, name).await;
    }
    // The first answer to a request would be given again, though its lease may have ended since.
    work.unkeyed("a request on a lock has no Idempotency-Key: if it names its holder, it may be sent again as it is")?;
    match request.method {
        Method::POST => acquire(work, &asked, name, request.body.clone()).await,
        Method::PUT => renew(work, &asked, name).await,
        _ if asked.flag("force")? => force(work, &asked, name).await,
        _ => release(work, &asked, name).await,
    }
}

/// Answers with a page of locks.
async fn list(work: &Work, asked: &Asked<'_>) -> Result<Answer, Problem> {
    asked.only(&["prefix", "from", "limit"])?;
    let Span { from, to } = asked.bytes("prefix").map_or(Span::ALL, Span::prefix);
    let names = Span { from: asked.bytes("from").cloned().into_iter().fold(from, Ord::max), to };
    let limit = asked.number("limit")?.unwrap_or(LIST_MAX);
    let page: Page<LockInfo> = work.sql().locks().run(LocksCommand::List { names, limit }).await?;
    let mut json = Json::default();
    json.raw("{\"locks\":").list(page.rows, |json, lock| write_lock(json, &lock));
    let next = page.next.map(|next| encoded(&next));
    asked.write_next(&mut json, next.as_deref().map(|next| ("from", next)));
    Ok(answer(StatusCode::OK, Content::Json, json.into_bytes()))
}

/// Answers with who holds a lock and who waits for it.
async fn inspect(work: &Work, asked: &Asked<'_>, name: Bytes) -> Result<Answer, Problem> {
    asked.only(&[])?;
    let lock = work.sql().locks().inspect(name).await?.ok_or(Problem::NoLock)?;
    let mut json = Json::default();
    write_lock(&mut json, &lock);
    Ok(answer(StatusCode::OK, Content::Json, json.into_bytes()))
}

/// Acquires a lock for a holder; the body is what others may read of it.
async fn acquire(work: &Work, asked: &Asked<'_>, name: Bytes, note: Bytes) -> Result<Answer, Problem> {
    asked.only(&["holder", "ttl", "wait", "permits"])?;
    let wait = asked.time("wait")?.unwrap_or_default();
    if wait > LOCK_WAIT_MAX {
        return Err(Problem::malformed(format!("'wait' is at most {LOCK_WAIT_MAX:?}; then ask again")));
    }
    let acquire = work.sql().locks().acquire(name).ttl(ttl(asked)?).note(note);
    let acquire = acquire.permits(asked.number("permits")?.unwrap_or(1));
    let acquire = match asked.bytes("holder") {
        Some(holder) => acquire.holder(holder.clone()),
        None => acquire,
    };
    let granted = acquire.grant(wait).await?.ok_or(Problem::LockBusy)?;
    let answer = lease(&granted.holder, granted.token, granted.left);
    Ok(with_position(answer, Some(granted.position)))
}

/// Begins the lease of a holder anew.
async fn renew(work: &mut Work, asked: &Asked<'_>, name: Bytes) -> Result<Answer, Problem> {
    asked.only(&["holder", "token", "ttl"])?;
    let (holder, token, ttl) = (holder(asked)?, token(asked)?, ttl(asked)?);
    let token = token.ok_or_else(|| Problem::malformed("name the token of the grant, as in ?token=123"))?;
    let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
    match run(work, LocksCommand::Renew { name, holder: holder.clone(), token, ttl }).await? {
        LocksReply::Held(Lease { token, left }) => {
            let answer = lease(&holder, token, Duration::from_nanos(left));
            Ok(with_position(answer, work.position()))
        }
        _ => Err(Problem::LockLost),
    }
}

/// Gives a lock back, or ends a wait for it.
async fn release(work: &mut Work, asked: &Asked<'_>, name: Bytes) -> Result<Answer, Problem> {
    asked.only(&["holder", "force"])?;
    match run(work, LocksCommand::Release { name, holder: holder(asked)? }).await? {
        LocksReply::Missing => Err(Problem::NoLock),
        _ => Ok(with_position(empty(StatusCode::NO_CONTENT), work.position())),
    }
}

/// Takes a lock from those who hold it, or only from the one with a token.
async fn force(work: &mut Work, asked: &Asked<'_>, name: Bytes) -> Result<Answer, Problem> {
    asked.only(&["force", "token"])?;
    let ended = match run(work, LocksCommand::Force { name, token: token(asked)? }).await? {
        LocksReply::Forced(ended) => ended,
        _ => Vec::new(),
    };
    let mut json = Json::default();
    json.raw("{\"ended\":").list(ended, write_token).raw("}");
    Ok(with_position(answer(StatusCode::OK, Content::Json, json.into_bytes()), work.position()))
}

/// Runs a command that writes.
async fn run(work: &mut Work, command: LocksCommand) -> Result<LocksReply, Problem> {
    let call = work.sql().locks().run::<LocksReply>(command);
    let replies = work.change(steps![call]).await?;
    Ok(replies.of_lock(0).unwrap_or(LocksReply::Missing))
}

fn holder(asked: &Asked<'_>) -> Result<Bytes, Problem> {
    asked.bytes("holder").cloned().ok_or_else(|| Problem::malformed("name the holder, as in ?holder=worker-1"))
}

fn token(asked: &Asked<'_>) -> Result<Option<Token>, Problem> {
    Ok(asked.number("token")?.map(Token))
}

fn ttl(asked: &Asked<'_>) -> Result<Duration, Problem> {
    Ok(asked.time("ttl")?.unwrap_or(TTL_DEFAULT))
}

/// Answers with a lease.
fn lease(holder: &[u8], token: Token, left: Duration) -> Answer {
    let mut json = Json::default();
    json.raw("{\"holder\":");
    write(&mut json, holder);
    json.raw(",\"token\":");
    write_token(&mut json, token);
    json.raw(",\"left\":").raw(&seconds(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))).raw("}");
    answer(StatusCode::OK, Content::Json, json.into_bytes())
}

fn write_lock(json: &mut Json, lock: &LockInfo) {
    json.raw("{\"name\":");
    write(json, &lock.name);
    json.raw(",\"permits\":").integer(lock.permits);
    json.raw(",\"holders\":").list(&lock.holders, write_claim);
    json.raw(",\"waiters\":").list(&lock.waiters, write_claim).raw("}");
}

fn write_claim(json: &mut Json, claim: &Claim) {
    json.raw("{\"holder\":");
    write(json, &claim.holder);
    json.raw(",\"token\":");
    write_token(json, claim.token);
    json.raw(",\"left\":").raw(&seconds(claim.left)).raw(",\"note\":");
    write(json, &claim.note);
    json.raw("}");
}

/// Writes a token as versions are: many clients read numbers as floats.
fn write_token(json: &mut Json, token: Token) {
    json.string(&token.0.to_string());
}
