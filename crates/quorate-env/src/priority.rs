//! Which threads go before others, where the process may choose.
//!
//! What the core, the log's writer and the leader's SQL writer do is short, and others wait for it; behind a thread in
//! a long computation each of their steps would wait for a slice of time. Usually only a privileged process may give a
//! thread a higher priority; without, all is as it was.
//!
//! Invariant: a thread has the priority that it was started with or that its worker asks for, not that of the thread
//! that started it.

use std::sync::OnceLock;

use rustix::process::{getpriority_process, setpriority_process};

use crate::worker::Worker;

/// How much nicer than the process threads are that others wait for.
const URGENT_NICE: i32 = -10;

/// How a thread stands to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// As the process was started with.
    Usual,
    /// Others wait for all that it does.
    Urgent,
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
