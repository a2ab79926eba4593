//! All metrics: their names, one-line descriptions and sources. `docs/metrics.md` describes each in more detail.

use quorate::metrics::Metrics;
use quorate::metrics::WriteMetrics;

use super::{Family, Kind};

/// The label of the only group.
const MAIN: &[(&str, &str)] = &[("group", "main")];
const NONE: &[(&str, &str)] = &[];

const NANOS_PER_SECOND: f64 = 1e9;

/// Returns all metrics of a node.
pub(crate) fn families(metrics: &Metrics) -> Vec<Family> {
    let parts = [process, cluster, members, leaders, writes, stages, reads, log, database, connections];
    parts.into_iter().flat_map(|part| part(metrics)).collect()
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

fn cluster(metrics: &Metrics) -> Vec<Family> {
    let status = &metrics.status;
    let is_voter = status.members.iter().any(|member| member.id == status.node && member.voter);
    let (reachable, voters) = status.reachable_voters(metrics.silence_max);
    let lag = gauge(
        "quorate_apply_lag_entries",
        "Committed entries not in the database yet; absent while there is no leader.",
    );
    let lag = status.lag().into_iter().fold(lag, |family, entries| family.with(MAIN, entries));
    vec![
        gauge("quorate_ready", "1 if the node can serve, as /ready reports.").with(MAIN, metrics.not_ready.is_empty()),
        gauge("quorate_is_leader", "1 if the node leads.").with(MAIN, status.leader == Some(status.node)),
        gauge("quorate_is_voter", "1 if the node votes; 0 for a learner.").with(MAIN, is_voter),
        gauge("quorate_term", "The current term.").with(MAIN, status.term),
        gauge("quorate_last_index", "The last index of the node's log.").with(MAIN, status.last_index),
        gauge("quorate_committed_index", "The last index known to be committed.").with(MAIN, status.committed_index),
        gauge("quorate_applied_index", "The last index in the database.").with(MAIN, status.applied.index),
        gauge("quorate_durable_index", "The last index that is durable in the database without the log.")
            .with(MAIN, status.durable_index),
        lag,
        gauge("quorate_members", "Members, including learners.").with(MAIN, status.members.len()),
        gauge("quorate_voters", "Members that vote.").with(MAIN, voters),
        gauge("quorate_voters_reachable", "Voters heard from lately, including the node.").with(MAIN, reachable),
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

fn leaders(metrics: &Metrics) -> Vec<Family> {
    let main = &metrics.main;
    let failures = [("send", main.images_not_sent.get()), ("receive", main.images_not_received.get())];
    vec![
        counter("quorate_elections_total", "Terms that began.").with(MAIN, main.terms.get()),
        counter("quorate_leader_changes_total", "Changes of the leader to another node.")
            .with(MAIN, main.leader_changes.get()),
        counter("quorate_images_sent_total", "Images delivered to other nodes.").with(MAIN, main.images_sent.get()),
        counter("quorate_images_received_total", "Images received and installed.")
            .with(MAIN, main.images_received.get()),
        counter("quorate_image_failures_total", "Image transfers that failed.").with_each(MAIN, "direction", failures),
    ]
}

fn writes(metrics: &Metrics) -> Vec<Family> {
    let (writes, node) = (&metrics.main.writes, &metrics.node);
    let refusals = [
        ("invalid", node.invalid.get()),
        ("not_leader", writes.not_leader.get()),
        ("overloaded", writes.overloaded.get()),
        ("stopped", writes.stopped.get()),
    ];
    let failures = writes.failed.iter().map(|(kind, count)| (kind.name(), count));
    vec![
        counter("quorate_writes_total", "Writes that took effect, proposed by this node as the leader.")
            .with(MAIN, writes.done.get()),
        counter("quorate_writes_forwarded_total", "Writes that this node forwarded to the leader.")
            .with(MAIN, writes.forwarded.get()),
        counter("quorate_write_failures_total", "Writes whose outcome is a failure.").with_each(MAIN, "kind", failures),
        counter("quorate_write_refusals_total", "Writes that were not proposed.").with_each(MAIN, "reason", refusals),
        counter("quorate_write_unknowns_total", "Writes that were proposed and whose outcome is unknown.")
            .with(MAIN, writes.unknown.get()),
        counter("quorate_retries_total", "Retries by this node's own handles.").with(MAIN, node.retries.get()),
    ]
}

fn stages(metrics: &Metrics) -> Vec<Family> {
    let WriteMetrics { total, queue, append, fsync, replicate, apply, .. } = &metrics.main.writes;
    let stages = [
        ("validate", &metrics.node.validate),
        ("queue", queue),
        ("append", append),
        ("fsync", fsync),
        ("replicate", replicate),
        ("apply", apply),
    ];
    vec![
        histogram("quorate_write_seconds", "Time from a write's arrival at the leader to its outcome.")
            .with(MAIN, total),
        histogram("quorate_write_stage_seconds", "Time that writes spend in each stage.")
            .with_each(MAIN, "stage", stages),
        histogram("quorate_write_hold_seconds", "Time for which a transaction held writes back.")
            .with(MAIN, &metrics.main.holds),
    ]
}

fn reads(metrics: &Metrics) -> Vec<Family> {
    let (reads, main) = (&metrics.node.reads, &metrics.main);
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
        .with(MAIN, &main.read_rounds),
        counter("quorate_read_round_failures_total", "Rounds to a majority that confirmed no read position.")
            .with(MAIN, main.read_rounds_failed.get()),
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
        gauge(
            "quorate_blocked_entry",
            "Index of the entry that the node can't apply or awaits a verdict on; 0 if there is none.",
        )
        .with(MAIN, metrics.status.blocked.as_ref().map_or(0, |blocked| blocked.index)),
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
        gauge("quorate_database_bytes", "Bytes of the database file.").with(NONE, sizes.database),
        gauge("quorate_database_wal_bytes", "Bytes of the database's -wal file.").with(NONE, sizes.wal_file),
        histogram("quorate_checkpoint_seconds", "Time of checkpoints, including their syncs.")
            .with(NONE, &store.checkpoints),
        histogram("quorate_checkpoint_turn_seconds", "Time for which checkpoints kept the writer from applying.")
            .with(NONE, &store.checkpoint_turns),
    ]
}

fn connections(metrics: &Metrics) -> Vec<Family> {
    let connections = [("node", metrics.connections.peers), ("client", metrics.connections.clients)];
    vec![
        gauge("quorate_connections", "Connections to the node's port.").with_each(NONE, "role", connections),
        counter("quorate_connections_refused_total", "Connections that the node refused.")
            .with(NONE, metrics.connections.refused),
    ]
}
