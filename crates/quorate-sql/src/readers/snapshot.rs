//! Many reads in one read transaction: all see the same state, and each costs a fraction of a separate query.

use std::sync::Arc;

use quorate_env::Env;
use quorate_model::{Stamp, Statement, StoreFault};

use super::error::ReadError;
use super::guard::Allowance;
use super::held::Held;
use super::limits::{Cancel, CancelOnDrop, ReadLimits};
use super::reader::StreamQuery;
use super::stream::{RowStream, Transaction};
use crate::query::Rows;

/// A fixed state of the store, up to its age limit. Its clones are the same snapshot and are used one at a time.
#[derive(Clone)]
pub struct Snapshot {
    held: Arc<Held>,
    applied_index: u64,
}

impl Snapshot {
    pub(super) fn new(held: Arc<Held>, applied_index: u64) -> Self {
        Self { held, applied_index }
    }

    /// The index of the last entry that it contains.
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Runs a query on the calling thread. Returns `None` if the snapshot is in use, or if the query takes longer than
    /// about a millisecond; the caller then calls [`Snapshot::query_blocking`].
    pub fn try_query_inline(&self, statement: &Statement, limits: &ReadLimits) -> Option<Result<Rows, ReadError>> {
        self.inline(statement, None, limits)
    }

    /// Runs a query on the calling thread within its limits.
    pub fn query_blocking(&self, statement: &Statement, limits: &ReadLimits) -> Result<Rows, ReadError> {
        self.blocking(statement, None, limits, self.allowance(limits))
    }

    /// Runs a query: on the calling thread if it is short, otherwise on a thread for blocking work.
    pub async fn query(&self, env: &Env, statement: &Statement, limits: &ReadLimits) -> Result<Rows, ReadError> {
        self.query_under(env, None, statement, limits).await
    }

    /// Runs a query under the clock and the randomness of `stamp`, or under this node's if it is `None`.
    pub async fn query_under(
        &self,
        env: &Env,
        stamp: Option<Stamp>,
        statement: &Statement,
        limits: &ReadLimits,
    ) -> Result<Rows, ReadError> {
        if let Some(result) = self.inline(statement, stamp, limits) {
            return result;
        }
        let gone = CancelOnDrop(Cancel::new());
        let mut allowance = self.allowance(limits);
        allowance.cancel[1] = Some(gone.0.clone());
        let (snapshot, statement, limits) = (self.clone(), statement.clone(), limits.clone());
        let run = move || snapshot.blocking(&statement, stamp, &limits, allowance);
        env.blocking(run).await.unwrap_or(Err(StoreFault::Closed.into()))
    }

    /// Runs a query whose result is taken piece by piece. Another read of the same snapshot ends it.
    pub fn stream(&self, statement: Statement, limits: ReadLimits) -> RowStream {
        self.stream_under(None, statement, limits)
    }

    /// [`Snapshot::stream`] under the clock and the randomness of `stamp`, or under this node's if it is `None`.
    pub fn stream_under(&self, stamp: Option<Stamp>, statement: Statement, limits: ReadLimits) -> RowStream {
        RowStream::new(Arc::clone(&self.held), StreamQuery { statement, stamp, limits }, Transaction::OfSnapshot)
    }

    fn inline(
        &self,
        statement: &Statement,
        stamp: Option<Stamp>,
        limits: &ReadLimits,
    ) -> Option<Result<Rows, ReadError>> {
        let allowance = Allowance { inline: true, ..self.allowance(limits) };
        self.held.try_with(|lease| lease.reader()?.query(statement, stamp, limits, allowance)).transpose()
    }

    fn blocking(
        &self,
        statement: &Statement,
        stamp: Option<Stamp>,
        limits: &ReadLimits,
        allowance: Allowance,
    ) -> Result<Rows, ReadError> {
        let rows = self.held.with(|lease| lease.reader()?.query(statement, stamp, limits, allowance))?;
        rows.ok_or(ReadError::Busy)
    }

    fn allowance(&self, limits: &ReadLimits) -> Allowance {
        Allowance::within(limits, self.held.age())
    }
}
