//! Pipelines that are done only if keys are as they were when they were read.

use quorate_model::keys::KeysReply;
use quorate_model::{Mode, Proposal, Read, ReadCheck, Stamp};
use quorate_sql::rows_hash;

use super::{Keys, KeysCall};
use crate::error::Error;
use crate::results::PipelineResult;
use crate::sql::{BatchStep, commands};

impl Keys {
    /// Runs steps as [`Sql::pipeline`](crate::Sql::pipeline) does, if all premises hold. Each of these is a call of
    /// [`Keys::expect`], of this space or another one. This is Redis' transaction after WATCH: between the premises and
    /// the steps nothing else happens.
    ///
    /// ```
    /// # async fn f(keys: quorate::Keys) -> Result<(), quorate::Error> {
    /// use quorate::{Error, FailureKind, steps};
    ///
    /// let version = keys.describe("stock").await?.map(|info| info.version);
    /// let sold = steps![keys.increment("stock", -1), keys.list("sold").push_right(["tea"])];
    /// match keys.pipeline_if([keys.expect("stock", version)], sold).await {
    ///     Err(Error::Failed(failure)) if failure.kind == FailureKind::Conflict => println!("read it again"),
    ///     done => drop(done?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with [`FailureKind::Conflict`](crate::FailureKind::Conflict) if a premise does not hold:
    /// nothing was done. Otherwise those of [`Sql::pipeline`](crate::Sql::pipeline). A handle with a
    /// [key](Keys::with_key) is refused.
    pub async fn pipeline_if<S: Into<BatchStep>>(
        &self,
        premises: impl IntoIterator<Item = KeysCall<()>>,
        steps: impl IntoIterator<Item = S>,
    ) -> Result<PipelineResult, Error> {
        let premises = premises.into_iter().map(KeysCall::into_check).collect();
        let proposal = Proposal::new(None, commands(steps)?).with_read_checks(premises);
        self.sql.propose(Proposal { mode: Mode::Pipeline, ..proposal }).await.map(Into::into)
    }
}

impl KeysCall<()> {
    /// Returns the check that the call succeeds.
    pub(crate) fn into_check(self) -> ReadCheck {
        let answer = rows_hash::of_reply(&KeysReply::Done);
        ReadCheck { read: Read::Keys(self.command), stamp: Stamp::default(), answer }
    }
}
