//! Waiting for keys.
//!
//! A caller gets in line for some keys, and then looks, so it misses nothing. If it finds nothing, it waits for its
//! turn: each change of a key wakes the first caller in its line. A caller to which the turn is of no use (another
//! client was faster, or the key holds something of another kind) does not pass it on, so callers also look again after
//! a while.
//!
//! Invariant: if a caller goes away, the next one gets the turns that have not woken it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending, select_all, try_join_all};
use quorate_env::timeout;
use quorate_model::Topic;

use super::into_bytes::all;
use super::{IntoBytes, Keys};
use crate::error::Error;

/// How often a caller that waits looks at its keys although it was told of nothing.
pub const WAIT_LOOK: Duration = Duration::from_secs(1);

impl Keys {
    /// Waits until one of these keys exists, behind those that wait for it on the same node already. It may return
    /// early, and another client may be faster: look, and wait again.
    ///
    /// # Errors
    ///
    /// Those of [`Keys::exist`], and [`Error::Overloaded`] if too many wait on the node.
    pub async fn wait_for<B: IntoBytes>(&self, keys: impl IntoIterator<Item = B>) -> Result<(), Error> {
        let runtime = self.sql.submitter.runtime();
        runtime.run(self.wait_in_line(all(keys))).await.unwrap_or(Err(Error::Closed))
    }

    /// Gets in line for changes of keys, behind those that wait on the same node already. Returns a future that ends
    /// when it is the caller's turn: a key has changed, or may have. May be dropped at any time.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`] if too many wait on the node.
    pub async fn line<B: IntoBytes>(&self, keys: impl IntoIterator<Item = B>) -> Result<BoxFuture<'static, ()>, Error> {
        let topics = keys.into_iter().map(|key| quorate_sql::keys::topic(self.space, &key.into_bytes()));
        self.told(&topics.collect::<Vec<_>>()).await
    }

    async fn wait_in_line(&self, keys: Vec<Bytes>) -> Result<(), Error> {
        loop {
            let turn = self.line(keys.clone()).await?;
            if self.exist(keys.clone()).await? > 0 || timeout(WAIT_LOOK, turn).await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Registers waiters. Returns a future that ends when an entry wakes one of them.
    pub(super) async fn told(&self, topics: &[Topic]) -> Result<BoxFuture<'static, ()>, Error> {
        let submitter = &self.sql.submitter;
        let waiters = topics.iter().map(|topic| submitter.register(*topic, self.sql.deadline()));
        let waiters = try_join_all(waiters).await?;
        // Without a key there is nothing to be told of.
        Ok(if waiters.is_empty() { pending().boxed() } else { select_all(waiters).map(drop).boxed() })
    }
}
