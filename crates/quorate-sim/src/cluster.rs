//! The simulated cluster: three or five whole nodes, and their process lives.
//!
//! Invariant: everything that belongs to a life of a node is dropped before its next life begins.

use std::collections::BTreeSet;
use std::io::ErrorKind::NotFound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate::{
    Admin, Config, Extensions, Node, SecretSource, Sql, Status,
    config::{Durability, SqlOptions, Timing},
    sim::SimHooks,
    users::Users,
};
use quorate_env::{Env, Instant, lock, sleep};
use quorate_env_sim::{SimDisk, SimWorld};
use quorate_model::limits::{BASE_LEVEL, FORMAT_LEVEL};
use quorate_model::{GroupId, StateMachine as _, StoreFault};

use crate::archive::SimArchive;
use crate::coverage::Phase;
use crate::damage;
use crate::history::History;
use crate::program;
use crate::vfs;
use crate::watched::Watched;

mod address;
mod archived;
mod beside;
mod compare;
mod found;
mod life;
mod operator;
mod outsiders;
mod revival;

#[cfg(test)]
mod tests;

pub use beside::BESIDE;
pub use life::End;
use life::{Life, Lives, Tuning};

/// The names of the nodes of a large cluster; a small cluster has the first three.
const NAMES: [&str; 5] = ["node-1", "node-2", "node-3", "node-4", "node-5"];
const SMALL: usize = 3;

/// One cluster in this many is large.
const LARGE_ONE_IN: u64 = 5;

/// The directory of a node on its disk.
const DATA_DIR: &str = "/data";

/// Sizes that are small, so that rare events happen often.
pub const SEGMENT_BYTES: u64 = 64 << 10;
const BATCH_ENTRIES_MAX: usize = 24;
const CACHE_BYTES: u32 = 256 << 10;

/// How long a member must have been silent before a wiped directory may take its place.
const SILENCE: Duration = Duration::from_secs(3);

/// How long a node may take to notice that its disk has room again.
const RELIEF_MAX: Duration = Duration::from_secs(3);

/// How often a condition is checked while the simulator waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A handle of the simulated cluster. Clones share the same cluster.
#[derive(Clone)]
pub struct Cluster {
    world: SimWorld,
    names: &'static [&'static str],
    tuning: Tuning,
    history: History,
    /// The history of the group beside `main`.
    beside: History,
    durability: Durability,
    keeps_disks: bool,
    archive: Option<SimArchive>,
    lives: Arc<Mutex<Lives>>,
}

impl Cluster {
    /// Creates a cluster whose nodes have not started.
    pub fn new(world: &SimWorld, history: &History, durability: Durability) -> Self {
        let is_large = world.rng().below(LARGE_ONE_IN) == 0;
        let names = if is_large { NAMES.as_slice() } else { NAMES.split_at(SMALL).0 };
        let tuning = Tuning::draw(world.rng());
        let (world, history, keeps_disks) = (world.clone(), history.clone(), world.rng().chance(0.3));
        let beside = history.beside("beside main: ");
        let (archive, lives) = Default::default();
        Self { world, names, tuning, history, beside, durability, keeps_disks, archive, lives }
    }

    /// Returns the names of its nodes.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Whether this cluster never loses a disk. Otherwise an entry that most nodes can't apply could wait for the
    /// verdict of a voter that never comes back.
    pub fn keeps_disks(&self) -> bool {
        self.keeps_disks
    }

    /// Whether a node may lose acknowledged data in a power failure.
    pub fn forgets_without_power(&self) -> bool {
        self.durability != Durability::Fsync
    }

    /// Whether a node whose life ends in this way may lose its identity.
    fn forgets(&self, end: End) -> bool {
        matches!(end, End::Wipe | End::BadLog | End::BadDatabase) || (end == End::Power && self.forgets_without_power())
    }

    /// Returns the history of everything that was applied.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the simulated world of the cluster.
    pub fn world(&self) -> &SimWorld {
        &self.world
    }

