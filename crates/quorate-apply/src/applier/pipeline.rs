//! Pipelines: the commands of one entry, each of which succeeds or fails by itself.

use quorate_env::mutant::Mutant;
use quorate_model::limits::FAILURE_TEXTS_BYTES_MAX;
use quorate_model::{CommandResult, Failure, FailureKind, Results};

use super::Applier;
use super::entry::{ControlChanges, Ran, Running};
use crate::{CommandContext, Machine, Trouble};

/// The text of a failure whose own text was left out.
const TEXT_OMITTED: &str = "text omitted";

impl<M: Machine> Applier<M> {
    /// Runs the commands of a pipeline. If one closes the transaction, all of them are undone and run again up to that
    /// one. The commands after it do not run, so a pipeline runs at most twice.
    ///
    /// An exceeded budget always closes the transaction. SQLite closes it by itself only if the statement was
    /// interrupted while it wrote, and at which step that happens differs between nodes.
    pub(super) fn pipeline(&mut self, running: Running<'_>, changes: &mut ControlChanges) -> Ran {
        let Running { proposal, ended, .. } = running;
        let (mut returned, mut texts) = (0, 0_usize);
        let mut results = Results::with_capacity(proposal.commands.len());
        let last = ended.and_then(|failure| failure.command).and_then(|number| usize::try_from(number).ok());
        for (number, command) in proposal.commands.iter().enumerate() {
            if let (Some(last), Some(failure)) = (last, ended)
                && number >= last
            {
                let failure = if number == last { failure.clone() } else { not_run(failure).at(number) };
                results.push(CommandResult::Failed(shorten(failure, &mut texts)));
                continue;
            }
            if let Some(CommandResult::Failed(failure)) = results.last().filter(|_| Mutant::PipelineStops.is_on()) {
                results.push(CommandResult::Failed(failure.clone()));
                continue;
            }
            let scope = self.machine.scope_of_step(command);
            let ran = self.in_scope(scope, |applier| {
                let context = CommandContext { earlier: &results, returned: &mut returned };
                let result = applier.command(running, command, context, changes)?;
                applier.machine.seal()?;
                Ok(result)
            });
            results.push(match ran.map_err(|trouble| trouble.with_failure(|failure| failure.at(number))) {
                Ok(result) => result,
                Err(Trouble::Failure(failure)) if self.machine.is_open() => {
                    if failure.kind == FailureKind::Budget {
                        self.machine.give_up()?;
                        return Err(failure.into());
                    }
                    CommandResult::Failed(shorten(failure, &mut texts))
                }
                Err(trouble) => return Err(trouble),
            });
        }
        Ok(results)
    }
}

/// The same failure, without its text once the texts of its pipeline's failures have [`FAILURE_TEXTS_BYTES_MAX`]: an
/// outcome must fit into a message between nodes.
fn shorten(failure: Failure, texts: &mut usize) -> Failure {
    *texts = texts.saturating_add(failure.message.len());
    if *texts <= FAILURE_TEXTS_BYTES_MAX { failure } else { Failure { message: TEXT_OMITTED.to_owned(), ..failure } }
}

/// The failure of a command after the one that closed its pipeline's transaction.
fn not_run(ended: &Failure) -> Failure {
    let number = ended.command.map_or(0, |number| u64::from(number).saturating_add(1));
    let text = format!("not run, because command {number} of the pipeline ended its transaction; send it again");
    Failure::new(FailureKind::NotRun, text)
}
