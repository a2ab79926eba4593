//! What the operating system lets a process have, of what a node needs.

use rustix::process::{Resource, getrlimit};

use super::finding::Finding;

/// Files that a node has open at most beside its connections: readers with the files of a database each, the log, the
/// runtime.
const OWN_FILES: u64 = 192;

/// Connections that a node accepts at most, of nodes and clients.
const CONNECTIONS: u64 = 1_344;

/// Files that a node with a handful of clients needs.
const LEAST_FILES: u64 = 256;

/// Threads of a node: its own few, and those for blocking calls.
const THREADS: u64 = 544;

/// Limits of a process; none where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    files: Option<u64>,
    threads: Option<u64>,
}

impl Facts {
    /// Those of this process, which one that this user starts has too.
    pub fn gather() -> Self {
        Self { files: getrlimit(Resource::Nofile).current, threads: getrlimit(Resource::Nproc).current }
    }
}

/// Whether they suffice.
pub fn check(facts: &Facts) -> Vec<Finding> {
    vec![check_files(facts.files), check_threads(facts.threads)]
}

fn check_files(files: Option<u64>) -> Finding {
    const CHECK: &str = "open files";
    let Some(files) = files else { return Finding::ok(CHECK, "without limit", "") };
    let what = format!("{files} for each process started here");
    let clients = files.saturating_sub(OWN_FILES);
    if files < LEAST_FILES {
        let means = "A node could run out of them, and then neither accept connections nor open its files: \
                     `ulimit -n 4096`, or LimitNOFILE in its unit.";
        Finding::problem(CHECK, what, means)
    } else if clients < CONNECTIONS {
        let means = format!("Enough for about {clients} connections; a node accepts {CONNECTIONS}: `ulimit -n 4096`.");
        Finding::note(CHECK, what, means)
    } else {
        Finding::ok(CHECK, what, format!("Enough for the {CONNECTIONS} connections that a node accepts."))
    }
}

fn check_threads(threads: Option<u64>) -> Finding {
    const CHECK: &str = "threads";
    let Some(threads) = threads else { return Finding::ok(CHECK, "without limit", "") };
    let what = format!("{threads} for all processes of this user");
    if threads < THREADS {
        Finding::note(CHECK, what, format!("A node under load has up to {THREADS}: `ulimit -u`, or TasksMax."))
    } else {
        Finding::ok(CHECK, what, "")
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level::{self, Note, Ok, Problem};
    use super::*;

    #[test]
    fn limits_are_held_against_what_a_node_needs() {
        let levels = |files, threads| -> Vec<Level> {
            check(&Facts { files, threads }).iter().map(|finding| finding.level).collect()
        };
        assert_eq!(levels(None, None), [Ok, Ok]);
        assert_eq!(levels(Some(4096), Some(10_000)), [Ok, Ok]);
        assert_eq!(levels(Some(1024), Some(100)), [Note, Note]);
        assert_eq!(levels(Some(64), None), [Problem, Ok]);
        assert_eq!(check(&Facts::gather()).len(), 2);
    }
}