    /// Returns the secret of the cluster, which all nodes and clients know.
    pub fn secret() -> SecretSource {
        SecretSource::Inline("a secret that every node knows".to_owned())
    }

    /// Begins a node's next life.
    pub fn start(&self, name: &'static str) {
        let env = self.world.node(name);
        let clock = Arc::new(self.world.clock(name));
        let slot = match vfs::bind(&self.world.disk(name), clock, self.world.rng().fork()) {
            Ok(slot) => slot,
            Err(error) => return self.history.violation(error.to_string()),
        };
        // Disk faults that were planned for the previous life end with it. A full disk stays full.
        self.world.disk(name).clear_faults();
        // The data directory exists and is durable before the node starts, as if an operator had created it.
        let disk = env.disk();
        let made = disk.create_dir_all(Path::new(DATA_DIR)).and_then(|()| disk.sync_dir(Path::new("/")));
        if let Err(error) = made {
            return self.history.violation(format!("the data directory of {name} can't be created: {error}"));
        }
        let mut lives = self.lives();
        let count = lives.counts.entry(name).or_default();
        *count += 1;
        let of_current = self.archive.as_ref().is_some_and(SimArchive::is_of_current);
        let is_current = *count > 1 || of_current || self.names.last() != Some(&name);
        let who = format!("{name}.{count}");
        lives.now.insert(name, Life::new(who.clone(), slot));
        drop(lives);
        let cluster = self.clone();
        let inside = env.clone();
        let place = self.names.iter().position(|other| *other == name).unwrap_or_default();
        let ailing = self.clone();
        let ail = move |ailment| ailing.ails(name, ailment);
        let config = self.config(name, program::extensions(is_current, place, ail));
        drop(env.spawn(async move { cluster.run(name, who, inside, config, is_current).await }));
    }

    async fn run(&self, name: &'static str, who: String, env: Env, config: Config, is_current: bool) {
        let seams = self.seams(name, &who, &env, is_current);
        match Node::start_with(env, config, seams).await {
            Ok(node) => {
                self.world.trace().add(&who, format_args!("serves"));
                self.with_life(name, |life| life.node = Some(Arc::new(node)));
                self.ask_early(name, &who).await;
            }
            Err(error) => {
                let is_excused = self.is_full(name) || self.with_life(name, |life| life.is_doomed) == Some(true);
                self.with_life(name, |life| life.has_failed = true);
                self.complain(is_excused, &who, format!("did not start: {error}"));
            }
        }
    }

    fn seams(&self, name: &'static str, who: &str, env: &Env, is_current: bool) -> SimHooks {
        let (inside, rng, cluster, who) = (env.clone(), env.rng().fork(), self.clone(), who.to_owned());
        // A restore from an archive applies entries as a node with the usual options does.
        let (tuning, keeps_few_events) = (self.tuning, self.archive.is_none());
        let level = if is_current { FORMAT_LEVEL } else { BASE_LEVEL };
        let open_items = self.open_items(name, &who, &inside, level);
        SimHooks {
            level: Some(level),
            // Who would write an archive is decided even if there is none.
            archives: true,
            groups: [(BESIDE, open_items)].into(),
            log_segment_bytes: Some(SEGMENT_BYTES),
            tune: Some(Arc::new(move |options| {
                tuning.tune(options, keeps_few_events);
                options.batch_entries_max = BATCH_ENTRIES_MAX;
                options.shuffle_batches = Some(rng.fork());
            })),
            watch: Some(Arc::new(move |store| {
                cluster.found(name, &who, GroupId::MAIN, &store);
                let (store, logged) = (Arc::new(store), cluster.logged(name, GroupId::MAIN));
                let watched = Arc::new(Watched::new(&inside, who.clone(), store, cluster.history.clone(), logged));
                cluster.with_life(name, |life| life.store = Arc::downgrade(&watched));
                watched
            })),
        }
    }

