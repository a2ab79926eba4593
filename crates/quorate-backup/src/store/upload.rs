//! The upload of an object in parts.

use std::fmt;

use bytes::Bytes;
use object_store::MultipartUpload;

use super::Store;
use crate::error::Error;

/// An object that is being uploaded. It appears when [`Upload::finish`] succeeds.
///
/// If it is dropped, the parts that were uploaded may stay at the store, where they cost money; so call
/// [`Upload::abort`], and give the bucket a rule that removes incomplete uploads.
pub struct Upload {
    store: Store,
    name: String,
    inner: Box<dyn MultipartUpload>,
}

impl Upload {
    pub(super) fn new(store: Store, name: &str, inner: Box<dyn MultipartUpload>) -> Self {
        Self { store, name: name.to_owned(), inner }
    }

    /// Uploads the next part. All parts but the last have the same size, of at least 5 MiB.
    ///
    /// # Errors
    ///
    /// See [`Store::put`].
    pub async fn part(&mut self, bytes: Bytes) -> Result<(), Error> {
        let put = self.inner.put_part(bytes.into());
        self.store.bounded(|| format!("write '{}'", self.name), put).await
    }

    /// Completes the object.
    ///
    /// # Errors
    ///
    /// See [`Store::put`].
    pub async fn finish(mut self) -> Result<(), Error> {
        let finish = self.inner.complete();
        self.store.bounded(|| format!("complete '{}'", self.name), finish).await.map(drop)
    }

    /// Gives the object up, and removes its parts.
    ///
    /// # Errors
    ///
    /// See [`Store::put`].
    pub async fn abort(mut self) -> Result<(), Error> {
        let abort = self.inner.abort();
        self.store.bounded(|| format!("give '{}' up", self.name), abort).await
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As for `Store`: what is inside holds the credentials.
        f.debug_struct("Upload").field("store", &self.store).field("name", &self.name).finish_non_exhaustive()
    }
}
