//! Starts a node's part in consensus.
//!
//! The order matters. The log is opened first, because it holds the node's identity. Then the server starts, so that
//! other nodes can ask for the status. Then the node finds or founds its cluster. The store is opened after that,
//! because it must know the cluster, and the core last, because it applies entries to the store. Groups beside `main`
//! take the last two steps too.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use openraft::{SnapshotPolicy, rt::WatchReceiver};
use quorate_env::mutant::Mutant;
use quorate_env::worker::Signal;
use quorate_env::{Cause, Env};
use quorate_model::{GroupId, StateMachine, StoreIdentity};
use quorate_wal::{OpenError, Opened, Recovery, Restart, Wal, WalOptions};
use quorate_wire::{Keys, ServerConfig, serve};
use tokio::task::AbortHandle;

use crate::belong;
use crate::birth;
use crate::combiner::combiner;
use crate::config::{ConsensusConfig, Timing};
use crate::error::StartError;
use crate::events;
use crate::group::{Group, Groups};
use crate::group_log::GroupLog;
use crate::home::Home;
use crate::identity::Identity;
use crate::images::ImageSender;
use crate::levels;
use crate::lineage;
use crate::membership;
use crate::metrics::{GroupMetrics, watch_leaders};
use crate::node::{Consensus, Inner};
use crate::pace::{Pace, Pacer};
use crate::peer_service::{Handler, PeerService, Service};
use crate::peers::Peers;
use crate::purge::Purger;
use crate::raft::Raft;
use crate::raft::log_store::LogStore;
use crate::raft::machine::Machine;
use crate::raft::network::{Network, Sender};
use crate::raft::thrift::Thrift;
use crate::raft::types::{Member, StoredMembership};
use crate::reads::read_positions;
use crate::reboot;
use crate::reconcile;
use crate::stages::Stages;
use crate::standing;
use crate::ticks;
use crate::verdict::{Verdicts, judge};

/// The maximum number of commits that may wait for the store.
const COMMITS_WAITING_MAX: u64 = 65_536;

/// Opens the store of a group once the cluster is known. It may block.
pub type OpenStore =
    Box<dyn FnOnce(StoreIdentity) -> Result<Arc<dyn StateMachine>, Box<dyn std::error::Error + Send + Sync>> + Send>;

