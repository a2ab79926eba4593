//! The order in which tasks go on.
//!
//! tokio runs tasks in the order in which they were woken, and that is not always a function of the seed: its `watch`
//! channels wake their waiters in a random order, for one. So every task of a node that could go on is put off first.
//! Once all that can are known, they go on in an order drawn from the seed, and some of them a round later. All are
//! known when none came while everything else had its turn: a task that is aborted is dropped in its turn, and what it
//! drops may wake others.
//!
//! Invariant: which tasks go on, and in which order, follows from which were woken since the last round, not from the
//! order in which they were.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use quorate_env::{Rng, lock, yield_now};
use tokio::task::Id;

/// The scheduler of a world. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rng: Rng,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Tasks that could go on, by their age.
    ready: BTreeMap<Id, Ready>,
    /// How often a task was put off.
    arrivals: u64,
    /// Tasks that go on in this round.
    admitted: BTreeSet<Id>,
    driver: Option<Waker>,
}

#[derive(Debug)]
struct Ready {
    task: Waker,
    pause: Arc<AtomicBool>,
    postpone: f64,
}

impl Scheduler {
    pub(crate) fn new(rng: Rng) -> Self {
        Self(Arc::new(Inner { rng, state: Mutex::default() }))
    }

    /// Whether the running task goes on in this round. If not, it is woken in a later one: not while `pause` is set,
    /// and put off further with the probability `postpone`.
    pub(crate) fn admits(&self, task: &Waker, pause: &Arc<AtomicBool>, postpone: f64) -> bool {
        // Outside of tasks there is the scenario alone.
        let Some(id) = tokio::task::try_id() else { return true };
        let mut state = self.state();
        if state.admitted.remove(&id) {
            return true;
        }
        state.ready.insert(id, Ready { task: task.clone(), pause: Arc::clone(pause), postpone });
        state.arrivals += 1;
        state.wake_driver();
        false
    }

    /// Looks again at tasks whose pause is over.
    pub(crate) fn look_again(&self) {
        self.state().wake_driver();
    }

    /// Drives the rounds of one run.
    pub(crate) async fn drive(self) {
        loop {
            self.all_came().await;
            if !self.round() {
                self.call().await;
            }
        }
    }

    /// Waits until no further task comes to be put off. What yields goes on when all others have had their turn; twice,
    /// because two that yield come in the order in which they did.
    async fn all_came(&self) {
        let mut before = None;
        loop {
            let arrivals = self.state().arrivals;
            if before.replace(arrivals) == Some(arrivals) {
                return;
            }
            yield_now().await;
            yield_now().await;
        }
    }

    /// Waits for a task that comes, or for one whose pause is over.
    async fn call(&self) {
        let mut is_called = false;
        let wait = |cx: &mut Context<'_>| {
            if std::mem::replace(&mut is_called, true) {
                return Poll::Ready(());
            }
            self.state().driver = Some(cx.waker().clone());
            Poll::Pending
        };
        std::future::poll_fn(wait).await;
    }

    /// Lets tasks go on. Whether some are put off for the next round although nothing holds them.
    fn round(&self) -> bool {
        let mut state = self.state();
        // What was admitted before and did not come was dropped.
        state.admitted.clear();
        let mut chosen = Vec::new();
        let mut is_any_late = false;
        for (id, ready) in std::mem::take(&mut state.ready) {
            let is_paused = ready.pause.load(Ordering::Relaxed);
            let is_late = !is_paused && self.0.rng.chance(ready.postpone);
            is_any_late |= is_late;
            if is_paused || is_late {
                state.ready.insert(id, ready);
            } else {
                state.admitted.insert(id);
                chosen.push(ready.task);
            }
        }
        drop(state);
        self.shuffle(&mut chosen);
        chosen.into_iter().for_each(Waker::wake);
        is_any_late
    }

    fn shuffle(&self, tasks: &mut [Waker]) {
        for count in (2..=tasks.len()).rev() {
            let bound = u64::try_from(count).unwrap_or(u64::MAX);
            tasks.swap(count - 1, usize::try_from(self.0.rng.below(bound)).unwrap_or(0));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl State {
    fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}
