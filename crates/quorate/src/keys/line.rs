//! Waiting for changes of keys, for pops that block.
//!
//! A caller gets in line, then looks, so it misses nothing. If it finds nothing, it waits for its turn and looks again.
//! The first in the line of a key is told of each change. A turn that was of no use (another client was faster, or the
//! key holds something of another kind) is not passed on: callers should look again after a while, too.
//!
//! Invariant: a line that is dropped passes the turns on that it was not told of.

use std::fmt;

use futures_util::future::{BoxFuture, pending, select_all, try_join_all};

use super::{IntoBytes, Keys};
use crate::error::Error;

/// A caller's places in the lines of some keys.
pub struct Line(Vec<BoxFuture<'static, ()>>);

impl Keys {
    /// Gets in line for changes of keys, behind those that wait on the same node already.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Overloaded`] if too many wait on the node.
    pub async fn line<B: IntoBytes>(&self, keys: impl IntoIterator<Item = B>) -> Result<Line, Error> {
        let topics = keys.into_iter().map(|key| quorate_sql::keys::topic(self.space, &key.into_bytes()));
        try_join_all(topics.map(|topic| self.sql.submitter.register(topic, self.sql.deadline()))).await.map(Line)
    }
}

impl Line {
    /// Waits until it is the caller's turn: a key has changed, or may have. May be dropped at any time.
    pub async fn turn(&mut self) {
        if self.0.is_empty() {
            return pending().await;
        }
        let ((), place, _) = select_all(&mut self.0).await;
        // It was told, and has no place any more.
        drop(self.0.swap_remove(place));
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("places", &self.0.len()).finish()
    }
}
