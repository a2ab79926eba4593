//! All metrics: their names, one-line descriptions and sources. `docs/metrics.md` describes each in more detail.

use quorate::ArchiveStatus;
use quorate::metrics::{LoginMetrics, Metrics};
use quorate_backup::schedule::Seen;

use super::parts::Parts;
use super::{Family, Kind};
use crate::resp::Counts;

/// The label of what there is only of the group `main`: its requests, and the database that it replicates.
const MAIN: &[(&str, &str)] = &[("group", "main")];
const NONE: &[(&str, &str)] = &[];

const NANOS_PER_SECOND: f64 = 1e9;

/// Returns all metrics of a node, of its scheduled backups, and of its port for the clients of Redis, if it has these.
pub(crate) fn families(metrics: &Metrics, scheduled: Option<&Seen>, redis: Option<&Counts>) -> Vec<Family> {
    let of_node = [process, members, database, stores, log, connections, archive];
    let of_groups = [cluster, leaders, writes, stages, reads];
    let parts = Parts::of(metrics);
    let groups = of_groups.into_iter().flat_map(|group| group(metrics, &parts));
    let backups = scheduled.map(backups).unwrap_or_default();
    let redis = redis.map(of_redis).unwrap_or_default();
    of_node.into_iter().flat_map(|part| part(metrics)).chain(groups).chain(backups).chain(redis).collect()
}

fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, Kind::Counter)
}

fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, Kind::Gauge)
}

fn histogram(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, Kind::Histogram)
}

fn process(metrics: &Metrics) -> Vec<Family> {
    let build = [("version", metrics.version), ("sqlite_version", metrics.sqlite_version)];
    let mut found = vec![
        gauge("quorate_build_info", "Always 1; the labels are the running versions.").with(&build, true),
        gauge("quorate_uptime_seconds", "Time since the node started.").with(NONE, metrics.uptime.as_secs_f64()),
    ];
    if let Some(usage) = metrics.usage {
        let help = "CPU time that the process has used.";
        found.push(counter("quorate_process_cpu_seconds_total", help).with(NONE, usage.cpu.as_secs_f64()));
        let help = "Resident memory of the process.";
        let resident = gauge("quorate_process_resident_memory_bytes", help);
        found.extend(usage.resident_bytes.map(|bytes| resident.with(NONE, bytes)));
    }
    if let Some(space) = metrics.space {
        let available = "Available space on the file system of the data directory.";
        found.push(gauge("quorate_disk_available_bytes", available).with(NONE, space.available));
        let total = "Size of the file system of the data directory.";
        found.push(gauge("quorate_disk_total_bytes", total).with(NONE, space.total));
    }
    found
}

fn cluster(metrics: &Metrics, parts: &Parts<'_>) -> Vec<Family> {
    let ready = metrics.not_ready.is_empty();
    let lag = gauge(
        "quorate_apply_lag_entries",
        "Committed entries that are not applied yet; absent while there is no leader.",
    );
    let blocked = gauge(
        "quorate_blocked_entry",
        "Index of the entry that the node can't apply or awaits a verdict on; 0 if there is none.",
    );
    vec![
        gauge("quorate_ready", "1 if the node can serve, as /ready reports.").with(MAIN, ready),
        gauge("quorate_is_leader", "1 if the node leads.").of_each(parts, |part| part.is_leader),
        gauge("quorate_is_voter", "1 if the node votes; 0 for a learner.").of_each(parts, |part| part.is_voter),
        gauge("quorate_term", "The current term.").of_each(parts, |part| part.term),
        gauge("quorate_last_index", "The last index of the node's log.").of_each(parts, |part| part.last),
        gauge("quorate_committed_index", "The last index known to be committed.").of_each(parts, |part| part.committed),
        gauge("quorate_applied_index", "The last index in the database.").of_each(parts, |part| part.applied),
        gauge("quorate_durable_index", "The last index that is durable in the database without the log.")
            .with(MAIN, metrics.status.durable_index),
        lag.of_each_known(parts, |part| part.lag),
        blocked.of_each(parts, |part| part.blocked),
        gauge("quorate_members", "Members, including learners.").with(MAIN, metrics.status.members.len()),
        gauge("quorate_voters", "Members that vote.").of_each(parts, |part| part.voters),
        gauge("quorate_voters_reachable", "Voters heard from lately, including the node.")
            .of_each(parts, |part| part.reachable),
    ]
}

