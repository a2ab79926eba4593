//! Questions to a node, asked beside the thread that wants to know: the node may have to ask its disk, and a disk may
//! hang.
//!
//! Invariant: as long as a disk hangs, no more than a fixed number of threads wait for it.

use std::sync::Arc;
use std::time::Duration;

use quorate::Observer;
use quorate_env::{Env, timeout};
use tokio::sync::Semaphore;

/// Time for the node to tell how it is: its disk may hang.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("the node does not tell how it is: its disk may hang")]
    Slow,
    #[error("the node has ended")]
    Ended,
}

/// Asks, so many questions at a time. Cheap to clone; all clones share that number.
#[derive(Clone, Debug)]
pub(crate) struct Asks {
    env: Env,
    room: Arc<Semaphore>,
}

impl Asks {
    pub(crate) fn new(env: &Env, at_once: usize) -> Self {
        Self { env: env.clone(), room: Arc::new(Semaphore::new(at_once)) }
    }

    /// Asks a node, and waits for the answer for [`ANSWER_TIME_MAX`].
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        observer: Observer,
        ask: impl FnOnce(&Observer) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let room = Arc::clone(&self.room);
        let asking = async {
            let asked = room.acquire_owned().await.ok()?;
            // The place is given back when the node has answered, though nobody may wait any more.
            let answer = self.env.blocking(move || (ask(&observer), asked)).await;
            answer.map(|(answer, _)| answer)
        };
        timeout(ANSWER_TIME_MAX, asking).await.map_err(|_| Unanswered::Slow)?.ok_or(Unanswered::Ended)
    }
}
