//! Restoring a backup, or a state of an archive: it becomes the database of a new epoch, with one node as its first
//! voter.
//!
//! One data directory is prepared. A node that is started in it with its usual configuration leads a cluster of one,
//! and the other members join that cluster as new nodes. Invariants:
//!
//! - Nothing that is there is changed before the backup was read, the directories were claimed, and it was checked that
//!   no configured member answers as part of a running cluster.
//! - Nothing is removed: the contents of a directory are moved aside.
//! - No node starts in a directory in which a restore did not finish (`prepare_start`). What a restore at the birth of
//!   a cluster left is removed first: nothing else was ever there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_archive::restore::has_state;
use quorate_consensus::{CLUSTER_FILE, ClusterId, ConsensusConfig, Living, Restored, check_nobody_lives};
use quorate_env::Env;
use quorate_env::disk::{Disk, make_dir, read_file, replace_file};
use quorate_model::{Epoch, GroupId, Position, StoreIdentity};
use quorate_sql::backup::{self, Backup, FileError, Take};
use quorate_sql::generation;
use tokio::sync::oneshot;

use crate::archive::{FetchError, FetchOptions, FirstState, Objects, fetch_unchecked};
use crate::config::{Config, ConfigError, over};
use crate::error::StartError;
use crate::node::{Claim, LOG_DIR};

/// The file that marks a data directory while it is being prepared.
const UNFINISHED: &str = "RESTORING";

/// The beginning of the line that contains the epoch.
const MARK_EPOCH: &str = "epoch ";

/// The line that says that the restore makes the first state of a new cluster.
const MARK_BIRTH: &str = "birth";

/// The most bytes of that file.
const MARK_BYTES_MAX: u64 = 1024;

/// The file that a state of an archive is fetched into.
const FETCHED: &str = "fetched.db";

/// The name of the directory into which a node is moved aside, without the number at its end.
const ASIDE: &str = "replaced-";

/// Options of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Whether the contents of data directories may be moved aside, into a subdirectory `replaced-<number>` of each
    /// directory.
    pub replace: bool,
    /// The data directories of other members on this machine. They are emptied, so that their nodes join the restored
    /// one.
    pub others: Vec<PathBuf>,
    /// Whether to accept any SQLite database, as a backup of epoch 0.
    pub plain: bool,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restoration {
    /// The new cluster.
    pub cluster: ClusterId,
    /// The position at which its history begins.
    pub position: Position,
    /// The cluster that the backup comes from, and the last position in it; `None` for a plain database.
    pub from: Option<(ClusterId, Position)>,
    /// The size of the database, in bytes.
    pub bytes: u64,
    /// The directories into which the previous nodes were moved.
    pub aside: Vec<PathBuf>,
}

