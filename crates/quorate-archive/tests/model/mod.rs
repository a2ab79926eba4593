//! A database with its log, nodes that hold it, and an archive that only one of them writes.
#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing, reason = "each test file uses its part of it")]

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_archive::objects::Memory;
use quorate_archive::restore::{Plan, Target};
use quorate_archive::{ArchiveError, Archiver, Changed, Identity, Objects, PageSource, Put};
use quorate_env::Env;
use quorate_env::disk::OpenMode;

pub const PAGE: usize = 512;
pub const CLUSTER: u128 = 0xc0ffee;
pub const EPOCH: u64 = 3;
/// Entries come once an hour, so a day has 24.
pub const HOUR: i64 = 3_600_000;

/// A database: an entry changes some pages, and may cut or extend it. The state after each entry is kept.
#[derive(Default)]
pub struct History {
    /// The states by the number of the entry, and the entries.
    pub states: Vec<Vec<[u8; PAGE]>>,
    pub entries: Vec<Bytes>,
}

/// What an entry does: the number of pages after it, and the pages that it writes with a byte.
#[derive(Clone, Debug)]
pub struct Change {
    pub pages: u8,
    pub writes: Vec<(u8, u8)>,
}

impl Change {
    pub fn apply(&self, state: &mut Vec<[u8; PAGE]>) {
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
    pub fn new() -> Self {
        Self { states: vec![vec![[7; PAGE]; 3]], entries: vec![Bytes::new()] }
    }

    pub fn last(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    pub fn push(&mut self, change: &Change) {
        let mut state = self.states.last().unwrap().clone();
        change.apply(&mut state);
        self.states.push(state);
        self.entries.push(change.encode());
    }
}

/// A node with its database, which is another file than that of other nodes: a page of its own makes them differ.
pub struct Node {
    pub number: u64,
    /// The last entry that was kept in a boundary.
    pub kept: Arc<std::sync::Mutex<Option<u64>>>,
}

pub struct Source {
    index: u64,
    state: Vec<[u8; PAGE]>,
    changed: Changed,
    kept: Arc<std::sync::Mutex<Option<u64>>>,
}

impl Node {
    pub fn new(number: u64) -> Self {
        Self { number, kept: Arc::default() }
    }

    /// The file of this node: two nodes disagree about a byte that means nothing.
    fn file(&self, state: &[[u8; PAGE]]) -> Vec<[u8; PAGE]> {
        let mut file = state.to_vec();
        file[0][PAGE - 1] = u8::try_from(self.number).unwrap();
        file
    }

    pub fn boundary(&self, history: &History, index: u64) -> Box<Source> {
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
pub async fn restore(
    env: &Env,
    objects: &Arc<dyn Objects>,
    target: Target,
) -> Result<(u64, Vec<[u8; PAGE]>), ArchiveError> {
    let mut plan = Plan::make(env, objects, CLUSTER, target).await?;
    plan.outage_max = Duration::from_secs(60);
    let dir = tempfile::tempdir().unwrap();
    let file = env.disk().open(&dir.path().join("restored"), OpenMode::CreateNew).unwrap();
    plan.write_pages(env, objects, Arc::clone(&file), None).await?;
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let mut state: Vec<[u8; PAGE]> = bytes.chunks(PAGE).map(|page| page.try_into().unwrap()).collect();
    let mut index = plan.boundary();
    let mut segments = plan.read_segments(env, objects);
    while let Some((_, segment)) = segments.next().await? {
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
pub fn logical(state: &[[u8; PAGE]]) -> Vec<[u8; PAGE]> {
    let mut state = state.to_vec();
    state[0][PAGE - 1] = 0;
    state
}

/// Runs a test on its own runtime.
pub fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
}

/// A node that nobody disturbs, and its archive.
pub struct Alone {
    pub env: Env,
    pub memory: Memory,
    pub node: Node,
    pub history: History,
    pub archiver: Archiver,
}

impl Alone {
    pub async fn start() -> Self {
        let (env, memory) = (Env::real(), Memory::new());
        let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node: 1, token: 1 };
        let archiver = Archiver::take(&env, Arc::new(memory.clone()), identity).await.unwrap();
        Self { env, memory, node: Node::new(1), history: History::new(), archiver }
    }

    /// Applies an entry that changes a page.
    pub fn change(&mut self) -> u64 {
        self.history.push(&Change { pages: 4, writes: vec![(2, 2)] });
        self.history.last()
    }

    pub async fn put_entry(&mut self, index: u64) {
        let entry = self.history.entries[index as usize].clone();
        self.archiver.entries().put(index, vec![entry]).await.unwrap();
    }

    pub async fn put_boundary(&mut self) -> Put {
        let boundary = self.node.boundary(&self.history, self.history.last());
        self.archiver.put_pages(boundary).await.unwrap()
    }

    /// Checks that the archive has the state after an entry.
    pub async fn check(&self, index: u64) {
        let objects: Arc<dyn Objects> = Arc::new(self.memory.clone());
        let (found, state) = restore(&self.env, &objects, Target::Entry(index)).await.unwrap();
        assert_eq!(found, index);
        assert_eq!(logical(&state), logical(&self.history.states[index as usize]), "entry {index}");
    }
}
