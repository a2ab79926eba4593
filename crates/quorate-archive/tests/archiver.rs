//! An archive is a model of a database and its log: whatever happens to the store and to the archivers, every state
//! that it promises is restored exactly.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod model;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::{CLUSTER, Change, EPOCH, HOUR, History, Node, block_on, logical, restore};
use proptest::prelude::*;
use quorate_archive::objects::{Memory, Trouble};
use quorate_archive::restore::Target;
use quorate_archive::{ArchiveError, Archiver, Identity, Objects, Put};
use quorate_env::{Env, Rng};

/// For how many entries a state is kept, where it is asked for.
const KEEP: u64 = 40;

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
            let put = archiver.entries().put(*next, entries).await?;
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
    block_on(async {
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
