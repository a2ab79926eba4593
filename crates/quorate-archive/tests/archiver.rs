//! An archive is a model of a database and its log: whatever happens to the store and to the archivers, every state
//! that it promises is restored exactly.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "archiver/careless.rs"]
mod careless;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use careless::Careless;
use proptest::prelude::*;
use quorate_archive::objects::{Memory, Trouble, Verb};
use quorate_archive::restore::{Plan, Target};
use quorate_archive::{ArchiveError, Archiver, Changed, Identity, Objects, PageSource, Put, Tidying};
use quorate_env::disk::OpenMode;
use quorate_env::{Env, Rng};

const PAGE: usize = 512;
const CLUSTER: u128 = 0xc0ffee;
const EPOCH: u64 = 3;
/// Entries come once an hour, so a day has 24.
const HOUR: i64 = 3_600_000;
/// For how many entries a state is kept, where it is asked for.
const KEEP: u64 = 40;

/// A database: an entry changes some pages, and may cut or extend it. The state after each entry is kept.
#[derive(Default)]
struct History {
    /// The states by the number of the entry, and the entries.
    states: Vec<Vec<[u8; PAGE]>>,
    entries: Vec<Bytes>,
}

/// What an entry does: the number of pages after it, and the pages that it writes with a byte.
#[derive(Clone, Debug)]
struct Change {
    pages: u8,
    writes: Vec<(u8, u8)>,
}

impl Change {
    fn apply(&self, state: &mut Vec<[u8; PAGE]>) {
        state.resize(usize::from(self.pages), [0; PAGE]);
        for (number, byte) in &self.writes {
            let at = usize::from(*number) % state.len();
            state[at][usize::from(*byte)] = state[at][usize::from(*byte)].wrapping_add(*byte | 1);
        }
    }

    fn encode(&self) -> Bytes {
        let writes = self.writes.iter().flat_map(|(number, byte)| [*number, *byte]);
        [self.pages].into_iter().chain(writes).collect()
    }

    fn decode(bytes: &[u8]) -> Self {
        let writes = bytes[1..].chunks(2).map(|write| (write[0], write[1])).collect();
        Self { pages: bytes[0], writes }
    }
}

impl History {
    fn new() -> Self {
        Self { states: vec![vec![[7; PAGE]; 3]], entries: vec![Bytes::new()] }
    }

    fn last(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn push(&mut self, change: &Change) {
        let mut state = self.states.last().unwrap().clone();
        change.apply(&mut state);
        self.states.push(state);
        self.entries.push(change.encode());
    }
}

/// A node with its database, which is another file than that of other nodes: a page of its own makes them differ.
struct Node {
    number: u64,
    /// The last entry that was kept in a boundary.
    kept: Arc<std::sync::Mutex<Option<u64>>>,
}

struct Source {
    index: u64,
    state: Vec<[u8; PAGE]>,
    changed: Changed,
    kept: Arc<std::sync::Mutex<Option<u64>>>,
}

impl Node {
    fn new(number: u64) -> Self {
        Self { number, kept: Arc::default() }
    }

    /// The file of this node: two nodes disagree about a byte that means nothing.
    fn file(&self, state: &[[u8; PAGE]]) -> Vec<[u8; PAGE]> {
        let mut file = state.to_vec();
        file[0][PAGE - 1] = u8::try_from(self.number).unwrap();
        file
    }

    fn boundary(&self, history: &History, index: u64) -> Box<Source> {
        let state = self.file(&history.states[index as usize]);
        let before = self.kept.lock().unwrap().filter(|kept| *kept <= index);
        let changed = match before {
            None => Changed::All,
            Some(before) => {
                let before = self.file(&history.states[before as usize]);
                let differs = |at: &usize| before.get(*at) != state.get(*at);
                Changed::Pages((0..state.len()).filter(differs).map(|at| at as u32 + 1).collect())
            }
        };
        Box::new(Source { index, state, changed, kept: Arc::clone(&self.kept) })
    }
}

impl PageSource for Source {
    fn index(&self) -> u64 {
        self.index
    }

    fn time(&self) -> i64 {
        self.index as i64 * HOUR
    }

