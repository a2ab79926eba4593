//! `quorate restore --follow`: restores a database, then applies new changes from the store until a signal ends it.

use quorate_env::Env;
use quorate_replicate::FollowOptions;
use quorate_server::config::LogConfig;

use super::{RestoreArgs, cluster};
use crate::error::{Error, Result};
use crate::{log, stop};

/// Runs until a signal.
pub async fn run(args: &RestoreArgs) -> Result<()> {
    let url = args.source.to_str().ok_or_else(|| Error::new("the URL of the archive is not UTF-8"))?;
    let file = args.output.as_ref().ok_or_else(|| Error::new("--follow needs -o"))?;
    log::begin(LogConfig::default())?;
    let mut signals = stop::Stop::take(false)?;
    let objects = args.store.open(url)?;
    let cluster = args.cluster.as_deref().map(cluster).transpose()?.map(|cluster| cluster.0);
    let options = FollowOptions { interval: args.follow_interval, cluster };
    quorate_replicate::follow(&Env::real(), objects, file, options, signals.requested()).await.map_err(Error::of)
}
