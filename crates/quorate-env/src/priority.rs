//! Thread priorities, where the process may set them.
//!
//! The steps of the core, the log's writer and the leader's SQL writer are short, and other threads wait for them. At
//! equal priority each step could wait for a time slice of a thread in a long computation. Usually only a privileged
//! process may raise a thread's priority; otherwise it stays as it is. Any process may lower one.
//!
//! Invariant: a thread has the priority given at its start or requested by its worker, not that of the thread that
//! started it.

use std::sync::OnceLock;

use rustix::process::{getpriority_process, setpriority_process};

use crate::worker::Worker;

/// The difference in nice value between an urgent thread and the process.
const URGENT_NICE: i32 = -10;

/// The same of a thread in the background.
const BACKGROUND_NICE: i32 = 10;

/// The priority of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Lower than the process's, for a thread whose work nobody waits for soon.
    Background,
    /// The priority of the process.
    Usual,
    /// Higher than the process's, for a thread whose work others wait for.
    Urgent,
}

impl Priority {
    /// The priority that a worker currently requests.
    pub(crate) fn of(worker: &dyn Worker) -> Self {
        if worker.is_urgent() { Self::Urgent } else { Self::Usual }
    }

    /// Sets the priority of the calling thread. The first call in the process must be on a thread that has the priority
    /// of the process.
    pub(crate) fn take(self) {
        static USUAL: OnceLock<i32> = OnceLock::new();
        // On other systems this call sets the priority of the whole process.
        if !cfg!(target_os = "linux") {
            return;
        }
        let usual = *USUAL.get_or_init(|| getpriority_process(None).unwrap_or(0));
        let nice = match self {
            Self::Background => usual.saturating_add(BACKGROUND_NICE),
            Self::Usual => usual,
            Self::Urgent => usual.saturating_add(URGENT_NICE),
        };
        // Without the permission, the thread keeps its priority.
        let _ = setpriority_process(None, nice);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

    use super::*;

    #[test]
    fn a_thread_does_not_inherit_urgency() {
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
