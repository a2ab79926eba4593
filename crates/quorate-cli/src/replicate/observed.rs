//! What `quorate replicate` shows of itself: metrics, and whether it is healthy.
//!
//! Invariant: a lag is measured when it is asked for, so it grows whatever the work on a database waits for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate::archive::{Counting, Objects, Requests};
use quorate_backup::store::Store;
use quorate_env::{Env, lock};
use quorate_http::port::Port;
use quorate_replicate::Status;
use quorate_server::http::{Watched, watch};
use quorate_server::metrics::{Family, Kind, Value};
use tokio::sync::watch::Receiver;

use crate::error::{Error, Result};

/// How far a healthy database may be behind, beside its interval.
const HEALTHY_LAG_MAX: Duration = Duration::from_secs(60);

const NONE: &[(&str, &str)] = &[];

/// The databases of this process, and what is asked of their stores. Clones share it.
#[derive(Clone, Default)]
pub struct Observed(Arc<Shared>);

#[derive(Default)]
struct Shared {
    requests: Arc<Requests>,
    databases: Mutex<BTreeMap<PathBuf, Receiver<Status>>>,
}

impl Observed {
    /// Shows it on a port, if there is an address.
    pub async fn show(&self, env: &Env, listen: Option<&str>) -> Result<Option<Port>> {
        let Some(listen) = listen else { return Ok(None) };
        let port = watch(env, listen, Arc::clone(&self.0) as Arc<dyn Watched>).await.map_err(Error::of)?;
        tracing::info!(url = port.url(), "shows its metrics");
        Ok(Some(port))
    }

    /// Returns a store whose requests are counted.
    pub fn counted(&self, store: Store) -> Arc<dyn Objects> {
        Arc::new(Counting::new(Arc::new(store), Arc::clone(&self.0.requests)))
    }

    /// Adds a database.
    pub fn add(&self, database: &Path, status: Receiver<Status>) {
        lock(&self.0.databases).insert(database.to_owned(), status);
    }

    /// Removes a database that is no longer there.
    pub fn remove(&self, database: &Path) {
        lock(&self.0.databases).remove(database);
    }
}

impl Shared {
    /// Returns how far the databases are, by their paths.
    fn seen(&self) -> Vec<(String, Status)> {
        let databases = lock(&self.databases);
        databases.iter().map(|(path, status)| (path.display().to_string(), status.borrow().clone())).collect()
    }
}

impl Watched for Shared {
    fn metrics(&self) -> Vec<Family> {
        let seen = self.seen();
        let of_each = |name, help, kind, value: fn(&Status) -> Value| {
            let samples = seen.iter().map(|(path, status)| (path, value(status)));
            Family::new(name, help, kind).with_each(NONE, "database", samples)
        };
        let counter = |name, help, value| of_each(name, help, Kind::Counter, value);
        let gauge = |name, help, value| of_each(name, help, Kind::Gauge, value);
        vec![
            gauge("quorate_replicate_lag_seconds", "For how long a change has waited to be archived.", |status| {
                status.lag().as_secs_f64().into()
            }),
            gauge("quorate_replicate_lag_bytes", "Bytes of changed pages that are not archived, at most.", |status| {
                status.behind_bytes.into()
            }),
            gauge("quorate_replicate_boundary_index", "The number of the last archived boundary.", |status| {
                status.boundary.into()
            }),
            gauge("quorate_replicate_generation", "The number of the generation that is continued.", |status| {
                u64::from(status.generation).into()
            }),
            counter("quorate_replicate_boundaries_total", "Boundaries that were archived.", |status| {
                status.boundaries.into()
            }),
            counter("quorate_replicate_boundary_bytes_total", "Bytes of the boundaries in the archive.", |status| {
                status.bytes.into()
            }),
            counter("quorate_replicate_failures_total", "Attempts to archive that failed.", |status| {
                status.errors.into()
            }),
            Family::new("quorate_replicate_requests_total", "Requests to stores, by what they ask for.", Kind::Counter)
                .with_each(NONE, "verb", self.requests.by_verb()),
            Family::new("quorate_replicate_sent_bytes_total", "Bytes that were sent to stores.", Kind::Counter)
                .with(NONE, self.requests.sent_bytes.get()),
        ]
    }

    fn problems(&self) -> Vec<String> {
        let problem = |(path, status): (String, Status)| {
            let lag = status.lag();
            let why = status.error.map_or_else(String::new, |error| format!(": {error}"));
            let is_late = lag > status.interval.saturating_add(HEALTHY_LAG_MAX);
            is_late.then(|| format!("{path}: nothing was archived for {} s{why}", lag.as_secs()))
        };
        self.seen().into_iter().filter_map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use quorate_env::Instant;

    use super::*;

    #[test]
    fn a_database_that_is_late_is_a_problem_and_says_why() {
        let observed = Observed::default();
        let status = Status {
            interval: Duration::from_secs(1),
            behind_since: Instant::now().checked_sub(Duration::from_secs(62)),
            error: Some("the store is away".to_owned()),
            ..Status::default()
        };
        let (sender, receiver) = tokio::sync::watch::channel(Status::default());
        observed.add(Path::new("a.db"), receiver);
        assert_eq!(observed.0.problems(), Vec::<String>::new());
        sender.send_replace(status.clone());
        assert_eq!(observed.0.problems(), ["a.db: nothing was archived for 62 s: the store is away"]);
        // Nobody knows what has changed in a database that nobody has looked at.
        sender.send_replace(Status { behind_since: None, looked_at: status.behind_since, ..status.clone() });
        assert_eq!(observed.0.problems().len(), 1);
        // It is not late if it is looked at more seldom.
        sender.send_replace(Status { interval: Duration::from_secs(10), ..status });
        assert_eq!(observed.0.problems(), Vec::<String>::new());
        observed.remove(Path::new("a.db"));
        assert!(observed.0.seen().is_empty());
    }
}
