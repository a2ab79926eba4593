//! A restore that ends in the middle goes on where it was, and its result has the same bytes; what it can't use it
//! replaces.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "tests")]

mod common;
mod model;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::noise;
use model::{CLUSTER, EPOCH, block_on};
use quorate_archive::objects::{Memory, Trouble, Verb};
use quorate_archive::restore::{Plan, Target};
use quorate_archive::{Archiver, Changed, Identity, Objects, PageSource};
use quorate_env::Env;
use quorate_env::disk::OpenMode;
use tempfile::TempDir;

const PAGE: usize = 4_096;
/// So many that a restore takes several reads.
const PAGES: u32 = 7_000;
/// Every so many pages change from one boundary to the next.
const STEP: u32 = 3;

/// A boundary: its pages are noise, of which some have changed since the last one.
struct Boundary {
    index: u64,
    changed: Changed,
}

impl PageSource for Boundary {
    fn index(&self) -> u64 {
        self.index
    }

    fn time(&self) -> i64 {
        self.index.cast_signed()
    }

    fn page_size(&self) -> u32 {
        PAGE as u32
    }

    fn pages(&self) -> u32 {
        PAGES
    }

    fn changed(&self) -> Changed {
        self.changed.clone()
    }

    fn read(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        let version = if number.is_multiple_of(STEP) { self.index } else { 1 };
        page.copy_from_slice(&noise(PAGE, u64::from(number) << 8 | version));
        Ok(())
    }

    fn kept(self: Box<Self>) {}
}

/// An archive with some boundaries, and a place to restore to.
struct World {
    env: Env,
    memory: Memory,
    archiver: Archiver,
    dir: TempDir,
    /// How many reads of LTX files were answered.
    reads: Arc<AtomicU64>,
}

impl World {
    async fn with_boundaries(count: u64) -> Self {
        let (env, memory) = (Env::real(), Memory::new());
        let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node: 1, token: 1 };
        let archiver = Archiver::take(&env, Arc::new(memory.clone()), identity).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut world = Self { env, memory, archiver, dir, reads: Arc::default() };
        for index in 1..=count {
            world.put(index).await;
        }
        world
    }

    async fn put(&mut self, index: u64) {
        let some = (1..=PAGES).filter(|number| number.is_multiple_of(STEP)).collect();
        let changed = if index == 1 { Changed::All } else { Changed::Pages(some) };
        self.archiver.put_pages(Box::new(Boundary { index, changed })).await.unwrap();
    }

    fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.memory.clone())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn plan(&self) -> Plan {
        Plan::make(&self.env, &self.objects(), CLUSTER, Target::Latest).await.unwrap()
    }

    /// Restores into `name`. The store answers so many reads.
    async fn restore(&self, name: &str, reads: u64) -> bool {
        let plan = self.plan().await;
        let counted = Arc::clone(&self.reads);
        counted.store(0, Ordering::Relaxed);
        self.memory.set_troubles(move |verb, key| {
            let counts = verb == Verb::Read && key.ends_with(".ltx");
            let is_refused = counts && counted.fetch_add(1, Ordering::Relaxed) >= reads;
            Trouble { is_refused, ..Trouble::default() }
        });
        let restored = plan.write_file(&self.env, &self.objects(), &self.path(name), None).await;
        self.memory.end_troubles();
        restored.is_ok()
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the database, as a restore without an interruption gives it.
    async fn whole(&self) -> Vec<u8> {
        let (path, plan) = (self.path("whole"), self.plan().await);
        let file = self.env.disk().open(&path, OpenMode::Create).unwrap();
        file.set_len(0).unwrap();
        plan.write_pages(&self.env, &self.objects(), file, None).await.unwrap();
        std::fs::read(path).unwrap()
    }

    async fn check(&self, name: &str) {
        assert!(std::fs::read(self.path(name)).unwrap() == self.whole().await, "the bytes are the same");
        assert!(!has_state(&self.path(name)), "nothing is left");
    }
}

fn has_state(path: &Path) -> bool {
    path.with_extension("state").exists()
}

#[test]
fn a_restore_that_is_interrupted_again_and_again_reads_little_twice() {
    block_on(async {
        let world = World::with_boundaries(3).await;
        assert!(world.restore("at once", u64::MAX).await);
        world.check("at once").await;
        let (all, mut read) = (world.reads(), 0);
        let mut tries = 0;
        while !world.restore("again", 4).await {
            assert!(has_state(&world.path("again")) && tries < all, "try {tries}");
            (tries, read) = (tries + 1, read + 4);
        }
        assert!(tries >= 2 && read < 4 * all, "{tries} tries for {all} reads");
        world.check("again").await;
    });
}

#[test]
fn a_restore_goes_on_with_a_longer_plan() {
    block_on(async {
        let mut world = World::with_boundaries(1).await;
        assert!(!world.restore("again", 4).await);
        world.put(2).await;
        assert!(world.restore("again", u64::MAX).await);
        let rest = world.reads();
        world.check("again").await;
        assert!(world.restore("at once", u64::MAX).await);
        assert!(rest < world.reads(), "{rest} reads of {}", world.reads());
    });
}

#[test]
fn what_is_of_no_use_is_replaced() {
    block_on(async {
        let world = World::with_boundaries(2).await;
        let damages: [fn(&Path); 4] = [
            |file| std::fs::write(file, [7; 5 * PAGE]).unwrap(),
            |file| std::fs::write(file, []).unwrap(),
            |file| std::fs::write(file.with_extension("state"), b"QRTREST1").unwrap(),
            |file| {
                let state = file.with_extension("state");
                let mut bytes = std::fs::read(&state).unwrap();
                bytes[20] ^= 1;
                std::fs::write(&state, bytes).unwrap();
            },
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            let name = format!("again {number}");
            assert!(!world.restore(&name, 4).await);
            damage(&world.path(&name));
            assert!(world.restore(&name, u64::MAX).await);
            world.check(&name).await;
        }
    });
}