    /// Ends a node's life.
    pub async fn end(&self, name: &'static str, end: End) {
        let life = self.lives().now.remove(name);
        let Some(Life { who, node, reader, slot, .. }) = life else { return };
        self.world.trace().add(&who, format_args!("{end:?}"));
        if self.forgets(end) || self.has_failed_to_install(&who) || self.history.is_tampered(name) {
            let mut lives = self.lives();
            let losses = lives.losses.entry(name).or_default();
            losses.all += 1;
            losses.disks += u64::from(end == End::Wipe);
            lives.unsound.insert(name);
        }
        if end == End::Wipe {
            self.history.is_good_again(name);
        }
        // In both cases the database may end after the log. A power failure may remove entries from the log that a
        // majority of other nodes had synced, and an image is in place before the log records it.
        for group in [GroupId::MAIN, BESIDE] {
            if end == End::Power || self.history_of(group).has_installed(&who) {
                self.set_ahead(name, group, true);
            }
        }
        drop((node, reader));
        match end {
            End::Kill | End::BadLog | End::BadDatabase | End::BadPointer => self.world.kill(name).await,
            End::Power => self.world.crash(name).await,
            End::Wipe => self.world.wipe(name).await,
        }
        drop(slot);
        let (disk, dir) = (self.world.disk(name), Path::new(DATA_DIR));
        let damaged = match end {
            End::BadLog => damage::flip_log_bit(&disk, &dir.join("log"), self.world.rng()),
            End::BadDatabase => damage::overwrite_database_header(&disk, dir),
            End::BadPointer => damage::flip_pointer_bit(&disk, dir, self.world.rng()),
            End::Kill | End::Power | End::Wipe => Ok(()),
        };
        match damaged {
            // A node that was killed while it created its files, or put them aside, has no file to damage.
            Err(error) if error.kind() != NotFound => {
                self.history.violation(format!("{who} can't be damaged: {error}"));
            }
            _ => {}
        }
    }

    /// Whether a node's process runs.
    pub fn is_alive(&self, name: &'static str) -> bool {
        self.lives().now.contains_key(name)
    }

    /// Returns the SQL handle of a node, if the node serves.
    pub fn sql(&self, name: &'static str) -> Option<Sql> {
        self.node(name).map(|node| node.sql())
    }

    /// Returns the state of a node and its handle for operators, if the node serves.
    pub fn admin(&self, name: &'static str) -> Option<(Status, Admin)> {
        self.node(name).map(|node| (node.status(), node.admin()))
    }

    /// Returns a node's check of users, if the node serves.
    pub fn users(&self, name: &'static str) -> Option<Users> {
        self.node(name).map(|node| node.users())
    }

    /// Changes the behaviour of a node's disk for the present life. The node may stop because of it.
    pub fn doom(&self, name: &'static str, make: impl FnOnce(&SimDisk)) {
        let doomed = self.with_life(name, |life| {
            life.is_doomed = true;
            life.who.clone()
        });
        if let Some(who) = doomed {
            self.history.may_lose_images(&who);
            self.beside.may_lose_images(&who);
            make(&self.world.disk(name));
        }
    }

    /// Flips a bit of the image that a node is receiving, if any.
    pub fn damage_image(&self, name: &'static str) {
        let Some(who) = self.with_life(name, |life| life.who.clone()) else { return };
        if !self.history.may_damage_image(&who) {
            return;
        }
        let disk = self.world.disk(name).watcher();
        if let Err(error) = damage::flip_image_bit(&disk, Path::new(DATA_DIR), self.world.rng()) {
            self.history.violation(format!("the image for {name} can't be damaged: {error}"));
        }
    }

    /// Limits the room on a node's disk to this many bytes more, or removes the limit.
    pub fn fill_disk(&self, name: &'static str, room: Option<u64>) {
        let disk = self.world.disk(name);
        disk.set_capacity(room.map(|room| disk.used().saturating_add(room)));
        let mut lives = self.lives();
        match lives.full.get_mut(name) {
            None if room.is_none() => {}
            Some(until) if room.is_none() => *until = until.or_else(|| Some(Instant::now() + RELIEF_MAX)),
            _ => drop(lives.full.insert(name, None)),
        }
    }

