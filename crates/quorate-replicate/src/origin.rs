//! What a place in a store holds: an archive of ours, or a replica of stock Litestream.
//!
//! Invariant: an archive counts before a replica of Litestream at the same place, and of several archives none is
//! chosen silently.

use std::sync::Arc;

use quorate_archive::ltx::Level;
use quorate_archive::restore::{Plan, Target, find_cluster};
use quorate_archive::{ArchiveError, Objects, Replica};
use quorate_env::Env;

/// The folder of a replica of Litestream where levels are folders below another one.
const NESTED: &str = "ltx";

/// Where pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An archive.
    Archive(u128),
    /// A replica that stock Litestream 0.5 writes.
    Litestream,
}

impl Origin {
    /// Finds out what there is; `None` if it is neither. `named` is the archive that is wanted, if one was named.
    pub async fn find(objects: &dyn Objects, named: Option<u128>) -> Result<Option<Self>, ArchiveError> {
        let archive = match named {
            Some(named) => Some(named),
            None => find_cluster(objects).await?,
        };
        if let Some(archive) = archive {
            return Ok(Some(Self::Archive(archive)));
        }
        let folders = objects.list_folders("").await?;
        let is_level = |folder: &String| folder == NESTED || folder.parse::<Level>().is_ok();
        Ok(folders.iter().any(is_level).then_some(Self::Litestream))
    }

    /// Finds out what has to be read for a state.
    pub async fn plan(self, env: &Env, objects: &Arc<dyn Objects>, target: Target) -> Result<Plan, ArchiveError> {
        let missing = || ArchiveError::Missing("there are no files of a database at this place".to_owned());
        match self {
            Self::Archive(cluster) => Plan::make(env, objects, cluster, target).await,
            Self::Litestream => Replica::here(&**objects).plan(env, objects, target).await?.ok_or_else(missing),
        }
    }

    /// Returns the replica that a generation is.
    pub fn replica(self, objects: &dyn Objects, generation: u32) -> Replica {
        match self {
            Self::Archive(cluster) => Replica::of_generation(objects, cluster, generation),
            Self::Litestream => Replica::here(objects),
        }
    }

    /// Returns the generation that is continued now; 0 where there are none.
    pub async fn generation(self, objects: &dyn Objects) -> Result<u32, ArchiveError> {
        let Self::Archive(cluster) = self else { return Ok(0) };
        let missing = || ArchiveError::Missing(format!("there is no archive {cluster:032x}"));
        let manifest = quorate_archive::restore::manifest(objects, cluster).await?.ok_or_else(missing)?;
        Ok(manifest.current().map_or(0, |generation| generation.number))
    }
}
