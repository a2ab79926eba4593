//! Notifications of the key space: which ones the port publishes, and the changes of keys that they are about.
//!
//! Invariant: the node notes changes of keys only while notifications are on and a client listens.

use std::sync::{Mutex, MutexGuard};

use quorate::keys::{EventClasses, KeyWatch, Watched};
use quorate_env::lock;
use quorate_resp::Notifications;

/// The notifications of a port.
#[derive(Debug)]
pub(super) struct Notices {
    watch: KeyWatch,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    set: Notifications,
    /// Whether a client listens to something.
    is_heard: bool,
}

impl Notices {
    pub(super) fn new(watch: KeyWatch, set: Notifications) -> Self {
        Self { watch, state: Mutex::new(State { set, is_heard: false }) }
    }

    /// Returns which notifications there are.
    pub(super) fn get(&self) -> Notifications {
        self.state().set
    }

    /// Sets which notifications there are, from now on.
    pub(super) fn set(&self, set: Notifications) {
        let mut state = self.state();
        state.set = set;
        self.want(&state);
    }

    /// Notes whether a client listens to something.
    pub(super) fn heard(&self, is_heard: bool) {
        let mut state = self.state();
        state.is_heard = is_heard;
        self.want(&state);
    }

    /// Waits for changes. May be dropped at any time.
    pub(super) async fn next(&self) -> Watched {
        self.watch.next().await
    }

    /// Takes the changes that wait.
    pub(super) fn take(&self) -> Watched {
        self.watch.take()
    }

    fn want(&self, state: &State) {
        self.watch.want(if state.is_heard { state.set.classes() } else { EventClasses::NONE });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