impl Consensus {
    /// Starts this node and returns once it belongs to a cluster and the cores of its groups run. If `members` lists
    /// several nodes, the first start waits for all of them. Call this on the runtime that will run the cores, which
    /// has a thread of its own ([`Env::start_runtime`]).
    ///
    /// `stores` has the groups, `main` among them, which must be the same on all nodes. `dir` holds the log and nothing
    /// else. A damaged log is put aside, and the node comes back under a new Raft id. The same happens to a log that
    /// may have lost acknowledged entries, because the durability is `os` and the machine was restarted. A log whose
    /// end is missing is detected only once the stores are open: [`StartError::LogCut`].
    pub fn start<'a>(
        env: &'a Env,
        config: ConsensusConfig,
        dir: &'a Path,
        stores: BTreeMap<GroupId, OpenStore>,
        service: Arc<dyn Service>,
    ) -> BoxFuture<'a, Result<Self, StartError>> {
        // Boxed, so that the core is compiled in this crate and not in each program that awaits this future.
        Self::begin(env, config, dir, stores, service).boxed()
    }

    async fn begin(
        env: &Env,
        config: ConsensusConfig,
        dir: &Path,
        stores: BTreeMap<GroupId, OpenStore>,
        service: Arc<dyn Service>,
    ) -> Result<Self, StartError> {
        check(&config)?;
        let no_main = || StartError::Config("there is no store for the group 'main'".to_owned());
        if !stores.contains_key(&GroupId::MAIN) {
            return Err(no_main());
        }
        let config = Arc::new(config);
        let (home, restart) = open_home(env, &config, dir, &stores.keys().copied().collect::<Vec<_>>()).await?;
        let listen = |error| StartError::Listen { addr: config.listen.clone(), error };
        let listener = env.net().listen(&config.listen).await.map_err(listen)?;
        let addr = listener.local_addr();
        let own = Member { name: config.name.clone(), addr: config.advertise.clone().unwrap_or_else(|| addr.clone()) };
        let peers = Arc::new(Peers::new(env.clone(), ConsensusConfig::clone(&config), home.wire_identity().clone()));
        let peer_service = PeerService::new(&home, &config, &peers, service);
        let keys = Keys::shared(config.secret.clone());
        let server_config = ServerConfig::new(home.wire_identity().clone(), keys);
        let server = serve(env, listener, server_config, Arc::new(Handler(Arc::clone(&peer_service))));

        let founding = birth::settle(&home, &config, &peers, &own).await?;
        peers.hang_up();
        lineage::keep(env, dir, &home.identity())?;
        let opened = open_stores(&home, stores, restart).await?;
        let mut tasks = Vec::new();
        let mut groups = BTreeMap::new();
        for (log, store) in opened {
            let founding = if log.group() == GroupId::MAIN { founding.clone() } else { None };
            let group = Group::start(&log, store, &config, &peers, restart, founding, &mut tasks).await?;
            groups.insert(log.group(), group);
        }
        let main = groups.remove(&GroupId::MAIN).ok_or_else(no_main)?;
        for group in groups.values() {
            tasks.push(task(env, membership::follow::follow(main.clone(), group.clone())));
            tasks.push(task(env, levels::follow(main.clone(), group.clone())));
        }
        let groups = Arc::new(Groups { main: main.clone(), others: groups });
        // Nothing else sets it.
        let _ = peer_service.groups.set(Arc::clone(&groups));
        tasks.extend(watchers(env, &peer_service, &main, own, dir));
        let inner = Inner {
            service: peer_service,
            groups,
            runtime: tokio::runtime::Handle::current(),
            addr,
            server: Mutex::new(Some(server)),
            tasks: Mutex::new(tasks),
        };
        Ok(Self(Arc::new(inner)))
    }
}

/// Starts the tasks that watch the members and maintain this node's place among them.
fn watchers(env: &Env, service: &Arc<PeerService>, main: &Group, own: Member, dir: &Path) -> [AbortHandle; 6] {
    [
        task(env, Arc::clone(&service.peers).watch()),
        task(env, follow_members(main.raft.clone(), Arc::clone(&service.peers))),
        task(env, events::watch(env.clone(), Arc::clone(service), main.clone(), dir.to_owned())),
        task(env, levels::raise(Arc::clone(service), main.clone())),
        task(env, membership::finish(Arc::clone(service), main.raft.clone())),
        task(env, belong::belong(Arc::clone(service), main.clone(), own)),
    ]
}

