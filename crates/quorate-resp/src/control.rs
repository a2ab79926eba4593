//! What the connections of a node can do to one another: close a connection (CLIENT KILL), or end the wait of its
//! client (CLIENT UNBLOCK).
//!
//! Invariant: a connection has the same control as long as it lives, and is not found after that.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};

use quorate_env::lock;
use tokio::sync::Notify;

/// The controls of all connections of a node, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controls(Arc<Mutex<BTreeMap<u64, Weak<Control>>>>);

/// How a wait ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unblocked {
    /// As if its time had come.
    Late,
    /// By an error.
    Failed,
}

/// The control of a connection.
#[derive(Debug)]
pub(crate) struct Control {
    number: u64,
    all: Controls,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_killed: bool,
    waits: bool,
    unblocked: Option<Unblocked>,
}

/// A client waits until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Control);

impl Controls {
    /// Returns the control of a connection. It is there from now on.
    pub(crate) fn of(&self, number: u64) -> Arc<Control> {
        let mut controls = lock(&self.0);
        if let Some(control) = controls.get(&number).and_then(Weak::upgrade) {
            return control;
        }
        let (state, changed) = Default::default();
        let control = Arc::new(Control { number, all: self.clone(), state, changed });
        controls.insert(number, Arc::downgrade(&control));
        control
    }

    fn find(&self, number: u64) -> Option<Arc<Control>> {
        lock(&self.0).get(&number).and_then(Weak::upgrade)
    }

    /// Has a connection be closed. Returns whether there is one.
    pub(crate) fn kill(&self, number: u64) -> bool {
        let Some(control) = self.find(number) else { return false };
        lock(&control.state).is_killed = true;
        control.changed.notify_waiters();
        true
    }

    /// Ends the wait of a client. Returns whether it waits.
    pub(crate) fn unblock(&self, number: u64, how: Unblocked) -> bool {
        let Some(control) = self.find(number) else { return false };
        let mut state = lock(&control.state);
        let ends = state.waits && state.unblocked.is_none();
        if ends {
            state.unblocked = Some(how);
            control.changed.notify_waiters();
        }
        ends
    }
}

impl Control {
    /// Waits until the connection is to be closed.
    pub(crate) async fn killed(&self) {
        self.until(|state| state.is_killed.then_some(())).await;
    }

    /// Waits until somebody ends the wait of the client.
    pub(crate) async fn unblocked(&self) -> Unblocked {
        self.until(|state| state.unblocked).await
    }

    async fn until<T>(&self, found: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            // A change after the state was looked at is noticed.
            changed.as_mut().enable();
            if let Some(found) = found(&lock(&self.state)) {
                return found;
            }
            changed.await;
        }
    }

    /// Notes that the client waits.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        lock(&self.state).waits = true;
        Waiting(self)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        (state.waits, state.unblocked) = (false, None);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        lock(&self.all.0).remove(&self.number);
    }
}
