//! What INFO, CONFIG GET and WAIT tell of a node: facts that are at most about a second old, since the node may have to
//! access its disk to tell them.

use std::fmt::Write as _;
use std::sync::{Arc, RwLock};

use quorate::{Observer, Status};
use quorate_env::{Env, unpoisoned};
use quorate_resp::limits::{ARGUMENT_BYTES_MAX, CACHES_END};
use quorate_resp::{NOTIFY, Notifications, REDIS_VERSION};

use super::CONNECTIONS_MAX;
use super::metrics::Counts;
use crate::ask::Asks;

/// The facts.
#[derive(Debug)]
pub(super) struct Facts {
    observer: Observer,
    status: RwLock<Option<Arc<Status>>>,
}

/// A section of INFO: its name, and its lines.
type Section = (&'static str, Vec<(&'static str, String)>);

impl Facts {
    pub(super) fn new(observer: Observer) -> Self {
        Self { observer, status: RwLock::default() }
    }

    /// Renews them.
    pub(super) async fn renew(&self, asks: &Asks) {
        if let Ok(Some((status, _))) = asks.ask(self.observer.clone(), Observer::status).await {
            *unpoisoned(self.status.write()) = Some(Arc::new(status));
        }
    }

    fn status(&self) -> Option<Arc<Status>> {
        unpoisoned(self.status.read()).clone()
    }

    /// Returns how many members beside this one have each write that was acknowledged.
    pub(super) fn replicas(&self) -> u64 {
        let voters = self.status().map_or(1, |status| status.members.iter().filter(|member| member.voter).count());
        // A majority has it, one of which answers.
        voters as u64 / 2
    }

    /// Returns the text of INFO.
    pub(super) fn info(&self, sections: &[String], counts: &Counts, env: &Env) -> String {
        const ALL: [&str; 3] = ["all", "default", "everything"];
        let is_asked = |name: &str| {
            sections.is_empty() || sections.iter().any(|asked| asked == name || ALL.contains(&asked.as_str()))
        };
        let mut text = String::new();
        for (name, lines) in self.sections(counts, env) {
            if !is_asked(&name.to_lowercase()) {
                continue;
            }
            // Writing to a string does not fail.
            let _ = write!(text, "{}# {name}\r\n", if text.is_empty() { "" } else { "\r\n" });
            for (fact, value) in lines {
                let _ = write!(text, "{fact}:{value}\r\n");
            }
        }
        text
    }

    fn sections(&self, counts: &Counts, env: &Env) -> [Section; 7] {
        let status = self.status();
        let of_node = |fact: fn(&Status) -> String| status.as_deref().map(fact).unwrap_or_default();
        let server = vec![
            ("redis_version", REDIS_VERSION.to_owned()),
            ("redis_mode", "standalone".to_owned()),
            ("quorate_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("os", std::env::consts::OS.to_owned()),
            ("process_id", std::process::id().to_string()),
            ("run_id", of_node(|status| status.node.to_string())),
            ("server_time_usec", (env.unix_nanos() / 1_000).to_string()),
        ];
        let clients = vec![
            ("connected_clients", counts.open().to_string()),
            ("maxclients", CONNECTIONS_MAX.to_string()),
            ("blocked_clients", counts.waiting().to_string()),
        ];
        let used = env.usage().and_then(|usage| usage.resident_bytes).unwrap_or_default();
        let memory = vec![("used_memory", used.to_string()), ("maxmemory", "0".to_owned())];
        let persistence = vec![("loading", "0".to_owned()), ("aof_enabled", "1".to_owned())];
        let stats = vec![
            ("total_connections_received", counts.connections.get().to_string()),
            ("total_commands_processed", counts.commands.get().to_string()),
            ("total_error_replies", counts.errors.get().to_string()),
        ];
        let replication = vec![
            ("role", "master".to_owned()),
            ("connected_slaves", "0".to_owned()),
            ("master_replid", of_node(|status| format!("{:032x}", status.cluster.0))),
            ("master_repl_offset", of_node(|status| status.applied.index.to_string())),
        ];
        let quorate = vec![
            ("node", of_node(|status| status.name.clone())),
            ("leader", of_node(|status| status.leader().map(|leader| leader.name.clone()).unwrap_or_default())),
            ("position", of_node(|status| status.applied.to_string())),
            ("format_level", of_node(|status| status.format_level.to_string())),
        ];
        [
            ("Server", server),
            ("Clients", clients),
            ("Memory", memory),
            ("Persistence", persistence),
            ("Stats", stats),
            ("Replication", replication),
            ("Quorate", quorate),
        ]
    }
}

/// Returns the parameters that CONFIG GET shows.
pub(super) fn parameters(notifications: Notifications) -> Vec<(&'static str, String)> {
    let fixed = [
        ("appendfsync", "always"),
        ("appendonly", "yes"),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("save", ""),
        ("timeout", "0"),
    ];
    let others = [
        ("databases", CACHES_END.to_string()),
        ("maxclients", CONNECTIONS_MAX.to_string()),
        (NOTIFY, notifications.to_string()),
        ("proto-max-bulk-len", ARGUMENT_BYTES_MAX.to_string()),
    ];
    fixed.map(|(name, value)| (name, value.to_owned())).into_iter().chain(others).collect()
}