    fn page_size(&self) -> u32 {
        PAGE as u32
    }

    fn pages(&self) -> u32 {
        self.state.len() as u32
    }

    fn changed(&self) -> Changed {
        self.changed.clone()
    }

    fn read(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        page.copy_from_slice(&self.state[number as usize - 1]);
        Ok(())
    }

    fn kept(self: Box<Self>) {
        *self.kept.lock().unwrap() = Some(self.index);
    }
}

/// Restores a state, as a node would: the pages at the boundary, then the entries.
async fn restore(
    env: &Env,
    objects: &Arc<dyn Objects>,
    target: Target,
) -> Result<(u64, Vec<[u8; PAGE]>), ArchiveError> {
    let plan = Plan::make(env, objects, CLUSTER, target).await?;
    let dir = tempfile::tempdir().unwrap();
    let file = env.disk().open(&dir.path().join("restored"), OpenMode::CreateNew).unwrap();
    plan.write_pages(env, objects, Arc::clone(&file), None).await?;
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let mut state: Vec<[u8; PAGE]> = bytes.chunks(PAGE).map(|page| page.try_into().unwrap()).collect();
    let mut index = plan.boundary();
    for object in &plan.segments {
        let segment = plan.read_segment(env, &**objects, object).await?;
        for (number, entry) in (segment.first..).zip(&segment.entries) {
            if number == index + 1 && !matches!(target, Target::Entry(end) if number > end) {
                Change::decode(entry).apply(&mut state);
                index = number;
            }
        }
    }
    Ok((index, state))
}

/// The state without the byte in which nodes may differ.
fn logical(state: &[[u8; PAGE]]) -> Vec<[u8; PAGE]> {
    let mut state = state.to_vec();
    state[0][PAGE - 1] = 0;
    state
}

#[derive(Clone, Debug)]
enum Step {
    /// An entry is applied everywhere.
    Change(Change),
    /// An archiver puts all entries that it has not put yet.
    Entries(usize),
    /// An archiver puts a boundary.
    Pages(usize),
    /// An archiver tidies up, and gives up old states or keeps everything.
    Tidy(usize, bool),
    /// A node takes over.
    Take(usize),
    /// The archiver's node starts again.
    Restart(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (1_u8..12, prop::collection::vec((any::<u8>(), any::<u8>()), 0..6));
    let change = change.prop_map(|(pages, writes)| Step::Change(Change { pages, writes }));
    let step = prop_oneof![
        8 => change,
        5 => (0_usize..2).prop_map(Step::Entries),
        5 => (0_usize..2).prop_map(Step::Pages),
        2 => (0_usize..2, any::<bool>()).prop_map(|(who, is_all)| Step::Tidy(who, is_all)),
        1 => (0_usize..2).prop_map(Step::Take),
        1 => (0_usize..2).prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..200)
}

/// One of two nodes, which may think that it is the archiver.
struct Contender {
    node: Node,
    archiver: Option<Archiver>,
    /// The next entry that it will put.
    next: u64,
}

struct World {
    env: Env,
    memory: Memory,
    history: History,
    contenders: Vec<Contender>,
    token: u64,
    /// The last entry that some archiver has said is archived.
    archived: u64,
    /// The states before this entry need not be there.
    given_up: u64,
    /// The boundaries that were stored.
    boundaries: BTreeMap<u64, ()>,
}

impl World {
    fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.memory.clone())
    }

    async fn step(&mut self, step: &Step) -> Result<(), ArchiveError> {
        match step {
            Step::Change(change) => self.history.push(change),
            Step::Take(who) => self.take(*who).await?,
            Step::Restart(who) => {
                self.contenders[*who].node.kept = Arc::default();
                if self.contenders[*who].archiver.take().is_some() {
                    self.take(*who).await?;
                }
            }
            Step::Entries(who) => self.put_entries(*who).await?,
            Step::Pages(who) => {
                let last = self.history.last();
                let Contender { node, archiver: Some(archiver), .. } = &mut self.contenders[*who] else {
                    return Ok(());
                };
                if let Put::File(_) | Put::Generation(_) =
                    archiver.put_pages(node.boundary(&self.history, last)).await?
                {
                    self.boundaries.insert(last, ());
                }
            }
            Step::Tidy(who, is_all) => {
                if let Some(archiver) = &mut self.contenders[*who].archiver {
                    let last = self.history.last();
                    let keep = (!is_all).then(|| Duration::from_secs(3600 * KEEP));
                    if keep.is_some() {
                        self.given_up = self.given_up.max(last.saturating_sub(KEEP));
                    }
                    archiver.tidy(last as i64 * HOUR, keep).await?;
                }
            }
        }
        Ok(())
    }

