//! Schedules the tasks of nodes in an order that the seed determines.
//!
//! tokio runs tasks in the order in which they were woken, and this order is not always a function of the seed: for
//! example, its `watch` channels wake their waiters in a random order. Therefore each ready task is deferred first.
//! Once all ready tasks are known, they run in an order drawn from the seed, some of them one round later. The set is
//! complete when no task was added while every other task had its turn: an aborted task is dropped in its turn, and
//! what it drops may wake others.
//!
//! Invariant: the set of tasks that run and their order depend only on which tasks were woken since the last round, not
//! on the order in which they were woken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use quorate_env::{Rng, lock, yield_now};
use tokio::task::Id;

/// The scheduler of a world. Clones share one scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rng: Rng,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Deferred tasks that are ready to run, by age.
    ready: BTreeMap<Id, Ready>,
    /// How often a task was deferred.
    arrivals: u64,
    /// Tasks that may run in this round.
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

    /// Returns whether the calling task may run in this round. If not, it is woken in a later one: not while `pause` is
    /// set, and deferred by another round with the probability `postpone`.
    pub(crate) fn admits(&self, task: &Waker, pause: &Arc<AtomicBool>, postpone: f64) -> bool {
        // Only the scenario runs outside of tasks.
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

    /// Wakes the driver after the pause of some tasks has ended.
    pub(crate) fn wake(&self) {
        self.state().wake_driver();
    }

    /// Runs the rounds of one run.
    pub(crate) async fn drive(self) {
        loop {
            self.all_deferred().await;
            if !self.round() {
                self.wait_for_tasks().await;
            }
        }
    }

    /// Waits until no more tasks are deferred. A task that yields continues after all others have had their turn. This
    /// yields twice, because two tasks that yield continue in the order in which they yielded.
    async fn all_deferred(&self) {
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

    /// Waits until a task is deferred or the pause of a task ends.
    async fn wait_for_tasks(&self) {
        let mut is_woken = false;
        let wait = |cx: &mut Context<'_>| {
            if std::mem::replace(&mut is_woken, true) {
                return Poll::Ready(());
            }
            self.state().driver = Some(cx.waker().clone());
            Poll::Pending
        };
        std::future::poll_fn(wait).await;
    }

    /// Runs one round. Returns whether some tasks that are not paused were deferred to the next round.
    fn round(&self) -> bool {
        let mut state = self.state();
        // Tasks that were admitted and did not run have been dropped.
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
