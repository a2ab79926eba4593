//! Calls: commands on keys that are ready to run.

use std::marker::PhantomData;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_model::keys::{KeysReply, SpaceCommand};
use quorate_model::{Command, CommandResult, Position, Read};

use super::other_answer;
use super::reply::FromReply;
use crate::error::Error;
use crate::params::BatchStep;
use crate::sql::Sql;
use crate::submitter::ReadAnswer;

/// A command on keys, with the type of its result. Await it to run it, or make it a step of a batch, a pipeline or a
/// transaction.
///
/// # Errors
///
/// Those of [`Sql::execute`], or, for a command that only reads, of [`Sql::query`]. A command that fails is an
/// [`Error::Failed`]; its text is that of Redis, with the code in front, where Redis has the error too. It is
/// [`FailureKind::WrongType`](crate::FailureKind::WrongType) if the key holds something of another kind, and
/// [`FailureKind::InvalidValue`](crate::FailureKind::InvalidValue) if a value is not what the command needs.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is awaited, or is a step of a batch"]
pub struct KeysCall<T> {
    sql: Sql,
    pub(super) command: SpaceCommand,
    result: PhantomData<fn() -> T>,
}

impl<T: FromReply> KeysCall<T> {
    pub(super) fn new(sql: Sql, command: SpaceCommand) -> Self {
        Self { sql, command, result: PhantomData }
    }

    /// Runs it as a write, whatever it does, and returns its position too. A read at
    /// [`Level::AtLeast`](crate::Level::AtLeast) this position sees the write.
    pub async fn with_position(self) -> Result<(T, Position), Error> {
        let Self { sql, command, .. } = self;
        let written = sql.write(BatchStep(Command::Keys(command))).await?;
        let result = written.reply.results.into_iter().next();
        let Some(CommandResult::Keys(reply)) = result else { return Err(other_answer()) };
        Ok((result_of(reply)?, written.position))
    }

    async fn run(self) -> Result<T, Error> {
        if !self.command.command.only_reads() {
            return self.with_position().await.map(|(result, _)| result);
        }
        match self.sql.read(Read::Keys(self.command)).await? {
            ReadAnswer::Keys(reply) => result_of(reply),
            _ => Err(other_answer()),
        }
    }
}

fn result_of<T: FromReply>(reply: KeysReply) -> Result<T, Error> {
    T::from_reply(reply).ok_or_else(other_answer)
}

impl<T: FromReply + 'static> IntoFuture for KeysCall<T> {
    type Output = Result<T, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

impl<T> From<KeysCall<T>> for BatchStep {
    fn from(call: KeysCall<T>) -> Self {
        Self(Command::Keys(call.command))
    }
}

/// Lets a builder of a command be used as the call that it builds.
macro_rules! as_call {
    ($builder:ident $(<$generic:ident>)? => $result:ty) => {
        impl $(<$generic: $crate::keys::FromReply + 'static>)? ::std::future::IntoFuture for $builder $(<$generic>)? {
            type Output = Result<$result, $crate::error::Error>;
            type IntoFuture = ::futures_util::future::BoxFuture<'static, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                self.call().into_future()
            }
        }

        impl $(<$generic: $crate::keys::FromReply>)? $builder $(<$generic>)? {
            /// Runs it as a write, and returns its position too: see
            /// [`KeysCall::with_position`]($crate::keys::KeysCall::with_position).
            pub async fn with_position(self) -> Result<($result, $crate::Position), $crate::error::Error> {
                self.call().with_position().await
            }
        }

        impl $(<$generic: $crate::keys::FromReply>)? From<$builder $(<$generic>)?> for $crate::sql::BatchStep {
            fn from(builder: $builder $(<$generic>)?) -> Self {
                builder.call().into()
            }
        }
    };
}

pub(super) use as_call;