    async fn take(&mut self, who: usize) -> Result<(), ArchiveError> {
        self.token += 1;
        let identity =
            Identity { cluster: CLUSTER, epoch: EPOCH, node: self.contenders[who].node.number, token: self.token };
        let archiver = Archiver::take(&self.env, self.objects(), identity).await?;
        self.contenders[who].next = archiver.archived(1).await?.map_or(1, |last| last + 1);
        self.contenders[who].archiver = Some(archiver);
        Ok(())
    }

    async fn put_entries(&mut self, who: usize) -> Result<(), ArchiveError> {
        let last = self.history.last();
        let Contender { archiver: Some(archiver), next, .. } = &mut self.contenders[who] else { return Ok(()) };
        if *next <= last {
            let entries = self.history.entries[*next as usize..].to_vec();
            let put = archiver.put_entries(*next, entries).await?;
            *next = put + 1;
            self.archived = self.archived.max(put);
        }
        Ok(())
    }

    /// Every state that was promised is there.
    async fn check(&self) {
        let objects = self.objects();
        let Some(first) = self.boundaries.keys().next().copied() else { return };
        let latest = restore(&self.env, &objects, Target::Latest).await.unwrap();
        let reached = self.archived.max(*self.boundaries.keys().next_back().unwrap());
        assert!(latest.0 >= reached, "{} < {reached}", latest.0);
        assert_eq!(logical(&latest.1), logical(&self.history.states[latest.0 as usize]));
        for index in first.max(self.given_up)..=self.archived {
            let (found, state) = restore(&self.env, &objects, Target::Entry(index)).await.unwrap();
            assert_eq!(found, index);
            assert_eq!(logical(&state), logical(&self.history.states[index as usize]), "entry {index}");
        }
    }
}

fn run(steps: &[Step], troubles: Option<(u64, u64)>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let memory = Memory::new();
        let contenders = [1, 2].map(|number| Contender { node: Node::new(number), archiver: None, next: 1 });
        let mut world = World {
            env: Env::real(),
            memory: memory.clone(),
            history: History::new(),
            contenders: contenders.into(),
            token: 0,
            archived: 0,
            given_up: 0,
            boundaries: BTreeMap::new(),
        };
        world.take(0).await.unwrap();
        if let Some((seed, percent)) = troubles {
            let rng = Rng::from_seed(seed);
            memory.set_troubles(move |_, _| Trouble {
                is_refused: rng.below(100) < percent,
                is_unanswered: rng.below(100) < percent,
                ..Trouble::default()
            });
        }
        for step in steps {
            match world.step(step).await {
                Ok(()) => {}
                Err(ArchiveError::Fenced { .. }) => {
                    let (Step::Entries(who)
                    | Step::Pages(who)
                    | Step::Tidy(who, _)
                    | Step::Take(who)
                    | Step::Restart(who)) = step
                    else {
                        unreachable!("{step:?}")
                    };
                    world.contenders[*who].archiver = None;
                }
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
        memory.end_troubles();
        world.check().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_archived_state_is_restored(steps in steps()) {
        run(&steps, None);
    }

    #[test]
    fn failed_and_unanswered_requests_damage_nothing(steps in steps(), troubles in (any::<u64>(), 1_u64..20)) {
        run(&steps, Some(troubles));
    }
}

/// The manifest is stored, but the archiver does not hear of it, and tidies up again.
#[test]
fn a_manifest_that_was_not_answered_lists_no_file_twice() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (env, memory, node) = (Env::real(), Memory::new(), Node::new(1));
        let mut history = History::new();
        let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node: 1, token: 1 };
        let mut archiver = Archiver::take(&env, Arc::new(memory.clone()), identity).await.unwrap();
        for index in 0..12 {
            archiver.put_pages(node.boundary(&history, index)).await.unwrap();
            history.push(&Change { pages: 4, writes: vec![(2, 2)] });
            let is_unanswered =
                move |verb, _: &str| Trouble { is_unanswered: verb == Verb::Replace, ..Trouble::default() };
            memory.set_troubles(is_unanswered);
            assert!(index == 0 || archiver.tidy(0, None).await.is_err());
            memory.end_troubles();
            // The first time finds out that the manifest is another one.
            let _ = archiver.tidy(0, None).await;
            archiver.tidy(0, None).await.unwrap();
        }
        let manifest = archiver.manifest();
        let files = &manifest.generations[0].files;
        let names: std::collections::BTreeSet<_> = files.iter().map(|file| (file.level, file.min, file.max)).collect();
        assert_eq!(names.len(), files.len(), "{files:?}");
    });
}

