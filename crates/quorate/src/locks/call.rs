//! Calls: commands on locks that are ready to run.

use std::marker::PhantomData;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_model::locks::LocksCommand;
use quorate_model::{Command, CommandResult, Position, Read};

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

    /// Runs the command; returns the position of the write too, if it is one.
    pub(super) async fn with_position(self) -> Result<(T, Option<Position>), Error> {
        let Self { sql, command, .. } = self;
        let (reply, position) = if command.only_reads() {
            match sql.read(Read::Locks(command)).await? {
                ReadAnswer::Locks(reply) => (reply, None),
                _ => return Err(other_answer()),
            }
        } else {
            let written = sql.write(BatchStep(Command::Locks(command))).await?;
            match written.reply.results.into_iter().next() {
                Some(CommandResult::Locks(reply)) => (reply, Some(written.position)),
                _ => return Err(other_answer()),
            }
        };
        Ok((T::from_reply(reply).ok_or_else(other_answer)?, position))
    }
}

impl<T: FromLocksReply + 'static> IntoFuture for LocksCall<T> {
    type Output = Result<T, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { self.with_position().await.map(|(value, _)| value) }.boxed()
    }
}

impl<T> From<LocksCall<T>> for BatchStep {
    fn from(call: LocksCall<T>) -> Self {
        Self(Command::Locks(call.command))
    }
}
