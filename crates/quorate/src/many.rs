//! Many commands at once, of any store, each with a result of its own. For doors, whose clients send many requests
//! together.
//!
//! Invariant: a command that exceeds a limit fails alone; it never reaches the cluster.

use quorate_model::keys::{KeysReply, SpaceCommand};
use quorate_model::{
    Command, CommandResult, Failure, FailureKind, Mode, Proposal, Read, ReadCheck, SqlCommand, SqlReply,
    StatementResult,
};
use quorate_sql::query::Rows;

use crate::error::Error;
use crate::keys::{KeyCommand, KeysCall};
use crate::sql::Sql;
use crate::submitter::ReadAnswer;

/// The most rows that a query of [`Sql::read_each`] may return.
const ROWS_MAX: usize = 100_000;

impl Sql {
    /// Runs commands in their order, whatever they do, as one entry, if all premises hold
    /// ([`Keys::pipeline_if`](crate::Keys::pipeline_if)). No other write takes effect between them. In the mode
    /// [`Mode::Pipeline`] each succeeds or fails by itself; in the mode [`Mode::Atomic`] all take effect, or none.
    ///
    /// # Errors
    ///
    /// Those of [`Keys::pipeline_if`](crate::Keys::pipeline_if), or, in the mode [`Mode::Atomic`], of [`Sql::batch`].
    pub async fn run_each(
        &self,
        mode: Mode,
        premises: impl IntoIterator<Item = KeysCall<()>>,
        commands: Vec<Command>,
    ) -> Result<Vec<CommandResult>, Error> {
        let premises: Vec<ReadCheck> = premises.into_iter().map(KeysCall::into_check).collect();
        let (mut good, mut checked) = (Vec::with_capacity(commands.len()), Vec::with_capacity(commands.len()));
        for command in commands {
            match command.check_limits(good.len()) {
                Ok(()) => {
                    good.push(command);
                    checked.push(None);
                }
                Err(failure) if mode == Mode::Atomic => return Err(failure.into()),
                Err(failure) => checked.push(Some(failure)),
            }
        }
        if good.is_empty() {
            // An entry has a command, also if there are only premises.
            let command = KeyCommand::Exists { keys: Vec::new() }.into();
            good.push(Command::Keys(SpaceCommand { space: 0, command }));
        }
        let proposal = Proposal::new(None, good).with_read_checks(premises);
        let written = self.propose(Proposal { mode, ..proposal }).await?;
        let mut results = written.reply.results.into_iter();
        let all = checked.into_iter().map(|failure| match failure {
            Some(failure) => Ok(CommandResult::Failed(failure)),
            None => results.next().ok_or_else(other_answer),
        });
        all.collect()
    }

    /// Answers commands that only read, at the level of the handle. If all are on keys, they see one state, and there
    /// are fewer answers than commands if the last one brings the bytes of all answers to `bytes_max`. Others are
    /// answered one by one; a query may return 100,000 rows.
    ///
    /// # Errors
    ///
    /// Those of [`Sql::query`]. A remote handle refuses it.
    pub async fn read_each(&self, commands: &[Command], bytes_max: usize) -> Result<Vec<CommandResult>, Error> {
        let on_keys =
            |command: &Command| if let Command::Keys(command) = command { Some(command.clone()) } else { None };
        if let Some(commands) = commands.iter().map(on_keys).collect::<Option<Vec<_>>>() {
            let answers = self.read_keys(&commands, bytes_max).await?;
            return Ok(answers
                .into_iter()
                .map(|answer| answer.map_or_else(CommandResult::Failed, Into::into))
                .collect());
        }
        let limited = self.with_limits(ROWS_MAX, bytes_max);
        let mut results = Vec::with_capacity(commands.len());
        for command in commands {
            results.push(match limited.read(read_of(command.clone())?).await {
                Ok(answer) => result_of(answer),
                Err(Error::Failed(failure)) => CommandResult::Failed(failure),
                Err(error) => return Err(error),
            });
        }
        Ok(results)
    }

    async fn read_keys(&self, commands: &[SpaceCommand], bytes_max: usize) -> Result<Vec<KeysAnswer>, Error> {
        let checked: Vec<_> = commands.iter().map(SpaceCommand::check_read).collect();
        if checked.iter().all(Result::is_ok) {
            return self.submitter.read_keys(commands, self.level()?, bytes_max, self.deadline()).await;
        }
        let good = commands.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let good: Vec<SpaceCommand> = good.map(|(command, _)| command.clone()).collect();
        let read = self.submitter.read_keys(&good, self.level()?, bytes_max, self.deadline()).await?;
        let mut read = read.into_iter();
        let answers = checked.into_iter().map_while(|checked| match checked {
            Err(failure) => Some(Err(failure)),
            Ok(()) => read.next(),
        });
        Ok(answers.collect())
    }
}

type KeysAnswer = Result<KeysReply, Failure>;

/// Returns the read that answers a command.
fn read_of(command: Command) -> Result<Read, Failure> {
    match command {
        Command::Keys(command) => Ok(Read::Keys(command)),
        Command::Locks(command) => Ok(Read::Locks(command)),
        Command::Sql(SqlCommand::Statement(statement)) => statement.into_query().map(Read::Sql),
        Command::Sql(_) | Command::Control(_) | Command::Events(_) | Command::Items(_) => {
            Err(Failure::new(FailureKind::Refused, "the command is not a read; send it as a write"))
        }
    }
}

fn result_of(answer: ReadAnswer) -> CommandResult {
    match answer {
        ReadAnswer::Sql(rows) => SqlReply::Statement(statement_of(rows)).into(),
        ReadAnswer::Keys(reply) => reply.into(),
        ReadAnswer::Locks(reply) => reply.into(),
        ReadAnswer::Events(_) => {
            CommandResult::Failed(Failure::new(FailureKind::Refused, "events are not read by a command"))
        }
    }
}

fn statement_of(rows: Rows) -> StatementResult {
    let columns = rows.columns().to_vec();
    let width = columns.len().max(1);
    let mut values = rows.into_values().into_iter();
    let rows = std::iter::from_fn(|| {
        let row: Vec<_> = values.by_ref().take(width).collect();
        (!row.is_empty()).then_some(row)
    });
    StatementResult { rows: rows.collect(), columns, ..StatementResult::default() }
}

/// The error for fewer results than commands.
fn other_answer() -> Error {
    Error::Unavailable("the cluster answered fewer commands than it was sent".into())
}
