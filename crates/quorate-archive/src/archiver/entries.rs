//! Stores entries, whatever else the archiver does meanwhile.
//!
//! A boundary of a large database, a merge, or a snapshot takes minutes. What is written until then must not wait.
//!
//! Invariant: an object holds the entries that its name says, so it does no harm if two archivers store the same ones.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_env::{Env, lock};

use super::Identity;
use super::recent::Recent;
use crate::entries::Segment;
use crate::error::ArchiveError;
use crate::keys::Keys;
use crate::objects::Objects;

/// Stores the entries of a cluster.
pub struct EntryArchiver {
    pub(super) env: Env,
    pub(super) objects: Arc<dyn Objects>,
    pub(super) keys: Keys,
    pub(super) identity: Identity,
    /// What the archiver merges.
    pub(super) recent: Arc<Mutex<Recent>>,
}

impl EntryArchiver {
    /// Stores consecutive entries, from number `first` on, and returns the number of the last. Those of them that are
    /// archived already do no harm.
    pub async fn put(&self, first: u64, entries: Vec<Bytes>) -> Result<u64, ArchiveError> {
        let Identity { cluster, epoch, .. } = self.identity;
        let segment = Segment { cluster, epoch, first, entries: entries.clone() };
        let last = segment.last();
        let key = self.keys.segment(epoch, first, last);
        let encoded = self.env.blocking(move || segment.encode()).await.ok_or(ArchiveError::Closed)?;
        let bytes = encoded.map_err(|error| ArchiveError::damaged(&key, error.to_string()))?;
        // If the object exists, another archiver has stored the same entries.
        self.objects.create(&key, bytes, None).await?;
        lock(&self.recent).add(key, first, entries);
        Ok(last)
    }
}