impl Group {
    /// Starts the core of a group, whose log and store agree. `founding` has the members to found it with, if this node
    /// founds it now. Adds the tasks to `tasks`.
    async fn start(
        log: &GroupLog,
        store: Arc<dyn StateMachine>,
        config: &Arc<ConsensusConfig>,
        peers: &Arc<Peers>,
        restart: Restart,
        founding: Option<BTreeMap<u64, Member>>,
        tasks: &mut Vec<AbortHandle>,
    ) -> Result<Self, StartError> {
        let (env, home) = (log.env(), log.home());
        let metrics = Arc::new(GroupMetrics::default());
        let images = Arc::new(ImageSender::new(log, Arc::clone(&store), Arc::clone(&metrics)));
        let stages = Stages::new(env.clone(), log.node(), Arc::clone(&metrics));
        let verdicts = Verdicts::begin(log, &store, restart).await?;
        if log.group() != GroupId::MAIN {
            birth::found_beside_main(log, &*store).await?;
        }
        let log_store = LogStore::new(log, &stages, &store, &verdicts);
        let (thrift, pace) = (Arc::<Thrift>::default(), Arc::<Pace>::default());
        let network = Network::new(Sender {
            group: log.group(),
            peers: Arc::clone(peers),
            images: Arc::clone(&images),
            thrift: Arc::clone(&thrift),
            pace: Arc::clone(&pace),
            verdicts: Arc::clone(&verdicts),
        });
        let machine = Machine::new(log.clone(), Arc::clone(&store), Arc::clone(&verdicts));
        machine.replay().await;
        let raft = start_core(home, config.timing, network, log_store, machine, founding).await?;
        verdicts.bind(&raft, peers);
        let pacer = Pacer::new(pace, Arc::clone(&store), Arc::clone(&metrics));
        let (combiner, gatherer) = combiner(env, log.group(), &raft, peers, &stages, &metrics, pacer);
        let (reads, rounds) = read_positions();
        let (log, config, peers, leader_contact) = (log.clone(), Arc::clone(config), Arc::clone(peers), Arc::default());
        let group = Self {
            log,
            config,
            peers,
            raft,
            store,
            combiner,
            verdicts,
            images,
            reads,
            stages,
            leader_contact,
            metrics,
            kept: Arc::default(),
        };
        tasks.extend([
            task(env, gatherer.run()),
            task(env, rounds.run(group.id(), group.raft.clone(), Arc::clone(&group.peers), Arc::clone(&group.metrics))),
            task(env, Purger(group.clone()).run()),
            task(env, follow_voters(group.raft.clone(), thrift)),
            task(env, watch_leaders(group.raft.clone(), Arc::clone(&group.metrics))),
            task(env, judge::run(Arc::clone(&group.verdicts), group.raft.clone(), Arc::clone(&group.peers))),
            task(env, membership::step_aside(group.clone())),
            task(env, standing::control_elections(group.clone())),
            task(env, ticks::run(group.clone())),
        ]);
        Ok(group)
    }
}

fn task(env: &Env, future: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    env.spawn(future).abort_handle()
}