    /// Ends all disk faults, and ends the lives of nodes whose disks failed or that failed to start. Returns how many
    /// lives ended.
    pub async fn mend_disks(&self, end: End) -> u32 {
        let mut ended = 0;
        for name in self.names {
            self.fill_disk(name, None);
            let disk = self.world.disk(name);
            disk.clear_faults();
            let has_failed = self.with_life(name, |life| life.has_failed || (life.is_doomed && disk.failures() > 0));
            if has_failed == Some(true) {
                self.end(name, end).await;
                ended += 1;
            } else {
                self.with_life(name, |life| life.is_doomed = false);
            }
        }
        ended
    }

    /// Returns the phases that a node is in.
    pub fn phases(&self, name: &'static str) -> BTreeSet<Phase> {
        let unsynced = self.world.disk(name).unsynced();
        let is_any = |holds: &dyn Fn(&Path) -> bool| unsynced.iter().any(|path| holds(path));
        let log = Path::new(DATA_DIR).join("log");
        let leader = self.leader();
        let seen = [
            (leader == Some(name), Phase::Leads),
            (leader == Some(name) && self.is_new_leader(name), Phase::Elected),
            (leader.is_none(), Phase::NoLeader),
            (self.is_alive(name) && self.node(name).is_none(), Phase::Starts),
            (self.is_blocked(name), Phase::Blocked),
            (is_any(&|path| path.starts_with(&log)), Phase::Append),
            (is_any(&|path| path.ends_with("quorate.db")), Phase::Checkpoint),
        ];
        let seen = seen.into_iter().filter(|(is_so, _)| *is_so).map(|(_, phase)| phase);
        let store = self.with_life(name, |life| life.store.upgrade()).flatten();
        seen.chain(store.into_iter().flat_map(|store| store.phases())).collect()
    }

