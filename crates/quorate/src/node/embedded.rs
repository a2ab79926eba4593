//! The way from a handle to the node in the same process.

use std::sync::Weak;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_env::Instant;
use quorate_model::{Command, Failure, Outcome, Position};
use quorate_sql::query::Rows;

use super::gateway::Gateway;
use crate::client::{Attempt, Read, Transport};
use crate::error::Error;

/// A handle may outlive its node and does not keep it alive.
pub(super) struct Embedded(pub(super) Weak<Gateway>);

impl Transport for Embedded {
    fn check(&self, command: &Command) -> Result<(), Failure> {
        // Without a node there is nothing to check it against, and nobody to propose it to.
        self.0.upgrade().map_or(Ok(()), |gateway| gateway.check(command))
    }

    fn note_retry(&self) {
        if let Some(gateway) = self.0.upgrade() {
            gateway.metrics.retries.inc();
        }
    }

    fn propose(&self, proposal: Bytes, deadline: Instant) -> BoxFuture<'_, Result<(Position, Outcome), Attempt>> {
        async move {
            let gateway = self.0.upgrade().ok_or(Attempt::Refused(Error::Closed))?;
            gateway.propose(proposal, deadline).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, read: &'a Read, deadline: Instant) -> BoxFuture<'a, Result<Rows, Error>> {
        async move { self.0.upgrade().ok_or(Error::Closed)?.read(read, deadline).await }.boxed()
    }
}
