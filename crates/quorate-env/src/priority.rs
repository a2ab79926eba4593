//! Which threads go before others, where the process may choose.
//!
//! What the core, the log's writer and the leader's SQL writer do is short, and others wait for it; behind a thread in
//! a long computation each of their steps would wait for a slice of time. Long queries go behind everything else: who
//! waits for a write waits for all nodes that are slow. Usually only a privileged process may give a thread a higher
//! priority, or its own back; without that right all is as it was.
//!
//! Invariant: a thread has the priority that it was started with or that its worker asks for, not that of the thread
//! that started it. One that went behind others has its own again when its work is done ([`go_back`]).

use std::cell::Cell;
use std::sync::OnceLock;

use rustix::process::{getpriority_process, setpriority_process};

use crate::host::start_thread;
use crate::worker::Worker;

/// How much nicer than the process threads are that others wait for.
const URGENT_NICE: i32 = -10;

/// How much nicer than the process threads are that nobody but their own caller waits for.
const BEHIND_NICE: i32 = 10;

thread_local! {
    static IS_BEHIND: Cell<bool> = const { Cell::new(false) };
}

/// Lets all other threads go before the calling one, until [`go_back`]: where there are more than processors, it gets
/// about a tenth of its share. Nothing changes where the process could not take that back.
pub fn go_behind() {
    if may_go_back() && !IS_BEHIND.replace(true) {
        Priority::Behind.take();
    }
}

/// The calling thread has its usual priority again.
pub fn go_back() {
    if IS_BEHIND.replace(false) {
        Priority::Usual.take();
    }
}

/// Whether a thread of this process may take its priority back: found out by one that ends then.
fn may_go_back() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let (tell, told) = std::sync::mpsc::channel();
        let find_out = move || {
            let before = getpriority_process(None);
            Priority::Behind.take();
            Priority::Usual.take();
            let _ = tell.send(before.is_ok() && getpriority_process(None) == before);
        };
        let started = start_thread("priority", Priority::Usual, find_out);
        started.is_ok() && told.recv().unwrap_or(false)
    })
}

/// How a thread stands to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// As the process was started with.
    Usual,
    /// Others wait for all that it does.
    Urgent,
    /// It takes long, and only its own caller waits.
    Behind,
}

impl Priority {
    /// What a worker asks for at present.
    pub(crate) fn of(worker: &dyn Worker) -> Self {
        if worker.is_urgent() { Self::Urgent } else { Self::Usual }
    }

    /// Gives it to the calling thread. Must be called first on a thread that has the priority of the process.
    pub(crate) fn take(self) {
        static USUAL: OnceLock<i32> = OnceLock::new();
        // Elsewhere a priority is the whole process's.
        if !cfg!(target_os = "linux") {
            return;
        }
        let usual = *USUAL.get_or_init(|| getpriority_process(None).unwrap_or(0));
        let nice = match self {
            Self::Usual => usual,
            Self::Urgent => usual.saturating_add(URGENT_NICE),
            Self::Behind => usual.saturating_add(BEHIND_NICE),
        };
        // A process that may not keeps what it has.
        let _ = setpriority_process(None, nice);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

    use super::*;

    #[test]
    fn a_thread_that_went_behind_others_comes_back() {
        let told = std::thread::spawn(|| {
            let nice = || getpriority_process(None).unwrap();
            Priority::Usual.take();
            let usual = nice();
            go_behind();
            let behind = nice();
            go_back();
            (usual, behind, nice())
        });
        let (usual, behind, after) = told.join().unwrap();
        assert_eq!(after, usual);
        assert_eq!(behind, if may_go_back() { (usual + BEHIND_NICE).min(19) } else { usual });
    }

    #[test]
    fn a_thread_does_not_inherit_the_urgency_of_the_one_that_starts_it() {
        let nice = || getpriority_process(None).unwrap();
        Priority::Usual.take();
        let usual = nice();
        let (urgent, child) = std::thread::spawn(move || {
            Priority::Urgent.take();
            let started = std::thread::spawn(move || {
                Priority::Usual.take();
                nice()
            });
            (nice(), started.join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(child, usual);
        assert!(urgent == usual || urgent == (usual + URGENT_NICE).max(-20), "{urgent}");
    }
}