/// Metrics of the other members.
fn members(metrics: &Metrics) -> Vec<Family> {
    let status = &metrics.status;
    let others = || status.members.iter().filter(|member| member.id != status.node);
    let lags = others().filter_map(|member| Some((&member.name, member.lag(status.committed_index)?)));
    let silences = others().map(|member| (&member.name, member.silent_for.as_secs_f64()));
    let name = |id| status.members.iter().find(|member| member.id == id).map(|member| &member.name);
    let offsets = metrics.clock_offsets.iter().filter_map(|(id, nanos)| {
        #[expect(clippy::cast_precision_loss, reason = "an offset beyond 2^53 ns is months off anyway")]
        let seconds = *nanos as f64 / NANOS_PER_SECOND;
        Some((name(*id)?, seconds))
    });
    vec![
        gauge(
            "quorate_member_lag_entries",
            "Committed entries that another member had not applied when last heard from.",
        )
        .with_each(MAIN, "member", lags),
        gauge("quorate_member_silence_seconds", "Time since another member was last heard from.")
            .with_each(MAIN, "member", silences),
        gauge("quorate_clock_offset_seconds", "Another member's wall clock minus this node's.")
            .with_each(NONE, "member", offsets),
    ]
}

fn leaders(_: &Metrics, parts: &Parts<'_>) -> Vec<Family> {
    vec![
        counter("quorate_elections_total", "Terms that began.").of_each(parts, |part| part.counted.terms.get()),
        counter("quorate_leader_changes_total", "Changes of the leader to another node.")
            .of_each(parts, |part| part.counted.leader_changes.get()),
        counter("quorate_images_sent_total", "Images delivered to other nodes.")
            .of_each(parts, |part| part.counted.images_sent.get()),
        counter("quorate_images_received_total", "Images received and installed.")
            .of_each(parts, |part| part.counted.images_received.get()),
        counter("quorate_image_failures_total", "Image transfers that failed.").of_each_by(
            parts,
            "direction",
            |part| [("send", part.counted.images_not_sent.get()), ("receive", part.counted.images_not_received.get())],
        ),
    ]
}

fn writes(metrics: &Metrics, parts: &Parts<'_>) -> Vec<Family> {
    let node = &metrics.node;
    vec![
        counter("quorate_writes_total", "Writes that took effect, proposed by this node as the leader.")
            .of_each(parts, |part| part.counted.writes.done.get()),
        counter("quorate_writes_forwarded_total", "Writes that this node forwarded to the leader.")
            .of_each(parts, |part| part.counted.writes.forwarded.get()),
        counter("quorate_write_failures_total", "Writes whose outcome is a failure.").of_each_by(
            parts,
            "kind",
            |part| part.counted.writes.failed.iter().map(|(kind, count)| (kind.name(), count)),
        ),
        counter("quorate_write_refusals_total", "Writes that were not proposed.")
            .with_each(MAIN, "reason", [("invalid", node.invalid.get())])
            .of_each_by(parts, "reason", |part| {
                let writes = &part.counted.writes;
                [
                    ("not_leader", writes.not_leader.get()),
                    ("overloaded", writes.overloaded.get()),
                    ("stopped", writes.stopped.get()),
                ]
            }),
        counter("quorate_write_unknowns_total", "Writes that were proposed and whose outcome is unknown.")
            .of_each(parts, |part| part.counted.writes.unknown.get()),
        counter("quorate_retries_total", "Retries by this node's own handles.").with(MAIN, node.retries.get()),
    ]
}

fn stages(metrics: &Metrics, parts: &Parts<'_>) -> Vec<Family> {
    vec![
        histogram("quorate_write_seconds", "Time from a write's arrival at the leader to its outcome.")
            .of_each(parts, |part| &part.counted.writes.total),
        histogram("quorate_write_stage_seconds", "Time that writes spend in each stage.")
            .with_each(MAIN, "stage", [("validate", &metrics.node.validate)])
            .of_each_by(parts, "stage", |part| {
                let writes = &part.counted.writes;
                [
                    ("queue", &writes.queue),
                    ("append", &writes.append),
                    ("fsync", &writes.fsync),
                    ("replicate", &writes.replicate),
                    ("apply", &writes.apply),
                ]
            }),
        histogram("quorate_write_hold_seconds", "Time for which a transaction held writes back.")
            .of_each(parts, |part| &part.counted.holds),
        histogram("quorate_write_pause_seconds", "Pauses of the leader while the stores of a majority are behind.")
            .of_each(parts, |part| &part.counted.pauses),
    ]
}