/// The error of a restore.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The configuration can't be used.
    #[error("the configuration: {0}")]
    Config(#[from] ConfigError),
    /// The backup can't be used, or the database can't be made from it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The state of the archive can't be fetched.
    #[error("the archive: {0}")]
    Fetch(#[from] FetchError),
    /// The cluster is running, or may be running.
    #[error(transparent)]
    Living(#[from] Living),
    /// A data directory holds a node.
    #[error("{} holds a node; choose an empty directory, or allow that node to be moved aside", .0.display())]
    Holds(PathBuf),
    /// A data directory is in use or can't be used, or the log can't be made.
    #[error(transparent)]
    Start(#[from] StartError),
    /// An operation on a directory failed.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl RestoreError {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(error) => error.is_retryable(),
            Self::File(error) => error.is_retryable(),
            Self::Fetch(error) => error.is_retryable(),
            Self::Living(living) => living.is_retryable(),
            Self::Holds(_) => false,
            Self::Start(error) => error.is_retryable(),
            Self::Disk { .. } => true,
        }
    }

    fn disk(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Disk { path, source }
    }
}

/// Prepares the data directory of one node. When the node is started with this configuration, it is the first voter of
/// a new epoch, and its database is the backup `file`. The other members of the configuration join by themselves when
/// they are started with empty data directories.
///
/// The new epoch is the one after those of the backup and of the previous contents of the directories. It has a new
/// cluster id, so older nodes can't join it, and no sessions: older handles have to be recreated, and older positions
/// are refused. `docs/decisions/0006-restore.md` has the reasons.
///
/// ```no_run
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::restore::RestoreOptions;
/// use quorate::{Config, Node};
///
/// let config = Config::load("node.toml")?;
/// quorate::restore("monday.db", &config, &RestoreOptions::default()).await?;
/// let node = Node::start(config).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// After [`RestoreError::Disk`], and after other errors that come from the disk, the directory may be half prepared: no
/// node starts in it until a restore into it succeeds. After all other errors, nothing was changed.
pub async fn restore(
    file: impl AsRef<Path>,
    config: &Config,
    options: &RestoreOptions,
) -> Result<Restoration, RestoreError> {
    restore_in(Env::real(), file, config, options).await
}

/// Does the same with a state of an archive ([`fetch`](crate::archive::fetch())), without a file in between: the data
/// directory needs the space of the database once. `plain` of `options` and `is_plain` of `state` do not matter.
///
/// # Errors
///
/// Returns an error, and leaves the directory unused, if the cluster is running or the state can't be fetched.
pub async fn from_archive(
    objects: &Arc<dyn Objects>,
    state: &FetchOptions,
    config: &Config,
    options: &RestoreOptions,
) -> Result<Restoration, RestoreError> {
    let source = Source::Archive(Arc::clone(objects), state.clone());
    start(Env::current().unwrap_or_else(Env::real), source, config, options).await
}

/// Runs [`restore`] in another environment, for simulations.
///
/// # Errors
///
/// Returns the errors of [`restore`].
pub async fn restore_in(
    env: Env,
    file: impl AsRef<Path>,
    config: &Config,
    options: &RestoreOptions,
) -> Result<Restoration, RestoreError> {
    start(env, Source::File(file.as_ref().to_owned()), config, options).await
}

/// Where the database comes from.
enum Source {
    File(PathBuf),
    Archive(Arc<dyn Objects>, FetchOptions),
}

/// Restores on a thread of its own.
async fn start(
    env: Env,
    source: Source,
    config: &Config,
    options: &RestoreOptions,
) -> Result<Restoration, RestoreError> {
    config.check()?;
    let (sender, receiver) = oneshot::channel();
    let (inside, config, options) = (env.clone(), config.clone(), options.clone());
    let root = async move {
        // Sending fails only if the caller no longer waits.
        let _ = sender.send(run(&inside, source, &config, &options, Occasion::Request).await);
    };
    env.start_runtime("quorate-restore", root).map_err(thread)?;
    receiver.await.unwrap_or(Err(StartError::Died.into()))
}

/// Makes an archived state the first one of the cluster that this node would found otherwise. The node has just found
/// out that there is none, and is not open.
pub(crate) async fn at_birth(env: &Env, config: &Config, first: &FirstState) -> Result<(), StartError> {
    let failed = |error: RestoreError| match error {
        // A worker of the look for a cluster may still wait for the disk; nothing is wrong with the state.
        RestoreError::Start(in_use @ StartError::InUse(_)) => in_use,
        error => StartError::FirstState(Box::new(error)),
    };
    let state = FetchOptions {
        cluster: first.cluster,
        target: Some(first.target),
        extensions: config.extensions.clone(),
        ..FetchOptions::default()
    };
    let source = Source::Archive(Arc::clone(&first.objects), state);
    tracing::info!(event = "first_state", node = config.name, "restoring the first state of a new cluster");
    let restored = run(env, source, config, &RestoreOptions::default(), Occasion::Birth).await.map_err(failed)?;
    let Restoration { cluster, position, from, bytes, .. } = restored;
    let (former, last) = from.unwrap_or_default();
    tracing::info!(
        event = "first_state", node = config.name, %cluster, %position, %former, %last, bytes,
        "the first state of the new cluster is restored"
    );
    Ok(())
}

/// Fails if a restore into this directory did not finish. If the node restores a first state itself, what an
/// interrupted try has left is removed instead.
pub(crate) fn prepare_start(disk: &dyn Disk, dir: &Path, restores: bool) -> Result<(), StartError> {
    let failed = |error| StartError::Disk { path: dir.display().to_string(), error };
    if restores {
        remove_useless(disk, &dir.join(FETCHED)).map_err(failed)?;
    }
    let mark = dir.join(UNFINISHED);
    if !disk.exists(&mark).map_err(failed)? {
        return Ok(());
    }
    let is_birth = read_mark(disk, dir).is_some_and(|mark| mark.lines().any(|line| line == MARK_BIRTH));
    if !restores || !is_birth {
        return Err(StartError::Unfinished(dir.display().to_string()));
    }
    tracing::warn!(dir = %dir.display(), "an interrupted restore of a first state begins anew");
    discard(disk, dir).map_err(failed)
}

/// Removes a state that was fetched in part, unless the next restore can go on with it.
fn remove_useless(disk: &dyn Disk, fetched: &Path) -> io::Result<()> {
    if has_state(disk, fetched)? { Ok(()) } else { backup::remove(disk, fetched) }
}

/// Removes all items of a node, and at last the mark.
fn discard(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for item in disk.list(dir)?.iter().filter(|item| items().any(|name| name == item.name)) {
        let path = dir.join(&item.name);
        if item.is_dir { disk.remove_dir_all(&path)? } else { disk.remove_file(&path)? }
    }
    disk.sync_dir(dir)?;
    disk.remove_file(&dir.join(UNFINISHED))?;
    disk.sync_dir(dir)
}

/// Returns the names of everything that makes a node. The log comes first: without it, the rest does not start an old
/// node.
fn items() -> impl Iterator<Item = &'static str> {
    [LOG_DIR, CLUSTER_FILE].into_iter().chain(generation::ITEMS)
}

