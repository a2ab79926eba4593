//! Many commands at once, on keys of any space, each with a reply or a failure of its own. For doors, whose clients
//! send many requests together.
//!
//! Invariant: a command that exceeds a limit fails alone; it never reaches the cluster.

use quorate_model::keys::{KeysReply, SpaceCommand};
use quorate_model::{Command, CommandResult, Failure, Mode, Proposal};

use super::{KeyCommand, Keys, KeysCall, other_answer};
use crate::error::Error;

/// The answers to commands, in their order.
pub type Answers = Vec<Result<KeysReply, Failure>>;

impl Keys {
    /// Runs commands in their order, whatever they do, as one entry, if all premises hold ([`Keys::pipeline_if`]): each
    /// succeeds or fails by itself, and no other write takes effect between them. The space of the handle does not
    /// matter.
    ///
    /// # Errors
    ///
    /// Those of [`Keys::pipeline_if`].
    pub async fn run_each(
        &self,
        premises: impl IntoIterator<Item = KeysCall<()>>,
        commands: Vec<SpaceCommand>,
    ) -> Result<Answers, Error> {
        let checked: Vec<_> = commands.iter().map(SpaceCommand::check_limits).collect();
        let good = commands.into_iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let mut good: Vec<Command> = good.map(|(command, _)| Command::Keys(command)).collect();
        let premises: Vec<_> = premises.into_iter().map(KeysCall::into_check).collect();
        if good.is_empty() {
            // An entry has a command, also if there are only premises.
            good.push(Command::Keys(SpaceCommand {
                space: 0,
                command: KeyCommand::Exists { keys: Vec::new() }.into(),
            }));
        }
        let proposal = Proposal::new(None, good).with_read_checks(premises);
        let written = self.sql.propose(Proposal { mode: Mode::Pipeline, ..proposal }).await?;
        let mut results = written.reply.results.into_iter();
        let answers = checked.into_iter().map(|checked| match checked.map(|()| results.next()) {
            Err(failure) | Ok(Some(CommandResult::Failed(failure))) => Ok(Err(failure)),
            Ok(Some(CommandResult::Keys(reply))) => Ok(Ok(reply)),
            Ok(_) => Err(other_answer()),
        });
        answers.collect()
    }

    /// Answers commands that only read, on one state that meets the level of the handle. There are fewer answers than
    /// commands if the last one brings the bytes of all answers to `bytes_max`. The space of the handle does not
    /// matter.
    ///
    /// # Errors
    ///
    /// Those of [`Sql::query`](crate::Sql::query). A remote handle refuses it.
    pub async fn read_each(&self, commands: &[SpaceCommand], bytes_max: usize) -> Result<Answers, Error> {
        let checked: Vec<_> = commands.iter().map(SpaceCommand::check_read).collect();
        if checked.iter().all(Result::is_ok) {
            return self.read_all(commands, bytes_max).await;
        }
        let good = commands.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let good: Vec<SpaceCommand> = good.map(|(command, _)| command.clone()).collect();
        let mut read = self.read_all(&good, bytes_max).await?.into_iter();
        let answers = checked.into_iter().map_while(|checked| match checked {
            Err(failure) => Some(Err(failure)),
            Ok(()) => read.next(),
        });
        Ok(answers.collect())
    }

    async fn read_all(&self, commands: &[SpaceCommand], bytes_max: usize) -> Result<Answers, Error> {
        let (submitter, level) = (&self.sql.submitter, self.sql.level()?);
        submitter.read_keys(commands, level, bytes_max, self.sql.deadline()).await
    }
}