fn check(config: &ConsensusConfig) -> Result<(), StartError> {
    let listed = config.members.is_empty() || config.members.iter().any(|member| member.name == config.name);
    if !listed {
        return Err(StartError::Config(format!("'{}' is not in the list of members", config.name)));
    }
    let mut names: Vec<&str> = config.members.iter().map(|member| member.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() != config.members.len() {
        return Err(StartError::Config("two members have the same name".to_owned()));
    }
    Ok(())
}

/// Opens the log, or a new one next to a log that can't be reused, and reads the identity or draws a new one.
pub(crate) async fn open_home(
    env: &Env,
    config: &ConsensusConfig,
    dir: &Path,
    groups: &[GroupId],
) -> Result<(Home, Restart), StartError> {
    let mut opened = open_log(env, config, dir)?;
    let mut known = known_identity(config, &opened.recovery)?;
    if let Some(former) = known.as_ref().filter(|_| reboot::may_have_lost(config, &opened.recovery)) {
        if config.is_alone() {
            return Err(StartError::Rebooted);
        }
        tracing::error!(
            event = "rebooted", former = %former.node(),
            "the machine was restarted while this node ran, and with durability 'os' its log may have lost what it \
             acknowledged; this node comes back as a new member"
        );
        drop(opened);
        lineage::keep(env, dir, former)?;
        move_log(env, dir, &lineage::aside(dir, lineage::REBOOTED, env.unix_nanos()))?;
        opened = open_log(env, config, dir)?;
        known = None;
    }
    let (restart, was_in_use) = (opened.recovery.restart, reboot::was_in_use(&opened.recovery));
    let wal = run_workers(env, opened)?;
    groups.iter().for_each(|group| wal.set_durability(*group, config.durability));
    let is_new = known.is_none();
    let mut identity = known.unwrap_or_else(|| Identity::new(new_id(env, &config.name), &config.name));
    let has_inherited = lineage::inherit(env, dir, config.had_store, &mut identity)?;
    let is_complete = !is_new && was_in_use && restart != Restart::Rebooted;
    let home = Home::new(env.clone(), wal, identity, is_complete);
    if is_new || has_inherited {
        home.change(|_| Ok::<(), ()>(())).await?.unwrap_or_default();
    }
    Ok((home, restart))
}

/// Draws an id that no directory had before.
fn new_id(env: &Env, name: &str) -> u64 {
    if Mutant::LostIdentityReused.is_on() {
        return name.bytes().fold(1, |id, byte| id * 31 + u64::from(byte));
    }
    env.rng().next_u64().max(1)
}

/// Opens the log, or a new one next to a damaged one. Fails without changing anything if the node runs alone, because
/// no other node could bring it up to date.
fn open_log(env: &Env, config: &ConsensusConfig, dir: &Path) -> Result<Opened, StartError> {
    let open = || Wal::open(Arc::clone(env.disk()), dir, log_options(env, config));
    match open() {
        Err(error @ OpenError::Corrupt { .. }) if config.is_alone() => Err(StartError::LogDamaged(error)),
        Err(OpenError::Corrupt { path: segment, offset, what }) => {
            tracing::error!(
                segment = %segment.display(), offset, what,
                "the log is damaged; this node comes back as a new member"
            );
            put_log_aside(env, dir)?;
            Ok(open()?)
        }
        opened => Ok(opened?),
    }
}

/// Returns the identity in the log, if there is one. Fails if the node can't be started under it.
fn known_identity(config: &ConsensusConfig, recovery: &Recovery) -> Result<Option<Identity>, StartError> {
    let Some(bytes) = &recovery.identity else { return Ok(None) };
    let identity = Identity::read(bytes)?;
    if identity.name != config.name {
        return Err(StartError::Name { expected: config.name.clone(), found: identity.name });
    }
    if identity.removed {
        return Err(StartError::Removed(belong::refusal(&identity.name, identity.node())));
    }
    if !identity.cluster.is_empty() {
        config.check_durability("this data directory's cluster", identity.durability)?;
    }
    Ok(Some(identity))
}

/// Returns the options with which the log is opened.
pub(crate) fn log_options(env: &Env, config: &ConsensusConfig) -> WalOptions {
    WalOptions {
        segment_bytes: config.log_segment_bytes,
        tail_bytes: usize::try_from(config.log_segment_bytes).unwrap_or(usize::MAX),
        ..WalOptions::new(env.rng().next_u64())
    }
}

/// Moves a damaged log aside and keeps it for inspection. The next start draws a new Raft id in the same cluster.
pub fn put_log_aside(env: &Env, dir: &Path) -> Result<(), StartError> {
    move_log(env, dir, &lineage::aside(dir, lineage::DAMAGED, env.unix_nanos()))
}

/// Renames the directory of a log, durably. The new name is in the same parent directory.
fn move_log(env: &Env, from: &Path, to: &Path) -> Result<(), StartError> {
    let moved = env.disk().rename(from, to);
    let synced = moved.and_then(|()| env.disk().sync_dir(from.parent().unwrap_or(from)));
    let failed = |error| OpenError::Io { action: "move", path: from.to_path_buf(), source: Cause::of(error) };
    synced.map_err(|error| StartError::Log(failed(error)))
}

/// Starts the threads of the log.
pub(crate) fn run_workers(env: &Env, opened: Opened) -> Result<Wal, StartError> {
    let Opened { wal, writer, keeper, .. } = opened;
    let (writer_bell, keeper_bell): (Signal, Signal) = (writer.signal().clone(), keeper.signal().clone());
    env.start_worker("quorate-log", writer, &writer_bell).map_err(StartError::Thread)?;
    env.start_worker("quorate-segments", keeper, &keeper_bell).map_err(StartError::Thread)?;
    Ok(wal)
}

/// Opens the stores, and makes each of them agree with the log of its group.
pub(crate) async fn open_stores(
    home: &Home,
    stores: BTreeMap<GroupId, OpenStore>,
    restart: Restart,
) -> Result<Vec<(GroupLog, Arc<dyn StateMachine>)>, StartError> {
    let mut opened = Vec::new();
    for (group, open_store) in stores {
        let (log, store) = (GroupLog::new(home, group), open(home, group, open_store).await?);
        reconcile::reconcile(&log, &*store)?;
        opened.push((log, store));
    }
    if restart == Restart::Rebooted {
        reconcile::accept_reboot(&home.wal).await?;
    }
    Ok(opened)
}

async fn open(home: &Home, group: GroupId, open_store: OpenStore) -> Result<Arc<dyn StateMachine>, StartError> {
    let identity = home.identity();
    let store = StoreIdentity { cluster: identity.cluster().0, epoch: identity.epoch(), group };
    let inside = home.env.clone();
    match home.env.blocking(move || inside.enter(|| open_store(store))).await {
        Some(opened) => opened.map_err(|source| StartError::Store { group, source }),
        None => Err(StartError::Core("the node is shutting down".into())),
    }
}

async fn start_core(
    home: &Home,
    timing: Timing,
    network: Network,
    log: LogStore,
    machine: Machine,
    founding: Option<BTreeMap<u64, Member>>,
) -> Result<Raft, StartError> {
    let raft_config = raft_config(timing).map_err(|error| StartError::Core(Cause::from(error)))?;
    let id = home.identity().id;
    let raft = Raft::new(id, Arc::new(raft_config), network, log, machine).await;
    let raft = raft.map_err(|error| StartError::Core(Cause::from(error)))?;
    if let Some(members) = founding {
        raft.initialize(members).await.map_err(|error| StartError::Core(Cause::from(error)))?;
    }
    Ok(raft)
}

/// Returns openraft's settings; `docs/decisions/0004-openraft-settings.md` gives the reasons.
fn raft_config(timing: Timing) -> Result<openraft::Config, openraft::ConfigError> {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    openraft::Config {
        cluster_name: "quorate".to_owned(),
        heartbeat_interval: millis(timing.heartbeat),
        heartbeat_min_interval: Some(millis(timing.heartbeat) / 2),
        // While an entry can't be applied, commits wait in this channel. A full channel would block the core.
        state_machine_channel_size: Some(COMMITS_WAITING_MAX),
        election_timeout_min: millis(timing.election_min),
        election_timeout_max: millis(timing.election_max),
        // A restored leader could assign a log id twice, with different contents.
        enable_leader_restore: Some(Mutant::LeaderRestored.is_on()),
        enable_pre_vote: Some(true),
        quorum_loss_probe_interval: Some(millis(timing.election_max).saturating_mul(2)),
        allow_log_reversion: None,
        max_payload_entries: 4_096,
        max_append_entries: Some(8_192),
        api_batch_capacity: 8_192,
        api_batch_linger_ms: 0,
        snapshot_policy: SnapshotPolicy::Never,
        // `Purger` decides what is purged.
        max_in_snapshot_log_to_keep: u64::MAX,
        purge_batch_size: 1_024,
        // Followers that lag get entries, not an image, as long as the log still holds the entries.
        replication_lag_threshold: u64::MAX,
        ..openraft::Config::default()
    }
    .validate()
}

/// Keeps the list of members as the log of `main` has it.
async fn follow_members(raft: Raft, peers: Arc<Peers>) {
    let set = |members: &StoredMembership| {
        peers.set_members(members.nodes().map(|(id, member)| (*id, member.clone())).collect());
    };
    follow_membership(&raft, set).await;
}

/// Tells the choice of followers who the voters of a group are.
async fn follow_voters(raft: Raft, thrift: Arc<Thrift>) {
    let own = *raft.node_id();
    follow_membership(&raft, |members| thrift.set_members(own, members.membership())).await;
}

/// Calls `set` with the membership of a group, and again whenever it changes.
async fn follow_membership(raft: &Raft, set: impl Fn(&StoredMembership)) {
    let mut metrics = raft.server_metrics();
    let mut known = None;
    loop {
        let membership = metrics.borrow_watched().membership_config.clone();
        if known.as_ref() != Some(membership.log_id()) {
            known = Some(*membership.log_id());
            set(&membership);
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}