fn read_mark(disk: &dyn Disk, dir: &Path) -> Option<String> {
    String::from_utf8(read_file(disk, &dir.join(UNFINISHED), MARK_BYTES_MAX).ok()?).ok()
}

/// Why a restore takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// An operator asked for it.
    Request,
    /// A cluster is born. The directory has a log that never belonged to a cluster, and nothing else.
    Birth,
}

async fn run(
    env: &Env,
    source: Source,
    config: &Config,
    options: &RestoreOptions,
    occasion: Occasion,
) -> Result<Restoration, RestoreError> {
    let (_claim, inside) = Claim::take(env, &config.data_dir).await?;
    let mut claims = Vec::new();
    for other in &options.others {
        claims.push(Claim::take(env, other).await?);
    }
    let consensus = config.consensus(config.secret.resolve(&inside, &config.data_dir)?);
    let outside = over(config.tls_net(&inside)?, &inside);
    check_nobody_lives(&outside, &consensus).await?;
    let (dir, others) = (config.data_dir.clone(), options.others.clone());
    let directories = Directories { env: inside, dir, others, occasion };
    directories.check(options.replace)?;
    let (file, take, backup) = match source {
        Source::File(file) => {
            let (disk, path) = (Arc::clone(env.disk()), file.clone());
            let inspect = if options.plain { backup::inspect_plain } else { backup::inspect };
            (file, Take::Copy, blocking(env, move || Ok(inspect(disk.as_ref(), &path)?)).await?)
        }
        Source::Archive(objects, state) => {
            let file = config.data_dir.join(FETCHED);
            let fetched = fetch_unchecked(env, &objects, &file, &state).await;
            if fetched.is_err() {
                // What can't be removed now, the next restore replaces.
                let _ = remove_useless(env.disk().as_ref(), &file);
            }
            (file, Take::Move, fetched?)
        }
    };
    prepare(directories, (file, take), backup, consensus).await
}

/// Changes the directories. No node starts in the node's own directory between the first change and the last.
async fn prepare(
    directories: Directories,
    (file, take): (PathBuf, Take),
    backup: Backup,
    consensus: ConsensusConfig,
) -> Result<Restoration, RestoreError> {
    let (env, dir) = (directories.env.clone(), directories.dir.clone());
    let epoch = Epoch(directories.last_epoch().max(backup.identity.epoch).0.saturating_add(1));
    let restored = Restored::draw(&env, &consensus, epoch, backup.applied.log_id);
    let identity = StoreIdentity { cluster: restored.cluster().0, epoch, group: GroupId::MAIN };
    let applied = restored.applied();
    let position = Position { epoch, group: identity.group, index: applied.index() };

    let aside = blocking(&env, move || {
        directories.mark(epoch)?;
        let aside = directories.move_aside()?;
        backup::restore(directories.env.disk(), &directories.dir, (&file, take), identity, &applied)?;
        Ok(aside)
    })
    .await?;
    restored.write_log(&env, &consensus, &dir.join(LOG_DIR)).await.map_err(StartError::from)?;
    let disk = Arc::clone(env.disk());
    blocking(&env, move || unmark(disk.as_ref(), &dir)).await?;

    let Backup { identity, applied, bytes } = backup;
    let end = Position { epoch: identity.epoch, group: identity.group, index: applied.index() };
    let from = (identity.cluster != 0).then_some((ClusterId(identity.cluster), end));
    Ok(Restoration { cluster: restored.cluster(), position, from, bytes, aside })
}

