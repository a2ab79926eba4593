//! What is compared, and with whom.

/// One section of the page: commands that differ in their contenders only.
pub struct Case {
    /// What is measured, for people; names differ.
    pub name: &'static str,
    /// What the reader should know of it, if anything.
    pub note: &'static str,
    /// The arguments, but for those of contenders.
    pub arguments: &'static [&'static str],
    /// What is added to them in earnest, and by `--quick`, which leaves the case out if that is `None`.
    pub earnest: &'static [&'static str],
    pub quick: Option<&'static [&'static str]>,
    /// Measured once: it takes long, or is a median by itself.
    pub once: bool,
    /// The figure of a run that is compared, its unit, and whether more of it is better.
    pub figure: &'static str,
    pub unit: &'static str,
    pub more_is_better: bool,
    /// Other figures of the run, each with a heading and its unit.
    pub more: &'static [(&'static str, &'static str, &'static str)],
    /// The first is what the others are compared with.
    pub contenders: &'static [Contender],
}

/// Who is compared.
pub struct Contender {
    /// For people; labels of a case differ.
    pub label: &'static str,
    /// As `--system` takes it.
    pub system: &'static str,
    /// When a write is acknowledged.
    pub acknowledged: &'static str,
    /// Other arguments.
    pub arguments: &'static [&'static str],
}

pub const QUORATE: Contender = Contender {
    label: "Quorate, fsync",
    system: "quorate",
    acknowledged: "synced by a majority",
    arguments: &["--durability", "fsync"],
};
pub const QUORATE_OS: Contender = Contender {
    label: "Quorate, os",
    system: "quorate",
    acknowledged: "in a majority's caches",
    arguments: &["--durability", "os"],
};
pub const QUORATE_FOLLOWER: Contender = Contender {
    label: "Quorate, fsync, clients on a follower",
    arguments: &["--durability", "fsync", "--at", "follower"],
    ..QUORATE
};
pub const HIQLITE: Contender = Contender {
    label: "hiqlite, default",
    system: "hiqlite",
    acknowledged: "in a majority's caches",
    arguments: &["--durability", "os"],
};
pub const HIQLITE_IMMEDIATE: Contender = Contender {
    label: "hiqlite, immediate",
    acknowledged: "synced by a majority",
    arguments: &["--durability", "fsync"],
    ..HIQLITE
};
pub const RQLITE: Contender = Contender {
    label: "rqlite, HTTP",
    system: "rqlite",
    acknowledged: "synced by a majority",
    arguments: &["--durability", "fsync"],
};
pub const PLAIN: Contender = Contender {
    label: "plain SQLite",
    system: "rusqlite",
    acknowledged: "synced, one node",
    arguments: &["--durability", "fsync", "--nodes", "1"],
};

/// How long is measured where a case says nothing else.
const EARNEST: &[&str] = &["--seconds", "1.5", "--warm-up", "0.5"];
const QUICK: Option<&[&str]> = Some(&["--seconds", "0.5", "--warm-up", "0.2"]);

/// Single-row INSERTs a second; the others are like it.
const INSERT: Case = Case {
    name: "INSERT",
    note: "Single rows, each acknowledged by itself; three nodes in one process.",
    arguments: &["sql-insert", "--concurrency", "1,16,64,256"],
    earnest: EARNEST,
    quick: QUICK,
    once: false,
    figure: "inserts_per_s",
    unit: "rows/s",
    more_is_better: true,
    more: &[],
    contenders: &[QUORATE, QUORATE_OS, HIQLITE, HIQLITE_IMMEDIATE, RQLITE],
};

