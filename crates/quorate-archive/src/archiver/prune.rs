//! Deletes old states of an archive when an operator asks for it: the cluster may be gone, or its archiver may be at
//! work.
//!
//! The rules are those of the archiver ([`retained`]). Files are only removed from the manifest, and none is added.
//!
//! Invariants:
//! - The manifest keeps the token of its archiver, and is replaced only if it is still the version that was read. If
//!   the archiver has replaced it since, this begins again. The archiver is not fenced: it reads the new manifest, and
//!   continues with the files in it.
//! - Nothing is deleted that an archiver may list again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorate_env::Env;

use super::tidy::retained;
use super::{Archiver, Identity, TAKE_ATTEMPTS_MAX, Tidying, read_manifest};
use crate::error::ArchiveError;
use crate::keys::Keys;
use crate::manifest::Manifest;
use crate::objects::{Listed, Objects};

/// What was deleted, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// The objects, sorted by their keys.
    pub objects: Vec<Listed>,
    /// The manifest afterwards.
    pub manifest: Manifest,
}

impl Pruned {
    /// Returns how many bytes the objects have.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.length).fold(0, u64::saturating_add)
    }
}

/// Gives up the states of a cluster that are older than `keep` at the time `now` (in milliseconds since 1970), as far
/// as no later one needs them. The latest state stays always. With `is_dry`, nothing is changed.
///
/// # Errors
///
/// Returns [`ArchiveError::Missing`] if the cluster has no archive, and [`ArchiveError::Changed`] if its archiver has
/// changed the manifest again and again. If the call is interrupted, files that are no longer in the manifest may stay
/// in the store; the next call does not find them.
pub async fn prune(
    env: &Env,
    objects: &Arc<dyn Objects>,
    cluster: u128,
    (now, keep): (i64, Duration),
    is_dry: bool,
) -> Result<Pruned, ArchiveError> {
    for _ in 0..TAKE_ATTEMPTS_MAX {
        let mut visitor = Archiver::visit(env, objects, cluster).await?;
        let before = visitor.manifest.clone();
        let after = retained(before.clone(), now, Some(keep), Tidying::default().linger);
        let gone = visitor.given_up(&before, &after).await?;
        if is_dry {
            return Ok(Pruned { objects: gone, manifest: after });
        }
        if after != before {
            match visitor.replace_manifest(after.clone()).await {
                Ok(()) => {}
                Err(ArchiveError::Changed | ArchiveError::Fenced { .. }) => continue,
                Err(error) => return Err(error),
            }
        }
        for object in &gone {
            objects.delete(&object.key).await?;
        }
        return Ok(Pruned { objects: gone, manifest: after });
    }
    Err(ArchiveError::Changed)
}

impl Archiver {
    /// Reads an archive to change it under the token that it has.
    async fn visit(env: &Env, objects: &Arc<dyn Objects>, cluster: u128) -> Result<Self, ArchiveError> {
        let keys = Keys::new(cluster, objects.litestream_folders());
        let missing = || ArchiveError::Missing(format!("there is no archive of the cluster {cluster:032x}"));
        let (manifest, version) = read_manifest(&**objects, &keys).await?.ok_or_else(missing)?;
        let epoch = manifest.current().map_or(0, |generation| generation.epoch);
        let identity = Identity { cluster, epoch, node: manifest.node, token: manifest.token };
        Ok(Self::new(env, Arc::clone(objects), identity, (manifest, version)))
    }

    /// Returns the objects that are needed no more.
    async fn given_up(&self, before: &Manifest, after: &Manifest) -> Result<Vec<Listed>, ArchiveError> {
        let mut gone = self.unlisted(before, after);
        gone.extend(self.old_segments(before, after).await?);
        let lists = before.generations.iter().map(|generation| self.keys.generation(generation.number));
        let epochs: BTreeSet<_> = before.generations.iter().map(|generation| generation.epoch).collect();
        let mut objects = Vec::new();
        for prefix in lists.chain(epochs.into_iter().map(|epoch| self.keys.segments(epoch))) {
            objects.extend(self.objects.list(&prefix).await?);
        }
        objects.retain(|object| gone.contains(&object.key));
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(objects)
    }
}
