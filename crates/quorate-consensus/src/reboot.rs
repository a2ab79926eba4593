//! What becomes of a node with [`Durability::Os`] whose machine was restarted while it ran.
//!
//! Its log may have gone backwards: entries that it acknowledged are gone, and who leads counted on them. So the node
//! comes back as a new member of its cluster, and its former self never votes again.
//!
//! Invariants:
//! - The former log is renamed and never changed. It does not go before the new one is whole.
//! - The new log knows the cluster. So nodes that were all restarted found no other one: each waits for a member that
//!   was not.

use std::path::{Path, PathBuf};

use prost::Message;
use quorate_env::Env;
use quorate_model::GroupId;
use quorate_wal::{Durability, OpenError, Opened, Recovery, Wal};

use crate::config::ConsensusConfig;
use crate::error::StartError;
use crate::identity::Identity;
use crate::restore::written;
use crate::start::{log_options, move_log};

/// Whether a log was ever part of a cluster's: without a vote or an entry it has promised nothing to anybody.
pub(crate) fn was_in_use(recovery: &Recovery) -> bool {
    let main = recovery.groups.get(&GroupId::MAIN);
    main.is_some_and(|main| main.vote.is_some() || main.last.is_some())
}

/// Whether the log may lack something that this node has promised.
pub(crate) fn may_have_lost(config: &ConsensusConfig, recovery: &Recovery) -> bool {
    config.durability != Durability::Fsync && recovery.may_have_lost() && was_in_use(recovery)
}

/// Puts the log aside, and in its place one that holds nothing but a new identity in the same cluster.
pub(crate) async fn begin_anew(
    env: &Env,
    config: &ConsensusConfig,
    dir: &Path,
    former: &Identity,
) -> Result<(), StartError> {
    let next = next_dir(dir);
    let disk = env.disk();
    let io = |source| StartError::Log(OpenError::Io { action: "replace", path: next.clone(), source });
    // An earlier attempt that did not come to its end.
    if disk.exists(&next).map_err(io)? {
        disk.remove_dir_all(&next).map_err(io)?;
    }
    let identity = Identity {
        cluster: former.cluster.clone(),
        epoch: former.epoch,
        durability: former.durability,
        ..Identity::new(env.rng().next_u64().max(1), &config.name)
    };
    let Opened { wal, writer, .. } = Wal::open(disk.clone(), &next, log_options(env, config))?;
    let bell = writer.signal().clone();
    let worker = env.start_worker("quorate-log", writer, &bell).map_err(StartError::Thread)?;
    written(|done| wal.save_identity(identity.encode_to_vec().into(), done)).await?;
    written(|done| wal.close_clean(done)).await?;
    drop(wal);
    worker.ended().await;
    move_log(env, dir, &aside(dir, env.unix_nanos()))?;
    move_log(env, &next, dir)
}

/// Ends what a node that died within [`begin_anew`] had begun.
pub(crate) fn finish(env: &Env, dir: &Path) -> Result<(), StartError> {
    let next = next_dir(dir);
    let exists = |path: &Path| {
        let io = |source| StartError::Log(OpenError::Io { action: "look for", path: path.to_path_buf(), source });
        env.disk().exists(path).map_err(io)
    };
    if !exists(dir)? && exists(&next)? { move_log(env, &next, dir) } else { Ok(()) }
}

/// Where the new log is made.
fn next_dir(dir: &Path) -> PathBuf {
    let mut next = dir.as_os_str().to_owned();
    next.push(".next");
    next.into()
}

/// Where the former log goes.
fn aside(dir: &Path, now: u64) -> PathBuf {
    let mut aside = dir.as_os_str().to_owned();
    aside.push(format!(".rebooted-{now}"));
    aside.into()
}
