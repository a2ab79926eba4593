//! Calls that take something out of a key, and can wait for it.

use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, timeout};
use quorate_model::keys::KeysCommand;
use quorate_model::{Failure, FailureKind};

use super::call::as_call;
use super::{FromReply, Keys, KeysCall};
use crate::error::Error;

/// Takes something out of a key, or of the first of some keys that has something. Awaited, it does so at once, if there
/// is something; or it [waits](Self::within) for it.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is awaited, or is a step of a batch"]
pub struct Pop<T> {
    keys: Keys,
    from: Vec<Bytes>,
    call: KeysCall<T>,
}

/// The result of a call that takes something. The default stands for nothing.
pub trait Taken: Default {
    /// Whether it is nothing.
    fn is_nothing(&self) -> bool;
}

impl<T> Taken for Option<T> {
    fn is_nothing(&self) -> bool {
        self.is_none()
    }
}

impl<T> Taken for Vec<T> {
    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl<T: FromReply> Pop<T> {
    pub(super) fn new(keys: &Keys, from: Vec<Bytes>, command: impl Into<KeysCommand>) -> Self {
        Self { keys: keys.clone(), from, call: keys.run(command) }
    }

    fn call(self) -> KeysCall<T> {
        self.call
    }
}

impl<T: FromReply + Taken + Clone + 'static> Pop<T> {
    /// Takes something as soon as there is something; if there is nothing within this time, nothing. Those who wait at
    /// one node for the same key take turns, in the order in which they came.
    ///
    /// ```
    /// # async fn f(keys: quorate::Keys) -> Result<(), quorate::Error> {
    /// use std::time::Duration;
    ///
    /// for job in keys.list("jobs").pop_left(1).within(Duration::from_secs(30)).await? {
    ///     println!("{job:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the future is dropped, or returns [`Error::Unknown`], something may have been taken that nobody gets. Move
    /// what must not be lost to another list ([`List::move_to`](super::List::move_to)), and remove it there when it is
    /// done.
    ///
    /// # Errors
    ///
    /// Those of the call, and [`Error::Overloaded`] if too many wait on the node. A handle with a [key](Keys::with_key)
    /// is refused, because a request that is done once has one answer, also if that is nothing.
    pub async fn within(self, wait: Duration) -> Result<T, Error> {
        let runtime = self.keys.sql.submitter.runtime().clone();
        runtime.run(self.take_within(wait)).await.unwrap_or(Err(Error::Closed))
    }

    async fn take_within(self, wait: Duration) -> Result<T, Error> {
        if self.keys.sql.has_key() {
            let text = "a handle with a key can't wait: its first answer would be given again, also if it is nothing";
            return Err(Failure::new(FailureKind::Refused, text).into());
        }
        let begun = Instant::now();
        loop {
            let taken = self.call.clone().await?;
            if !taken.is_nothing() {
                return Ok(taken);
            }
            // The call itself is not cut short: something may have been taken.
            let left = wait.saturating_sub(begun.elapsed());
            match timeout(left, self.keys.wait_for(self.from.clone())).await {
                Ok(waited) => waited?,
                Err(_) => return Ok(T::default()),
            }
        }
    }
}

as_call!(Pop<T> => T);
