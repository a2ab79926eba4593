//! Rehearses a restore: compares what the archive holds with what the nodes hold, while the cluster works.
//!
//! Invariant: the compared states are those of one position.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quorate_archive::restore::{Plan, Target};
use quorate_archive::{ArchiveError, Objects};
use quorate_consensus::ClusterId;
use quorate_env::{Env, Instant, sleep};
use quorate_model::NodeId;
use quorate_sql::backup::remove;

use super::fetch::{FetchError, FetchOptions, blocking, rebuild};
use crate::remote::{ClientConfig, verify_in};
use crate::verify::{Verification, VerifiedNode, VerifyError};

/// How long the archive may take to hold the position of the comparison.
const ARCHIVED_MAX: Duration = Duration::from_secs(120);

/// How often is looked whether it does.
const ARCHIVED_EVERY: Duration = Duration::from_millis(500);

/// The name that stands for the archive among the nodes.
const NAME: &str = "archive";

/// Why a restore can't be rehearsed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RehearseError {
    /// The nodes can't be asked.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The state can't be restored.
    #[error("the archive can't be restored: {0}")]
    Fetch(#[from] FetchError),
}

impl RehearseError {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Verify(error) => error.is_retryable(),
            Self::Fetch(error) => error.is_retryable(),
        }
    }
}

/// Verifies a cluster and, at the same position, its archive: restores that state into `file`, compares the hash of
/// each table with those of the nodes, and removes the file. In the result, the archive stands beside the nodes, with
/// the id 0 and no address. `file` is replaced if it exists, and takes as much space as the database. Of `options`,
/// only the extensions and the progress matter.
///
/// # Errors
///
/// Those of [`verify`](crate::verify()) and of [`fetch`](super::fetch()), and an error if the archive does not reach
/// the position within two minutes. A difference is no error.
pub async fn rehearse(
    client: ClientConfig,
    objects: &Arc<dyn Objects>,
    file: impl AsRef<Path>,
    options: &FetchOptions,
) -> Result<Verification, RehearseError> {
    let env = Env::current().unwrap_or_else(Env::real);
    let file = file.as_ref();
    let mut verification = verify_in(env.clone(), client).await?;
    let wanted = (verification.cluster, Target::Entry(verification.position.index));
    has_archived(&env, objects, wanted).await?;
    let restored = hashes(&env, objects, wanted, file, options).await;
    let removed = remove(env.disk().as_ref(), file).map_err(ArchiveError::Disk);
    let tables = restored?;
    removed.map_err(FetchError::from)?;
    verification.nodes.push(VerifiedNode {
        id: NodeId(0),
        name: NAME.to_owned(),
        addr: String::new(),
        tables: Ok(tables),
    });
    Ok(verification)
}

/// Restores a state into a file, checks it, and returns the hash of each table.
async fn hashes(
    env: &Env,
    objects: &Arc<dyn Objects>,
    wanted: (ClusterId, Target),
    file: &Path,
    options: &FetchOptions,
) -> Result<BTreeMap<String, u128>, FetchError> {
    let (_, replay) = rebuild(env, objects, wanted, file, options).await?;
    let (tables, replay) = blocking(env, move || Ok((replay.hashes()?, replay))).await?;
    // This checks the structure of the file too.
    blocking(env, move || replay.finish_unsealed()).await?;
    Ok(tables)
}

/// Waits until the archive holds a state.
async fn has_archived(
    env: &Env,
    objects: &Arc<dyn Objects>,
    (cluster, target): (ClusterId, Target),
) -> Result<(), FetchError> {
    // Whoever has no archive need not wait.
    Plan::make(env, objects, cluster.0, Target::Latest).await?;
    let end = Instant::now() + ARCHIVED_MAX;
    loop {
        match Plan::make(env, objects, cluster.0, target).await {
            Err(ArchiveError::Missing(_)) if Instant::now() < end => sleep(ARCHIVED_EVERY).await,
            made => return Ok(made.map(drop)?),
        }
    }
}