/// Entries that no node has any more leave a gap before a boundary, and those after it can be applied to nothing else.
#[test]
fn the_boundary_after_a_gap_stays_when_files_are_merged() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (env, memory, node) = (Env::real(), Memory::new(), Node::new(1));
        let mut history = History::new();
        let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node: 1, token: 1 };
        let mut archiver = Archiver::take(&env, Arc::new(memory.clone()), identity).await.unwrap();
        archiver.set_tidying(Tidying { linger: Duration::ZERO, sums_files: 1, ..Tidying::default() });
        archiver.put_pages(node.boundary(&history, 0)).await.unwrap();
        for index in 1..=30_u64 {
            history.push(&Change { pages: 4, writes: vec![(2, 2)] });
            if index != 4 {
                archiver.put_entries(index, vec![history.entries[index as usize].clone()]).await.unwrap();
            }
            if index % 2 == 1 {
                archiver.put_pages(node.boundary(&history, index)).await.unwrap();
            }
        }
        // The second time removes the files of which the first has stored the checksums.
        archiver.tidy(0, None).await.unwrap();
        archiver.put_pages(node.boundary(&history, 30)).await.unwrap();
        archiver.tidy(0, None).await.unwrap();
        let objects: Arc<dyn Objects> = Arc::new(memory);
        for index in (0..=30).filter(|index| *index != 4) {
            let (found, state) = restore(&env, &objects, Target::Entry(index)).await.unwrap();
            assert_eq!(found, index);
            assert_eq!(logical(&state), logical(&history.states[index as usize]), "entry {index}");
        }
    });
}

#[test]
fn a_quiet_archive_costs_no_requests() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (env, memory, node) = (Env::real(), Memory::new(), Node::new(1));
        let mut history = History::new();
        let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node: 1, token: 1 };
        let mut archiver = Archiver::take(&env, Arc::new(memory.clone()), identity).await.unwrap();
        archiver.put_pages(node.boundary(&history, 0)).await.unwrap();
        history.push(&Change { pages: 4, writes: vec![(2, 2)] });
        archiver.put_entries(1, history.entries[1..].to_vec()).await.unwrap();
        archiver.put_pages(node.boundary(&history, 1)).await.unwrap();
        archiver.tidy(0, Some(Duration::from_secs(3600))).await.unwrap();
        let before = memory.requests();
        assert_eq!(archiver.put_pages(node.boundary(&history, 1)).await.unwrap(), Put::Unchanged);
        archiver.settle().await.unwrap();
        archiver.tidy(1000, Some(Duration::from_secs(3600))).await.unwrap();
        assert_eq!(memory.requests(), before);
        // One boundary with one changed page is one request.
        history.push(&Change { pages: 4, writes: vec![(2, 2)] });
        archiver.put_pages(node.boundary(&history, 2)).await.unwrap();
        assert_eq!(memory.requests()[&Verb::Create], before[&Verb::Create] + 1);
        assert_eq!(memory.requests().values().sum::<u64>(), before.values().sum::<u64>() + 1);
    });
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node: 1, token: 1 };
        let taken = Archiver::take(&Env::real(), Arc::new(Careless(Memory::new())), identity).await;
        assert!(matches!(taken.map(drop), Err(ArchiveError::Unfit)));
    });
}