/// The claimed directories on this machine.
struct Directories {
    env: Env,
    /// The directory of the node that is restored.
    dir: PathBuf,
    /// The directories of the nodes that will join it.
    others: Vec<PathBuf>,
    occasion: Occasion,
}

impl Directories {
    /// Fails if a directory holds a node that may not be moved aside. The remains of an unfinished restore always may.
    fn check(&self, replace: bool) -> Result<(), RestoreError> {
        let disk = self.env.disk();
        let marked = self.dir.join(UNFINISHED);
        if replace || disk.exists(&marked).map_err(RestoreError::disk(&marked))? {
            return Ok(());
        }
        for dir in self.dirs() {
            if !self.held(dir)?.is_empty() {
                return Err(RestoreError::Holds(dir.to_path_buf()));
            }
        }
        Ok(())
    }

    /// Returns the highest epoch found in the directories, as far as they can be read, and in the mark of an unfinished
    /// restore.
    fn last_epoch(&self) -> Epoch {
        let epochs = self.dirs().filter_map(|dir| backup::epoch_of(self.env.disk(), dir));
        epochs.chain(self.marked()).max().unwrap_or_default()
    }

    fn marked(&self) -> Option<Epoch> {
        let text = read_mark(self.env.disk().as_ref(), &self.dir)?;
        text.lines().find_map(|line| line.strip_prefix(MARK_EPOCH)?.parse().ok()).map(Epoch)
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.others.iter().chain([&self.dir]).map(PathBuf::as_path)
    }

    /// Returns the items of a node in a directory, except a log that never belonged to a cluster.
    fn held(&self, dir: &Path) -> Result<Vec<&'static str>, RestoreError> {
        let mut held = Vec::new();
        for item in items().filter(|item| self.occasion == Occasion::Request || *item != LOG_DIR) {
            let path = dir.join(item);
            if self.env.disk().exists(&path).map_err(RestoreError::disk(&path))? {
                held.push(item);
            }
        }
        Ok(held)
    }

    /// Marks the directory as unfinished. The mark contains the epoch, because a later restore can't see what this one
    /// has moved aside.
    fn mark(&self, epoch: Epoch) -> Result<(), RestoreError> {
        let mut text =
            format!("A restore into this directory did not finish. Run it again.\n{MARK_EPOCH}{}\n", epoch.0);
        if self.occasion == Occasion::Birth {
            text.push_str(&format!("{MARK_BIRTH}\n"));
        }
        let path = self.dir.join(UNFINISHED);
        replace_file(self.env.disk().as_ref(), &path, text.as_bytes()).map_err(RestoreError::disk(&path))
    }

    /// Moves everything aside that belongs to a node; returns where it was moved.
    fn move_aside(&self) -> Result<Vec<PathBuf>, RestoreError> {
        let disk = self.env.disk();
        let mut moved = Vec::new();
        for dir in self.dirs() {
            let held = self.held(dir)?;
            if held.is_empty() {
                continue;
            }
            let aside = dir.join(format!("{ASIDE}{}", self.env.unix_nanos()));
            let rename = || {
                make_dir(disk.as_ref(), &aside)?;
                for item in held {
                    disk.rename(&dir.join(item), &aside.join(item))?;
                }
                disk.sync_dir(&aside)?;
                disk.sync_dir(dir)
            };
            rename().map_err(RestoreError::disk(&aside))?;
            moved.push(aside);
        }
        Ok(moved)
    }
}

/// Removes the mark: the restore is complete.
fn unmark(disk: &dyn Disk, dir: &Path) -> Result<(), RestoreError> {
    let path = dir.join(UNFINISHED);
    disk.remove_file(&path).and_then(|()| disk.sync_dir(dir)).map_err(RestoreError::disk(&path))
}

async fn blocking<T: Send + 'static>(
    env: &Env,
    f: impl FnOnce() -> Result<T, RestoreError> + Send + 'static,
) -> Result<T, RestoreError> {
    env.blocking(f).await.unwrap_or(Err(RestoreError::Start(StartError::Died)))
}

fn thread(error: std::io::Error) -> StartError {
    quorate_consensus::StartError::Thread(error).into()
}