fn reads(metrics: &Metrics, parts: &Parts<'_>) -> Vec<Family> {
    let reads = &metrics.node.reads;
    let levels = [
        ("local", reads.local.get()),
        ("at_least", reads.at_least.get()),
        ("linearizable", reads.linearizable.get()),
        ("bounded", reads.bounded.get()),
    ];
    let failures = [("overloaded", reads.overloaded.get()), ("other", reads.failed.get())];
    vec![
        counter("quorate_reads_total", "Reads requested from the node.").with_each(MAIN, "level", levels),
        counter("quorate_read_failures_total", "Reads that failed.").with_each(MAIN, "kind", failures),
        histogram(
            "quorate_read_round_seconds",
            "Time of rounds to a majority that confirmed a linearizable read position.",
        )
        .of_each(parts, |part| &part.counted.read_rounds),
        counter("quorate_read_round_failures_total", "Rounds to a majority that confirmed no read position.")
            .of_each(parts, |part| part.counted.read_rounds_failed.get()),
    ]
}

fn log(metrics: &Metrics) -> Vec<Family> {
    let stats = &metrics.log_stats;
    vec![
        histogram("quorate_log_fsync_seconds", "Time of syncs of the log.").with(NONE, &metrics.log.fsync),
        counter("quorate_log_frames_total", "Frames written to the log.").with(NONE, stats.frames),
        counter("quorate_log_written_bytes_total", "Bytes written to the log.").with(NONE, stats.bytes_written),
        gauge("quorate_log_bytes", "Bytes of the log's files.").with(NONE, metrics.status.log_bytes),
    ]
}

fn database(metrics: &Metrics) -> Vec<Family> {
    let (store, sizes) = (&metrics.store, &metrics.sizes);
    vec![
        histogram("quorate_apply_batch_seconds", "Time to apply and commit a batch of entries.")
            .with(MAIN, &store.batches),
        counter("quorate_applied_entries_total", "Entries applied.").with(MAIN, store.entries.get()),
        gauge("quorate_apply_queue_bytes", "Bytes of entries that wait to be applied.").with(MAIN, sizes.queued),
        gauge("quorate_store_fault", "1 if the database has a fault and applies nothing.")
            .with(MAIN, metrics.fault.is_some()),
        counter("quorate_divergences_total", "Times that this node's data differed from that of a majority.")
            .with(MAIN, metrics.node.divergences.get()),
        counter("quorate_disagreements_total", "Times that nodes held different data, this one or others.")
            .with(MAIN, metrics.node.disagreements.get()),
        counter("quorate_slow_statements_total", "Statements that took longer than `sql.slow_statement`.").with_each(
            MAIN,
            "kind",
            [("query", store.slow.queries()), ("write", store.slow.writes())],
        ),
        counter("quorate_read_faults_total", "Queries that failed because of the database's files.").with_each(
            MAIN,
            "kind",
            [("damaged", store.read_faults.damaged.get()), ("io", store.read_faults.io.get())],
        ),
        gauge("quorate_sessions", "Sessions that the database holds.").with(MAIN, store.sessions.get()),
        gauge("quorate_request_keys", "Keys of requests that the database holds.").with(MAIN, store.requests.get()),
        gauge("quorate_request_keys_bytes", "Bytes that these take, of the 512 MiB that they may.")
            .with(MAIN, store.request_bytes.get()),
        gauge("quorate_database_bytes", "Bytes of the database file.").with(NONE, sizes.database),
        gauge("quorate_database_wal_bytes", "Bytes of the database's -wal file.").with(NONE, sizes.wal_file),
        histogram("quorate_checkpoint_seconds", "Time of checkpoints, including their syncs.")
            .with(NONE, &store.checkpoints),
        histogram("quorate_checkpoint_turn_seconds", "Time for which checkpoints kept the writer from applying.")
            .with(NONE, &store.checkpoint_turns),
    ]
}