pub const CASES: &[Case] = &[
    INSERT,
    Case {
        name: "INSERT, three processes",
        note: "The same over loopback: each node has a process of its own, the clients are in one of them.",
        arguments: &["sql-insert", "--process", "many", "--concurrency", "64"],
        contenders: &[QUORATE, QUORATE_FOLLOWER],
        ..INSERT
    },
    Case {
        name: "INSERT in batches",
        note: "Transactions of 100 rows; three nodes in one process.",
        arguments: &["sql-batch", "--batch", "100", "--concurrency", "4"],
        contenders: &[QUORATE, HIQLITE, RQLITE],
        ..INSERT
    },
    Case {
        name: "point SELECT",
        note: "By primary key, of what the node itself has applied; 100,000 rows.",
        arguments: &["sql-select", "--concurrency", "1,2"],
        figure: "selects_per_s",
        unit: "/s",
        contenders: &[QUORATE, HIQLITE, PLAIN, RQLITE],
        ..INSERT
    },
    Case {
        name: "linearizable SELECT",
        note: "The same, but each answer holds all that was acknowledged before the question.",
        arguments: &["sql-select", "--level", "linearizable", "--concurrency", "64"],
        figure: "selects_per_s",
        unit: "/s",
        contenders: &[QUORATE, HIQLITE, RQLITE],
        ..INSERT
    },
    Case {
        name: "restart",
        note: "SIGKILL of a follower right after a load, with a database of 1 GiB; from then until it has answered a \
               linearizable read of the last row.",
        arguments: &["restart", "--kills", "1", "--seconds", "1"],
        earnest: &["--db-size", "1024"],
        quick: Some(&["--db-size", "32"]),
        figure: "ready_ms",
        ..FAULT
    },
    Case {
        name: "new follower",
        note: "A follower loses its directory (1 GiB) while clients write at full speed; from its start until it has \
               answered a linearizable read of the last row written before. `image --system hiqlite` does the same.",
        arguments: &["image"],
        earnest: &["--db-size", "1024", "--seconds", "2", "--warm-up", "0.5"],
        quick: Some(&["--db-size", "32", "--seconds", "0.5"]),
        figure: "database_mb_per_s",
        unit: "MB/s",
        more_is_better: true,
        more: &[
            ("ready_ms", "ready after", "ms"),
            ("inserts_per_s_alone", "INSERTs before", "/s"),
            ("inserts_per_s", "INSERTs meanwhile", "/s"),
            ("max_us", "slowest meanwhile", "us"),
        ],
        contenders: &[QUORATE],
        ..FAULT
    },
    Case {
        name: "failover",
        note: "SIGKILL of the leader under load; from then to the acknowledgement of the first write that began after \
               it. `failover --kills 100` is the full measure.",
        arguments: &["failover"],
        earnest: &[],
        quick: None,
        figure: "gap_ms",
        more: &[("gap_p99_ms", "p99", "ms"), ("gap_max_ms", "max", "ms"), ("kills", "kills", "")],
        contenders: &[
            Contender { arguments: &["--durability", "fsync", "--kills", "5"], ..QUORATE },
            Contender { arguments: &["--durability", "os", "--kills", "1"], ..HIQLITE },
        ],
        ..FAULT
    },
    Case {
        name: "hand-over",
        note: "The leader stops in good order under load, as in a rolling restart; the longest that a client of \
               another node tried until a write was acknowledged.",
        arguments: &["hand-over"],
        earnest: &[],
        quick: None,
        figure: "wait_max_ms",
        more: &[("stop_ms", "the stop took", "ms"), ("stops", "stops", "")],
        contenders: &[
            Contender { arguments: &["--durability", "fsync", "--kills", "5"], ..QUORATE },
            Contender { arguments: &["--durability", "os", "--kills", "1"], ..HIQLITE },
        ],
        ..FAULT
    },
    Case {
        name: "disk, 1,500,000 rows",
        note: "Single-row INSERTs of ('fiona'); what is in a node's directory ten seconds after the last.",
        arguments: &["disk"],
        earnest: &["--rows", "1500000"],
        quick: None,
        contenders: &[QUORATE],
        ..DISK
    },
    DISK,
    Case {
        name: "sustained",
        note: "Upserts on 100,000 keys; `sustained` alone goes on for a minute, or for as long as it is told.",
        arguments: &["sustained"],
        earnest: &["--seconds", "20"],
        quick: None,
        figure: "upserts_per_s",
        unit: "/s",
        more_is_better: true,
        more: &[
            ("last_to_first", "last 10 s to first", "x"),
            ("max_us", "slowest", "us"),
            ("disk_max_mib", "files at most, all nodes", "MiB"),
        ],
        contenders: &[QUORATE],
        ..FAULT
    },
];

/// Nodes that come and go: a process each, measured once.
const FAULT: Case = Case { once: true, unit: "ms", more_is_better: false, contenders: &[QUORATE, HIQLITE], ..INSERT };

/// Small rows on disk.
const DISK: Case = Case {
    name: "disk, 50,000 rows",
    note: "The same with as many rows as the slower inserts in a few seconds.",
    arguments: &["disk"],
    earnest: &["--rows", "50000"],
    quick: Some(&["--rows", "10000"]),
    figure: "node_mb",
    unit: "MB",
    ..FAULT
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_tell_cases_and_contenders_apart() {
        let names: BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        for case in CASES {
            let labels: BTreeSet<_> = case.contenders.iter().map(|contender| contender.label).collect();
            assert_eq!(labels.len(), case.contenders.len(), "{}", case.name);
            assert_eq!(case.contenders.first().map(|first| first.system), Some("quorate"), "{}", case.name);
        }
    }
}
