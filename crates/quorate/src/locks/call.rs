//! Calls: commands on locks that are ready to run.

use std::marker::PhantomData;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_model::locks::LocksCommand;
use quorate_model::{Command, CommandResult, Read};

use super::other_answer;
use super::reply::FromLocksReply;
use crate::error::Error;
use crate::params::BatchStep;
use crate::sql::Sql;
use crate::submitter::ReadAnswer;

/// A command on locks, with the type of its result. Await it to run it, or make it a step of a batch, a pipeline or a
/// transaction.
///
/// # Errors
///
/// Those of [`Sql::execute`], or, for a command that only reads, of [`Sql::query`]. A command whose arguments break a
/// limit fails with [`FailureKind::InvalidValue`](crate::FailureKind::InvalidValue) or
/// [`FailureKind::TooBig`](crate::FailureKind::TooBig).
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is awaited, or is a step of a batch"]
pub struct LocksCall<T> {
    sql: Sql,
    command: LocksCommand,
    result: PhantomData<fn() -> T>,
}

impl<T: FromLocksReply> LocksCall<T> {
    pub(super) fn new(sql: Sql, command: LocksCommand) -> Self {
        Self { sql, command, result: PhantomData }
    }

    async fn run(self) -> Result<T, Error> {
        let Self { sql, command, .. } = self;
        let reply = if command.only_reads() {
            match sql.read(Read::Locks(command)).await? {
                ReadAnswer::Locks(reply) => reply,
                _ => return Err(other_answer()),
            }
        } else {
            let written = sql.write(BatchStep(Command::Locks(command))).await?;
            match written.reply.results.into_iter().next() {
                Some(CommandResult::Locks(reply)) => reply,
                _ => return Err(other_answer()),
            }
        };
        T::from_reply(reply).ok_or_else(other_answer)
    }
}

impl<T: FromLocksReply + 'static> IntoFuture for LocksCall<T> {
    type Output = Result<T, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

impl<T> From<LocksCall<T>> for BatchStep {
    fn from(call: LocksCall<T>) -> Self {
        Self(Command::Locks(call.command))
    }
}