    /// Returns the node that believes that it leads. If there are several, it is the one in the highest term.
    pub fn leader(&self) -> Option<&'static str> {
        let leads = |name: &&'static str| {
            let node = self.node(name)?;
            node.is_leader().then(|| (node.status().term, *name))
        };
        self.names.iter().filter_map(leads).max().map(|(_, name)| name)
    }

    /// Whether no entry of the term in which a node leads is known to be committed.
    fn is_new_leader(&self, name: &'static str) -> bool {
        self.node(name).is_some_and(|node| node.status().term > self.history.last_term())
    }

    /// Returns the statuses of the nodes that serve.
    pub fn statuses(&self) -> Vec<Status> {
        self.names.iter().filter_map(|name| Some(self.node(name)?.status())).collect()
    }

    /// Returns a text that says for each node that serves which leader it has, how far it has applied what is
    /// committed, and which entry it can't apply.
    pub fn summary(&self) -> String {
        let line = |status: Status| {
            let Status { name, leader, applied, committed_index, blocked, .. } = status;
            let leader = leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string());
            format!("{name} under {leader} has applied {applied} of {committed_index}, blocked: {blocked:?}")
        };
        self.statuses().into_iter().map(line).collect::<Vec<_>>().join("; ")
    }

    /// Whether all nodes serve, are voters and have applied all committed entries, and no node's data are changed or
    /// about to be.
    pub fn is_whole(&self) -> bool {
        self.is_complete() && !self.has_foreign_data()
    }

    /// Whether all nodes serve, are voters and have applied all committed entries.
    pub(super) fn is_complete(&self) -> bool {
        let statuses = self.statuses();
        let Some(leader) = self.leader().and_then(|name| Some(self.node(name)?.status())) else { return false };
        let is_voter = |status: &Status| {
            let own = leader.members.iter().find(|member| member.id == status.node);
            own.is_some_and(|own| own.voter) && status.leader == Some(leader.node)
        };
        statuses.len() == self.names.len()
            && leader.members.len() == self.names.len()
            && statuses.iter().all(|status| is_voter(status) && status.applied.index >= leader.committed_index)
            && self.beside_is_whole()
    }

    /// Whether all nodes serve and have applied both groups up to the same index.
    pub fn indexes_are_equal(&self) -> bool {
        let indexes = |name: &&'static str| {
            let status = self.node(name)?.status();
            Some((status.applied.index, self.group(name)?.status().applied.index))
        };
        let all: Vec<Option<(u64, u64)>> = self.names.iter().map(indexes).collect();
        all.iter().all(|indexes| indexes.is_some() && Some(indexes) == all.first())
    }

    /// Waits until a condition holds. Returns whether it held within the limit.
    pub async fn until(&self, limit: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        while !holds(self) {
            self.revive().await;
            self.see_outsiders();
            if Instant::now() >= deadline {
                return false;
            }
            sleep(LOOK_EVERY).await;
        }
        true
    }

    /// Checks the leaders and identities of all nodes, and whether a node has stopped or has a fault without a reason.
    pub fn look(&self) {
        self.see_outsiders();
        self.archive.iter().for_each(SimArchive::look);
        for name in self.names {
            let Some(node) = self.node(name) else { continue };
            let losses = self.lives().losses.get(name).copied().unwrap_or_default();
            let life = self.with_life(name, |life| (life.who.clone(), life.is_doomed, life.store.upgrade()));
            let Some((who, is_doomed, store)) = life else { continue };
            let status = node.status();
            self.history.cluster(&who, status.cluster);
            self.history.identity(name, losses, status.node);
            self.archive.iter().for_each(|archive| archive.told(&status));
            if node.is_leader() {
                self.history.leads(&who, status.term, status.node);
                self.history.leader_holds(&who, status.term, status.last_index);
            }
            self.look_beside(name, &who, status.node);
            if let Some(reason) = status.stopped {
                let is_excused = is_doomed || self.history.is_spoiled(name) || self.has_ended_stuck(name);
                self.complain(is_excused, &who, format!("has stopped: {reason}"));
            }
            if let Some(fault) = store.and_then(|store| store.fault()) {
                let is_excused = match fault {
                    StoreFault::Full(_) => self.is_full(name),
                    StoreFault::Diverged(_) => self.history.is_tampered(name),
                    StoreFault::Damaged(_) => self.history.is_spoiled(name),
                    _ => false,
                } || is_doomed;
                self.complain(is_excused, &who, format!("has a fault in its store: {fault}"));
            }
        }
    }

    /// Records a problem of a node: as a note if it is excused, else as a violation.
    fn complain(&self, is_excused: bool, who: &str, what: String) {
        if is_excused {
            self.history.note(who, format_args!("{what} (excused)"));
        } else {
            self.history.violation(format!("{who} {what}"));
        }
    }

    fn is_full(&self, name: &'static str) -> bool {
        self.lives().full.get(name).is_some_and(|until| until.is_none_or(|until| Instant::now() < until))
    }

    fn config(&self, name: &str, extensions: Extensions) -> Config {
        let caches = SqlOptions::default().with_reader_cache_bytes(CACHE_BYTES).with_writer_cache_bytes(CACHE_BYTES);
        let mut config = Config::single(DATA_DIR)
            .with_name(name)
            .with_durability(self.durability)
            .with_extensions(extensions)
            .with_members(self.names.iter().map(|name| (*name, self.addr(name))))
            .with_secret(Self::secret())
            .with_timing(Timing { silence: SILENCE, ..Timing::default() })
            .with_keep_log_bytes(self.tuning.keep_log_bytes)
            .with_sql(caches.with_readers(4));
        config.archive = self.archive.as_ref().map(|archive| archive.config(name));
        config
    }

    fn node(&self, name: &'static str) -> Option<Arc<Node>> {
        self.lives().now.get(name)?.node.clone()
    }

    fn with_life<T>(&self, name: &'static str, f: impl FnOnce(&mut Life) -> T) -> Option<T> {
        self.lives().now.get_mut(name).map(f)
    }

    fn lives(&self) -> MutexGuard<'_, Lives> {
        lock(&self.lives)
    }
}