/// What the stores of keys, locks and events hold.
fn stores(metrics: &Metrics) -> Vec<Family> {
    let held = &metrics.store.held;
    let flushed = "Keys of flushed spaces that are yet to be swept.";
    vec![
        gauge("quorate_keys", "Keys that the database holds.").with(MAIN, held.keys.get()),
        gauge("quorate_keys_flushed", flushed).with(MAIN, held.flushed_keys.get()),
        gauge("quorate_events", "Events that are kept.").with(MAIN, held.events.get()),
        gauge("quorate_events_bytes", "Bytes of the events that are kept.").with(MAIN, held.event_bytes.get()),
        gauge("quorate_events_first_index", "Index of the oldest event that is kept; 0 if no event is kept.")
            .with(MAIN, held.first_event.get()),
        gauge("quorate_events_last_index", "Index of the last event; 0 if there was none.")
            .with(MAIN, held.last_event.get()),
        gauge("quorate_locks_held", "Leases of locks.").with(MAIN, held.leases.get()),
        gauge("quorate_locks_waiting", "Those who wait for a lock.").with(MAIN, held.lock_waits.get()),
        gauge("quorate_waiters", "Callers that wait for a change on this node.").with(MAIN, held.waiters.get()),
        gauge("quorate_key_watches", "Watches of the changes of keys that this node applies.")
            .with(MAIN, held.watches.get()),
    ]
}

fn connections(metrics: &Metrics) -> Vec<Family> {
    let connections = [("node", metrics.connections.peers), ("client", metrics.connections.clients)];
    let LoginMetrics { succeeded, failed, delayed } = &metrics.node.logins;
    let logins = [("succeeded", succeeded), ("failed", failed), ("refused", delayed)];
    vec![
        gauge("quorate_connections", "Connections to the node's port.").with_each(NONE, "role", connections),
        counter("quorate_connections_refused_total", "Connections that the node refused.")
            .with(NONE, metrics.connections.refused),
        counter("quorate_logins_total", "Logins of users, by their result.").with_each(
            NONE,
            "result",
            logins.map(|(result, count)| (result, count.get())),
        ),
    ]
}

fn archive(metrics: &Metrics) -> Vec<Family> {
    let counted = &metrics.archive;
    // All are there on every node, so that alerts can tell that one is missing; 0 where another node archives.
    let own = metrics.status.archive.as_ref();
    let of_own = |value: fn(&ArchiveStatus) -> u64| own.map_or(0, value);
    let lag = gauge("quorate_archive_lag_seconds", "For how long something has waited to be archived.");
    vec![
        gauge("quorate_is_archiver", "1 if the node writes the archive.").with(NONE, own.is_some()),
        gauge("quorate_archive_archived_index", "The last index up to which everything is archived.")
            .with(NONE, of_own(|archive| archive.archived_index)),
        gauge("quorate_archive_boundary_index", "The last index in the last archived boundary.")
            .with(NONE, of_own(|archive| archive.boundary_index)),
        lag.with(NONE, own.map_or(0.0, |archive| archive.lag.as_secs_f64())),
        counter("quorate_archive_failures_total", "Attempts to archive that failed.")
            .with(NONE, of_own(|archive| archive.failures)),
        counter("quorate_archive_requests_total", "Requests to the store of the archive, by what they ask for.")
            .with_each(NONE, "verb", counted.requests.by_verb()),
        counter("quorate_archive_sent_bytes_total", "Bytes that were sent to the store of the archive.")
            .with(NONE, counted.requests.sent_bytes.get()),
        gauge(
            "quorate_archive_rehearsed_timestamp_seconds",
            "Time of the node's last successful rehearsal; 0 for none.",
        )
        .with(NONE, counted.rehearsed.get()),
        counter("quorate_archive_rehearsal_failures_total", "Rehearsals that failed, or found a difference.")
            .with(NONE, counted.rehearsal_failures.get()),
    ]
}

fn of_redis(counts: &Counts) -> Vec<Family> {
    let missed = "Changes of keys without notifications, because too many were waiting.";
    let waiting = "Redis clients that wait for a change of keys.";
    vec![
        gauge("quorate_redis_connections", "Open connections of Redis clients.").with(NONE, counts.open()),
        gauge("quorate_redis_waiting", waiting).with(NONE, counts.waiting()),
        counter("quorate_redis_connections_total", "Connections of Redis clients.")
            .with(NONE, counts.connections.get()),
        counter("quorate_redis_commands_total", "Commands of Redis clients.").with(NONE, counts.commands.get()),
        counter("quorate_redis_errors_total", "Those of them that failed.").with(NONE, counts.errors.get()),
        counter("quorate_redis_changes_missed_total", missed).with(NONE, counts.missed.get()),
    ]
}

fn backups(seen: &Seen) -> Vec<Family> {
    let last =
        gauge("quorate_backup_last_success_timestamp_seconds", "Time of the newest backup that the node knows of.");
    let time = seen.last.map(|last| last.name.time());
    vec![
        time.into_iter().fold(last, |family, time| family.with(NONE, time)),
        counter("quorate_backup_failures_total", "Attempts to make a backup that failed.").with(NONE, seen.failures),
    ]
}
