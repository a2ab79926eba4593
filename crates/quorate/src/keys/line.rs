//! Waiting for changes of keys, for pops that block.
//!
//! A caller gets in line, then looks, so it misses nothing. If it finds nothing, it waits for its turn and looks again.
//! The first in the line of a key is told of each change. A turn that was of no use (another client was faster, or the
//! key holds something of another kind) is not passed on: callers should look again after a while, too.
//!
//! Invariant: a line that is dropped passes the turns on that it was not told of.

use futures_util::FutureExt as _;
use futures_util::future::{pending, select_all};
use quorate_apply::waits::Waiter;

use super::{IntoBytes, Keys};
use crate::error::Error;

/// A caller's places in the lines of some keys.
#[derive(Debug)]
pub struct Line(Vec<Waiter>);

impl Keys {
    /// Gets in line for changes of keys, behind those that wait on this node already.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Overloaded`] if too many wait on the node. A remote handle refuses it.
    pub fn line<B: IntoBytes>(&self, keys: impl IntoIterator<Item = B>) -> Result<Line, Error> {
        let topics = keys.into_iter().map(|key| quorate_sql::keys::topic(self.space, &key.into_bytes()));
        topics.map(|topic| self.sql.submitter.register(topic)).collect::<Result<_, _>>().map(Line)
    }
}

impl Line {
    /// Waits until it is the caller's turn: a key has changed, or may have. May be dropped at any time.
    pub async fn turn(&mut self) {
        if self.0.is_empty() {
            return pending().await;
        }
        let (_, place, _) = select_all(self.0.iter_mut().map(|waiter| waiter.woken().boxed())).await;
        // It was told, and has no place any more.
        drop(self.0.swap_remove(place));
    }
}
