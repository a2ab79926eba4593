//! Queries of a node's state. They run on threads for blocking calls, because the node may have to access its disk, and
//! a disk may hang.
//!
//! Invariant: while a disk hangs, at most a fixed number of threads wait for it.

use std::sync::Arc;
use std::time::Duration;

use quorate::Observer;
use quorate_env::{Env, timeout};
use tokio::sync::Semaphore;

/// The time within which the node must answer a query. Its disk may hang.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("the node did not answer in time: its disk may hang")]
    Slow,
    #[error("the node has ended")]
    Ended,
}

/// Runs a limited number of queries at a time. Cheap to clone; all clones share the limit.
#[derive(Clone, Debug)]
pub(crate) struct Asks {
    env: Env,
    permits: Arc<Semaphore>,
}

impl Asks {
    pub(crate) fn new(env: &Env, at_once: usize) -> Self {
        Self { env: env.clone(), permits: Arc::new(Semaphore::new(at_once)) }
    }

    /// Runs a query of a node, and waits up to [`ANSWER_TIME_MAX`] for the answer.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        observer: Observer,
        ask: impl FnOnce(&Observer) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let permits = Arc::clone(&self.permits);
        let query = async {
            let permit = permits.acquire_owned().await.ok()?;
            // The permit is released when the node has answered, even if the caller has stopped waiting.
            let answer = self.env.blocking(move || (ask(&observer), permit)).await;
            answer.map(|(answer, _)| answer)
        };
        timeout(ANSWER_TIME_MAX, query).await.map_err(|_| Unanswered::Slow)?.ok_or(Unanswered::Ended)
    }
}
