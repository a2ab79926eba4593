//! `quorate serve`: runs one node in this process until it is asked to stop.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use clap::Args;
use quorate::{Ended, Node, config, config::ConfigError, types::StoreFault};
use quorate_backup::rehearsals::{self, Rehearsals};
use quorate_backup::schedule::{self, Plan, State};
use quorate_http::Options;
use quorate_server::http::HttpServer;
use quorate_server::{ServerConfig, http, resp};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::access::Access;
use crate::error::{Context as _, Error, Result};
use crate::output::print;
use crate::stop::{self, Stop};
use crate::{log, settings};

/// Options of `quorate serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate serve --config cluster/a.toml
  quorate serve --config cluster/a.toml --print-config   # the settings in force, and the source of each
  QUORATE_DATA_DIR=data quorate serve                    # a single node, without a file

SIGTERM or Ctrl-C stops the node cleanly: it hands leadership over first. docs/configuration.md lists all keys.")]
pub struct ServeArgs {
    /// The configuration; variables QUORATE_* override it or replace it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the configuration in force, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Stop when standard input closes, as it does when the parent process ends
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// Keeps other users from the files of this process, and lets it open as many as it may: each connection is one, and
/// many systems begin with 1,024. If it may not, `quorate doctor` says what follows.
fn prepare_for_files() {
    // SQLite creates some files itself, with the permissions that the umask allows.
    umask(Mode::RWXG | Mode::RWXO);
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Runs the command.
pub async fn run(args: &ServeArgs) -> Result<()> {
    let sources = settings::sources(args.config.as_deref())?;
    let mut config: ServerConfig = sources.read().map_err(|error| unusable(error, args.config.is_some()))?;
    if args.print_config {
        return print(&config::print(&config, |key| sources.origin(key)));
    }
    config.check_exposed().map_err(|error| unusable(error, args.config.is_some()))?;
    config.node.archive = config.archive.open().context(|| "[archive] in the configuration")?;
    config.node.first_state = config.archive.first_state().context(|| "[archive] in the configuration")?;
    let plan = config.backup.plan(&config.node.data_dir).context(|| "[backup] in the configuration")?;
    let rehearsals = rehearsals(&config).context(|| "[archive] in the configuration")?;
    log::begin(config.log)?;
    let mut stop = Stop::take(args.until_stdin_closes)?;
    prepare_for_files();
    let http = open_http(&config).await?;
    let redis_tls = config.redis_certificates().cloned();
    // The first start may wait for the other nodes.
    let node = tokio::select! {
        started = Node::start(config.node) => started.context(|| "the node can't start")?,
        () = stop.requested() => {
            tracing::info!(event = "stopped", "the node was asked to stop before it had started");
            return Ok(());
        }
    };
    if let Some(http) = &http {
        http.show(&node);
        if config.http_sql {
            let options = Options::default().with_insecure(config.insecure).with_huststore(config.http_huststore);
            http.open_doors(&node, node.sql(), options);
        }
    }
    let redis = match &config.redis_listen {
        Some(addr) => match resp::serve(addr, redis_tls.as_ref(), config.insecure, config.redis_notifications, &node)
            .await
            .context(|| "the server can't start; check 'redis.listen' and 'tls' in the configuration")
        {
            Ok(redis) => {
                http.iter().for_each(|http| http.show_redis(&redis));
                Some(redis)
            }
            Err(error) => {
                node.stop().await;
                return Err(error);
            }
        },
        None => None,
    };
    let backups = plan.map(|plan| Beside::start_backups(plan, &node, http.as_ref()));
    let rehearsals = rehearsals.map(|plan| Beside::start(|stop| rehearsals::run(plan, node.observer(), stop)));
    let ended = tokio::select! {
        ended = node.ended() => Some(ended),
        () = stop.requested() => None,
    };
    stop::end_soon("its consensus, its database, or a read");
    for beside in [backups, rehearsals].into_iter().flatten() {
        beside.stop().await;
    }
    if let Some(redis) = redis {
        redis.stop().await;
    }
    // If the store is stuck, `stop` would wait for it, while the other nodes wait for the restart of this one.
    if !matches!(ended, Some(Ended::Store(StoreFault::Stuck(_)))) {
        node.stop().await;
    }
    if let Some(http) = http {
        http.stop().await;
    }
    ended.map_or(Ok(()), |ended| Err(Error::caused(format!("the node has ended: {ended}"), ended)))
}

async fn open_http(config: &ServerConfig) -> Result<Option<HttpServer>> {
    let Some(addr) = &config.http_listen else { return Ok(None) };
    let served = http::serve(addr, config.http_certificates()).await;
    served.map(Some).context(|| "the server can't start; check 'http.listen' and 'tls' in the configuration")
}

/// Scheduled backups or rehearsals of this node, which run beside it.
struct Beside {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Beside {
    fn start_backups(plan: Plan, node: &Node, http: Option<&HttpServer>) -> Self {
        let state = Arc::<State>::default();
        if let Some(http) = http {
            http.show_backups(Arc::clone(&state));
        }
        Self::start(|stop| schedule::run(plan, node.observer(), node.admin(), state, stop))
    }

    fn start<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(Pin<Box<dyn Future<Output = ()> + Send>>) -> F,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        // The sender is not dropped before the node stops.
        let task = tokio::spawn(run(Box::pin(async { drop(stopped.await) })));
        Self { stop, task }
    }

    /// Gives up what is being made, so that another node can make it.
    async fn stop(self) {
        // The task has ended if the node has.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// Returns the scheduled rehearsals of the archive, if there are some.
fn rehearsals(config: &ServerConfig) -> Result<Option<Rehearsals>> {
    let Some(archive) = &config.node.archive else { return Ok(None) };
    let client = Access::of_config(&config.node, None, None).remote();
    config.archive.rehearsals(archive, &config.node.data_dir, client).map_err(Error::of)
}

/// Explains why no node can start with the configuration, and what to do if none was given.
fn unusable(error: ConfigError, has_file: bool) -> Error {
    let todo = match &error {
        ConfigError::Missing(_) if !has_file => {
            "; name a configuration with --config FILE (`quorate init DIR` writes one for each node of a new cluster), \
             or set all keys by variables QUORATE_*"
        }
        _ => "",
    };
    Error::caused(format!("the configuration: {error}{todo}"), error)
}
