//! Transactions: MULTI, EXEC and their like.
//!
//! A command of a transaction is kept as it was sent, and read when the transaction runs. So one that is wrong has its
//! error in the reply of EXEC, as in Redis; only a command that does not exist, has a wrong number of arguments, or is
//! not allowed, makes EXEC fail as a whole. After Q.ATOMIC, one that is wrong does, too.

use bytes::Bytes;
use quorate_keys::{KeyCommand, KeysCommand, KeysReply, Space, SpaceCommand};

use super::{Call, Connection};
use crate::batch::{Part, Step, Terms};
use crate::error::Refusal;
use crate::frame::{Frame, Protocol};
use crate::limits::{TRANSACTION_BYTES_MAX, TRANSACTION_COMMANDS_MAX, TRANSACTION_COSTLY_MAX, WATCHED_KEYS_MAX};
use crate::plan::{Outcome, Plan, Premise, all};
use crate::replies;
use crate::summary::Labels;
use crate::table::{ALL, Found, Run, Spec, local, row};

/// The rows of commands of transactions.
pub const TRANSACTION_COMMANDS: &[Spec] = &[
    local("multi", 1, "1.2.0", "Begins a transaction.", multi),
    local("exec", 1, "1.2.0", "Runs the transaction.", exec),
    local("discard", 1, "2.0.0", "Ends the transaction; nothing of it runs.", discard),
    local("watch", -2, "2.2.0", "Has the next transaction depend on keys.", watch).keys(ALL).alone(),
    local("unwatch", 1, "2.2.0", "Has the next transaction depend on no keys.", unwatch),
];

type Ran = Result<Step, Refusal>;

/// The database, the protocol, and what the client has said of itself.
pub type State = (Space, Protocol, Labels);

/// A transaction that has begun.
#[derive(Debug, Default)]
pub struct Transaction {
    commands: Vec<Vec<Bytes>>,
    /// What the commands take.
    bytes: usize,
    /// How many of them are costly.
    costly: usize,
    has_failed: bool,
    /// Whether a command of it is done by itself, or by the connection, which is as before if EXEC fails.
    is_alone: bool,
}

impl Transaction {
    /// Has EXEC fail.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Returns how many commands it has.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns whether EXEC is done by itself.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Keeps a command for EXEC.
    pub fn queue(&mut self, words: &[Bytes], spec: &Spec) -> Ran {
        self.is_alone |= spec.is_alone || matches!(spec.run, Run::Local(_));
        self.bytes += words.iter().map(Bytes::len).sum::<usize>() + size_of_val(words);
        self.costly += usize::from(spec.is_costly);
        if self.commands.len() >= TRANSACTION_COMMANDS_MAX || self.bytes > TRANSACTION_BYTES_MAX {
            self.has_failed = true;
            self.commands.clear();
            return Err(Refusal::Text("ERR the transaction has too many commands, or too many bytes"));
        }
        if self.costly > TRANSACTION_COSTLY_MAX {
            self.has_failed = true;
            return Err(Refusal::Text("ERR the transaction has more than 100 of LCS, SORT and SORT_RO"));
        }
        self.commands.push(copy(words));
        Ok(Frame::Simple("QUEUED").into())
    }
}

/// Returns a copy of a request. Slices would hold all bytes that have arrived with it.
fn copy(words: &[Bytes]) -> Vec<Bytes> {
    let (all, mut from) = (Bytes::from(words.concat()), 0);
    let next = |word: &Bytes| {
        let start = from;
        from += word.len();
        all.slice(start..from)
    };
    words.iter().map(next).collect()
}

/// Returns whether a command can't be sent while a transaction has begun.
pub fn is_refused(Found { of, spec, .. }: Found<'_>) -> bool {
    matches!((of, spec.name), (None, "multi" | "watch" | "save" | "q.level") | (Some("client"), "reply"))
}

/// Returns whether a command runs although a transaction has begun.
pub fn runs_at_once(Found { of, spec, .. }: Found<'_>) -> bool {
    of.is_none() && matches!(spec.name, "exec" | "discard" | "quit" | "reset" | "q.id")
}

