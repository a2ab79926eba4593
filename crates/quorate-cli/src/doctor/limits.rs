//! Compares the limits that the operating system sets for a process with what a node needs.

use rustix::process::{Resource, getrlimit};

use super::finding::Finding;

/// The maximum number of files that a node opens besides its connections: the files of the database for each reader,
/// the log, the runtime.
const OWN_FILES: u64 = 192;

/// The maximum number of connections that a node accepts: 1,344 from nodes and clients, and those of its ports for HTTP
/// and for the clients of Redis.
const CONNECTIONS: u64 = 1_344 + 1_024 + 4_096;

/// The number of files that a node with a few clients needs.
const LEAST_FILES: u64 = 256;

/// The maximum number of threads of a node: a few of its own, and those for blocking calls.
const THREADS: u64 = 544;

/// The limits of a process; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    files: Option<u64>,
    threads: Option<u64>,
}

impl Facts {
    /// Returns the limits of this process. A node that this user starts from here has the same. It raises that of open
    /// files up to the hard limit, so that one counts.
    pub fn gather() -> Self {
        Self { files: getrlimit(Resource::Nofile).maximum, threads: getrlimit(Resource::Nproc).current }
    }
}

/// Checks whether the limits are high enough.
pub fn check(facts: &Facts) -> Vec<Finding> {
    vec![check_files(facts.files), check_threads(facts.threads)]
}

fn check_files(files: Option<u64>) -> Finding {
    const CHECK: &str = "open files";
    let Some(files) = files else { return Finding::ok(CHECK, "unlimited", "") };
    let what = format!("{files} for each process started here");
    let clients = files.saturating_sub(OWN_FILES);
    if files < LEAST_FILES {
        let means = "A node could run out of them, and then could neither accept connections nor open its files. Raise \
                     the hard limit: as root with `ulimit -Hn 8192`, or by LimitNOFILE in its systemd unit.";
        Finding::problem(CHECK, what, means)
    } else if clients < CONNECTIONS {
        let means = format!(
            "Enough for about {clients} connections; a node accepts {CONNECTIONS}. Raise the hard limit: as root with \
             `ulimit -Hn 8192`, or by LimitNOFILE in its systemd unit."
        );
        Finding::note(CHECK, what, means)
    } else {
        Finding::ok(CHECK, what, format!("Enough for the {CONNECTIONS} connections that a node accepts."))
    }
}

fn check_threads(threads: Option<u64>) -> Finding {
    const CHECK: &str = "threads";
    let Some(threads) = threads else { return Finding::ok(CHECK, "unlimited", "") };
    let what = format!("{threads} for all processes of this user");
    if threads < THREADS {
        let means = format!(
            "A node under load has up to {THREADS} threads. Raise the limit with `ulimit -u`, or TasksMax in its unit."
        );
        Finding::note(CHECK, what, means)
    } else {
        Finding::ok(CHECK, what, "")
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level::{self, Note, Ok, Problem};
    use super::*;

    #[test]
    fn limits_are_compared_with_what_a_node_needs() {
        let levels = |files, threads| -> Vec<Level> {
            check(&Facts { files, threads }).iter().map(|finding| finding.level).collect()
        };
        assert_eq!(levels(None, None), [Ok, Ok]);
        assert_eq!(levels(Some(8192), Some(10_000)), [Ok, Ok]);
        assert_eq!(levels(Some(1024), Some(100)), [Note, Note]);
        assert_eq!(levels(Some(64), None), [Problem, Ok]);
        assert_eq!(check(&Facts::gather()).len(), 2);
    }
}
