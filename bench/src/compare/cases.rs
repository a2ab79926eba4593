//! The cases of the comparison, and the systems that are compared.

/// A section of the page: runs whose commands differ only in the contender.
pub struct Case {
    /// The name for readers; each case has a different name.
    pub name: &'static str,
    /// What is measured and how.
    pub note: &'static str,
    /// The arguments, except those of the contender.
    pub arguments: &'static [&'static str],
    /// More arguments for a full run and for `--quick`, which omits the case if they are `None`.
    pub earnest: &'static [&'static str],
    pub quick: Option<&'static [&'static str]>,
    /// Whether the case is measured only once, because it takes long or gives a median itself.
    pub once: bool,
    /// The figure of a run that is compared, its unit, and whether a higher value is better.
    pub figure: &'static str,
    pub unit: &'static str,
    pub more_is_better: bool,
    /// Other figures of the run, each with a column title and its unit.
    pub more: &'static [(&'static str, &'static str, &'static str)],
    /// The compared systems. The others are compared with the first one.
    pub contenders: &'static [Contender],
}

/// A system with a configuration that is compared.
pub struct Contender {
    /// The label for readers; the labels of a case differ.
    pub label: &'static str,
    /// The value of `--system`.
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
    acknowledged: "in a majority's page caches",
    arguments: &["--durability", "os"],
};
pub const QUORATE_FOLLOWER: Contender = Contender {
    label: "Quorate, fsync, clients on a follower",
    arguments: &["--durability", "fsync", "--at", "follower"],
    ..QUORATE
};
pub const QUORATE_ARCHIVED: Contender = Contender {
    label: "Quorate, fsync, archived to a directory",
    arguments: &["--durability", "fsync", "--archive", "dir"],
    ..QUORATE
};
pub const HIQLITE: Contender = Contender {
    label: "hiqlite, default",
    system: "hiqlite",
    acknowledged: "in a majority's page caches",
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

/// The arguments for a full and for a quick run, unless a case has its own.
const EARNEST: &[&str] = &["--seconds", "1.5", "--warm-up", "0.5"];
const QUICK: Option<&[&str]> = Some(&["--seconds", "0.5", "--warm-up", "0.2"]);

/// Single-row INSERTs per second. The other cases are variations of it.
const INSERT: Case = Case {
    name: "INSERT",
    note: "Single-row INSERTs, each acknowledged separately; three nodes in one process.",
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
        note: "The same over the loopback interface: each node has its own process, and the clients run in one of \
               them.",
        arguments: &["sql-insert", "--process", "many", "--concurrency", "64"],
        contenders: &[QUORATE, QUORATE_FOLLOWER],
        ..INSERT
    },
    Case {
        name: "INSERT with an archive",
        note: "The same in one process for 20 s, so that pages are archived at full speed too.",
        arguments: &["sql-insert", "--concurrency", "64"],
        earnest: &["--seconds", "20", "--warm-up", "2"],
        more: &[("p99_us", "p99", "us"), ("max_us", "slowest", "us")],
        contenders: &[QUORATE, QUORATE_ARCHIVED],
        ..INSERT
    },
    Case {
        name: "INSERT in batches",
        note: "Atomic batches of 100 rows; three nodes in one process.",
        arguments: &["sql-batch", "--batch", "100", "--concurrency", "4"],
        contenders: &[QUORATE, HIQLITE, RQLITE],
        ..INSERT
    },
    Case {
        name: "point SELECT",
        note: "Reads by primary key of the state that the node itself has applied; 100,000 rows.",
        arguments: &["sql-select", "--concurrency", "1,2"],
        figure: "selects_per_s",
        unit: "/s",
        contenders: &[QUORATE, HIQLITE, PLAIN, RQLITE],
        ..INSERT
    },
    Case {
        name: "linearizable SELECT",
        note: "The same, but each read shows every write that was acknowledged before the read began.",
        arguments: &["sql-select", "--level", "linearizable", "--concurrency", "64"],
        figure: "selects_per_s",
        unit: "/s",
        contenders: &[QUORATE, HIQLITE, RQLITE],
        ..INSERT
    },
    Case {
        name: "restart",
        note: "SIGKILL of a follower right after a load, with a database of 1 GiB; the time from the kill until the \
               follower has answered a linearizable read of the last row.",
        arguments: &["restart", "--kills", "1", "--seconds", "1"],
        earnest: &["--db-size", "1024"],
        quick: Some(&["--db-size", "32"]),
        figure: "ready_ms",
        ..FAULT
    },
    Case {
        name: "new follower",
        note: "A follower loses its directory (1 GiB) while clients write at full speed; the time from its start \
               until it has answered a linearizable read of the last row written before. `image --system hiqlite` \
               measures the same for hiqlite.",
        arguments: &["image"],
        earnest: &["--db-size", "1024", "--seconds", "2", "--warm-up", "0.5"],
        quick: Some(&["--db-size", "32", "--seconds", "0.5"]),
        figure: "database_mb_per_s",
        unit: "MB/s",
        more_is_better: true,
        more: &[
            ("ready_ms", "ready after", "ms"),
            ("inserts_per_s_alone", "INSERTs before", "/s"),
            ("inserts_per_s", "INSERTs during the transfer", "/s"),
            ("max_us", "slowest during the transfer", "us"),
        ],
        contenders: &[QUORATE],
        ..FAULT
    },
    Case {
        name: "failover",
        note: "SIGKILL of the leader under load; the time from the kill to the acknowledgement of the first write \
               that began after it. `failover --kills 100` is the full measurement.",
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
        note: "The leader is stopped cleanly under load, as in a rolling restart; the longest time that a client of \
               another node needed until a write was acknowledged.",
        arguments: &["hand-over"],
        earnest: &[],
        quick: None,
        figure: "wait_max_ms",
        more: &[("stop_ms", "time of the stop", "ms"), ("stops", "stops", "")],
        contenders: &[
            Contender { arguments: &["--durability", "fsync", "--kills", "5"], ..QUORATE },
            Contender { arguments: &["--durability", "os", "--kills", "1"], ..HIQLITE },
        ],
        ..FAULT
    },
    Case {
        name: "disk, 1,500,000 rows",
        note: "Single-row INSERTs of ('fiona'); the size of a node's directory ten seconds after the last one.",
        arguments: &["disk"],
        earnest: &["--rows", "1500000"],
        quick: None,
        contenders: &[QUORATE],
        ..DISK
    },
    DISK,
    Case {
        name: "sustained",
        note: "Upserts on 100,000 keys. Without `--seconds`, `sustained` runs for a minute.",
        arguments: &["sustained"],
        earnest: &["--seconds", "20"],
        quick: None,
        figure: "upserts_per_s",
        unit: "/s",
        more_is_better: true,
        more: &[
            ("last_to_first", "last 10 s relative to first", "x"),
            ("max_us", "slowest", "us"),
            ("disk_max_mib", "largest size of files, all nodes", "MiB"),
        ],
        contenders: &[QUORATE],
        ..FAULT
    },
];

/// The base of the cases that are measured once.
const FAULT: Case = Case { once: true, unit: "ms", more_is_better: false, contenders: &[QUORATE, HIQLITE], ..INSERT };

/// The size of small rows on disk.
const DISK: Case = Case {
    name: "disk, 50,000 rows",
    note: "The same with as many rows as the slower system inserts in a few seconds.",
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
    fn names_of_cases_and_labels_are_unique() {
        let names: BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        for case in CASES {
            let labels: BTreeSet<_> = case.contenders.iter().map(|contender| contender.label).collect();
            assert_eq!(labels.len(), case.contenders.len(), "{}", case.name);
            assert_eq!(case.contenders.first().map(|first| first.system), Some("quorate"), "{}", case.name);
        }
    }
}
