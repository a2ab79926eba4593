//! Which archive in a store belongs to a database.
//!
//! Invariant: an archive of another database is never chosen silently. If there are several, the caller has to say
//! which.

use quorate_archive::Objects;
use quorate_archive::restore::find_cluster;
use quorate_env::Env;

use crate::error::ReplicateError;

/// The epoch of archives without a cluster.
pub const EPOCH: u64 = 1;

/// Returns the only archive of a store, or a new name if it has none.
pub async fn find_or_name(env: &Env, objects: &dyn Objects) -> Result<u128, ReplicateError> {
    let mut name = [0; 16];
    env.rng().fill(&mut name);
    Ok(find_cluster(objects).await?.unwrap_or(u128::from_be_bytes(name)))
}

/// Returns the time, in milliseconds since 1970.
pub fn millis(env: &Env) -> i64 {
    i64::try_from(env.unix_nanos() / 1_000_000).unwrap_or(i64::MAX)
}