fn multi(call: &mut Call) -> Ran {
    call.connection.transaction = Some(Transaction::default());
    Ok(Frame::OK.into())
}

fn discard(call: &mut Call) -> Ran {
    let transaction = call.connection.transaction.take();
    transaction.ok_or(Refusal::Text("ERR DISCARD without MULTI"))?;
    call.connection.watched.clear();
    Ok(Frame::OK.into())
}

fn exec(call: &mut Call) -> Ran {
    let transaction = call.connection.transaction.take().ok_or(Refusal::Text("ERR EXEC without MULTI"))?;
    let premises = std::mem::take(&mut call.connection.watched);
    if transaction.has_failed {
        return Err(Refusal::Text("EXECABORT Transaction discarded because of previous errors."));
    }
    call.connection.before = transaction.is_alone.then(|| call.connection.state());
    call.connection.running = Some(Terms { premises, ..Terms::default() });
    let mut parts = Vec::with_capacity(transaction.commands.len());
    let mut moment = call.args.moment.clone();
    for words in &transaction.commands {
        moment.seed = moment.seed.rotate_left(7).wrapping_add(1);
        let step = row(words).and_then(|found| call.connection.call(found, &moment, call.host));
        parts.push(match step {
            Ok(Step::Plan(mut plan)) => {
                // What it reads, it reads where it writes.
                plan.is_write = true;
                Part::Open(plan)
            }
            Ok(Step::Replies(frames)) => Part::Done(frames.into_iter().next().unwrap_or(Frame::OK)),
            Ok(_) => Part::Done(Frame::error("ERR Command not allowed inside a transaction")),
            Err(refusal) => Part::Done(Frame::error(refusal)),
        });
    }
    let terms = call.connection.running.take().unwrap_or_default();
    let wrong = parts.iter().find_map(|part| if let Part::Done(Frame::Error(text)) = part { Some(text) } else { None });
    match wrong {
        Some(text) if terms.is_atomic => Err(Refusal::ExecAborted(text.clone())),
        _ => Ok(Step::Exec(terms, parts)),
    }
}

fn watch(call: &mut Call) -> Ran {
    let space = call.args.moment.space;
    // Copies, since slices would hold the bytes of the whole request.
    let keys: Vec<Bytes> = call.args.rest().iter().map(|key| Bytes::copy_from_slice(key)).collect();
    if call.connection.watched.len() + keys.len() > WATCHED_KEYS_MAX {
        return Err(Refusal::Text("ERR a transaction can't depend on more than 1000 keys"));
    }
    let describe = |key: &Bytes| KeysCommand::Key(KeyCommand::Describe { key: key.clone() });
    let commands = keys.iter().map(|key| SpaceCommand { space, command: describe(key) }).collect();
    Ok(Step::Plan(Plan::new(commands, move |answers| {
        let answers = match all(answers) {
            Ok(answers) => answers,
            Err(failure) => return Outcome::Reply(failure.into()),
        };
        let mut premises = Vec::with_capacity(keys.len());
        for (key, answer) in keys.into_iter().zip(answers) {
            let version = match answer {
                KeysReply::Key(info) => Some(info.version),
                KeysReply::Missing => None,
                other => return Outcome::Reply(replies::unexpected(&other)),
            };
            premises.push(Premise { space, key, version });
        }
        Outcome::Watched(premises)
    })))
}

fn unwatch(call: &mut Call) -> Ran {
    call.connection.watched.clear();
    Ok(Frame::OK.into())
}

impl Connection {
    /// Returns what commands of a transaction may change of the connection.
    fn state(&self) -> State {
        (self.space, self.protocol, self.labels.clone())
    }

    /// Ends a transaction: one without replies to its commands has changed nothing of the connection either.
    pub(crate) fn end_transaction(&mut self, has_failed: bool) {
        if let Some(before) = self.before.take().filter(|_| has_failed) {
            (self.space, self.protocol, self.labels) = before;
        }
    }

    /// Returns whether a transaction has begun.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }
}
