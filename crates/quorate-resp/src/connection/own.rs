//! Our own commands that concern the connection or its requests: SQL, levels of reads, names of requests.

use bytes::Bytes;
use quorate_model::{Command, CommandResult, Param, SqlCommand, SqlReply, Statement, StatementResult, Value};

use super::Call;
use crate::batch::{Step, Terms};
use crate::commands::own::OURS;
use crate::error::Refusal;
use crate::frame::Frame;
use crate::host::Host;
use crate::limits::REQUEST_NAME_BYTES_MAX;
use crate::plan::{Plan, Results};
use crate::replies;
use crate::table::{Access, Found, Run, Spec, local, row};

/// The rows of our own commands on requests.
pub const OWN_COMMANDS: &[Spec] = &[
    local("q.sql", -2, OURS, "Runs a statement of SQL.", sql).alone().access(Access::Read),
    local("q.atomic", 1, OURS, "Has the transaction be done as a whole, or not at all.", atomic).alone(),
    local("q.id", -3, OURS, "Runs a request that has a name: once, however often it is sent.", named)
        .alone()
        .access(Access::Write),
    local("q.level", -1, OURS, "Chooses the level of the reads of the connection, or returns it.", level).alone(),
];

/// The level of reads of a connection that has chosen none.
const LEVEL_DEFAULT: &[u8] = b"local";

type Ran = Result<Step, Refusal>;

fn sql(call: &mut Call) -> Ran {
    let text = String::from_utf8(call.args.next()?.to_vec());
    let text = text.map_err(|_| Refusal::Text("ERR the statement is not UTF-8"))?;
    let params = call.args.rest().iter().map(|word| Param::Value(parameter(word))).collect();
    let is_write = call.host.may_write(&text);
    let statement = Statement { sql: text.into(), params, names: Vec::new() };
    let command = Command::Sql(SqlCommand::Statement(statement));
    Ok(Step::Plan(Plan { is_write, ..Plan::of(vec![command], finish) }))
}

/// Returns whether a call is a query of SQL, which is not a part of an entry.
pub fn is_query(Found { spec, arguments, .. }: Found<'_>, host: &dyn Host) -> bool {
    let text = arguments.first().and_then(|text| std::str::from_utf8(text).ok());
    spec.name == "q.sql" && text.is_some_and(|text| !host.may_write(text))
}

/// Returns a parameter: a text, or a blob if the bytes are none.
fn parameter(word: &Bytes) -> Value {
    let text = std::str::from_utf8(word);
    text.map_or_else(|_| Value::Blob(word.clone()), |text| Value::Text(text.to_owned()))
}

fn finish(results: Results) -> Frame {
    match results.into_iter().next() {
        Some(CommandResult::Sql(SqlReply::Statement(result))) => rows(result),
        Some(CommandResult::Sql(SqlReply::Done)) => rows(StatementResult::default()),
        Some(CommandResult::Failed(failure)) => failure.into(),
        other => replies::unexpected(&other),
    }
}

/// Returns rows as maps of their columns; for a statement that has none, what it changed.
fn rows(StatementResult { columns, rows, changes, last_insert_rowid }: StatementResult) -> Frame {
    if columns.is_empty() {
        let facts = [("changes", Frame::count(changes)), ("last_insert_rowid", Frame::Integer(last_insert_rowid))];
        return Frame::Map(facts.into_iter().map(|(name, fact)| (Frame::bulk(name), fact)).collect());
    }
    let names: Vec<Frame> = columns.into_iter().map(Frame::bulk).collect();
    let map = |row: Vec<Value>| Frame::Map(names.iter().cloned().zip(row.into_iter().map(value)).collect());
    Frame::Array(rows.into_iter().map(map).collect())
}

fn value(value: Value) -> Frame {
    match value {
        Value::Null => Frame::Null,
        Value::Integer(number) => Frame::Integer(number),
        Value::Real(number) => Frame::Double(number),
        Value::Text(text) => Frame::bulk(text),
        Value::Blob(bytes) => Frame::bulk(bytes),
    }
}

fn atomic(call: &mut Call) -> Ran {
    let running = call.connection.running.as_mut();
    running.ok_or(Refusal::Text("ERR Q.ATOMIC without MULTI"))?.is_atomic = true;
    Ok(Frame::OK.into())
}

fn named(call: &mut Call) -> Ran {
    let name = call.args.next()?;
    if name.is_empty() || name.len() > REQUEST_NAME_BYTES_MAX {
        return Err(Refusal::Text("ERR the name of a request has 1 to 128 bytes"));
    }
    let words = call.args.rest();
    let found = row(&words)?;
    let spec = found.spec;
    let is_exec = spec.name == "exec";
    if !is_exec && call.connection.is_in_transaction() {
        return Err(Refusal::Text("ERR in a transaction, only EXEC can have a name"));
    }
    // The same request draws the same when it is sent again.
    let mut moment = call.args.moment.clone();
    moment.seed = seed_of(&name);
    let writes_at_once = spec.access == Access::Write && matches!(spec.run, Run::Keys(_)) && !spec.is_alone;
    let may_be_named = is_exec || spec.name == "q.sql" || writes_at_once;
    let step = if may_be_named { call.connection.call(found, &moment, call.host)? } else { Frame::OK.into() };
    match step {
        Step::Exec(terms, _) if !terms.premises.is_empty() => {
            Err(Refusal::Text("ERR a transaction that watches keys can't have a name"))
        }
        Step::Exec(terms, parts) => Ok(Step::Exec(Terms { key: Some(name), ..terms }, parts)),
        Step::Plan(plan) if plan.is_write => Ok(Step::Named(name, plan)),
        _ => Err(Refusal::Text("ERR only a command that writes, and does not wait, can have a name")),
    }
}

/// The numbers of the hash FNV-1a.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Returns the seed of a request with a name.
fn seed_of(name: &[u8]) -> u64 {
    name.iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

fn level(call: &mut Call) -> Ran {
    if call.args.is_empty() {
        let level = call.connection.level.clone();
        return Ok(Frame::Bulk(level.unwrap_or(Bytes::from_static(LEVEL_DEFAULT))).into());
    }
    let word = call.args.next()?;
    call.args.end()?;
    if !std::str::from_utf8(&word).is_ok_and(|text| call.host.is_level(text)) {
        return Err(Refusal::Text("ERR the level is local, linearizable, bounded=TIME or at-least=POSITION"));
    }
    call.connection.level = Some(Bytes::copy_from_slice(&word));
    Ok(Frame::OK.into())
}
