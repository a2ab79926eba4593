//! Checks scheduled backups: whether they can be made, and whether they are.

use std::path::Path;
use std::time::Duration;

use quorate_backup::backups::Stored;
use quorate_backup::schedule::{Plan, Schedule, WINDOW_MAX};
use quorate_env::{Env, timeout};
use quorate_server::BackupConfig;

use super::directory::{check_closed, mode};
use super::finding::Finding;
use crate::utc::seconds_text as text;

const CHECK: &str = "backups";

/// How long all requests to the store may take.
const STORE_MAX: Duration = Duration::from_secs(30);

/// The nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// What is known of the store.
#[derive(Debug)]
struct Facts {
    /// The store.
    location: String,
    schedule: Schedule,
    /// Whether this command takes the credentials from its own environment.
    by_environment: bool,
    /// The backups there, or why the store can't be used.
    found: Result<Vec<Stored>, String>,
    /// The time, in seconds since 1970-01-01 UTC.
    now: u64,
}

/// Tries the scheduled backups of a configuration, if it has some.
pub async fn look(config: &BackupConfig, data_dir: &Path) -> Vec<Finding> {
    let files = [&config.credentials_file, &config.passphrase_file].into_iter().flatten();
    let means = "Whoever has it can read or delete the backups. Run `chmod 600` on the file, and replace what is in it \
                 if others may have read it.";
    let mut findings: Vec<_> = files.filter_map(|path| check_closed(CHECK, path, mode(path), means)).collect();
    match config.plan(data_dir) {
        Ok(None) => {}
        Ok(Some(plan)) => findings.push(check(&Facts::gather(&plan).await)),
        Err(error) => {
            findings.push(Finding::problem(CHECK, error.to_string(), "No node can start with this [backup]."));
        }
    }
    findings
}

impl Facts {
    async fn gather(plan: &Plan) -> Self {
        let found = match timeout(STORE_MAX, plan.probe()).await {
            Ok(found) => found.map_err(|error| error.to_string()),
            Err(_) => Err(format!("{} has not answered within {} s", plan.location, STORE_MAX.as_secs())),
        };
        Self {
            location: plan.location.to_string(),
            schedule: plan.schedule.clone(),
            by_environment: plan.credentials.is_none() && plan.location.as_dir().is_none(),
            found,
            now: Env::real().unix_nanos() / NANOS,
        }
    }
}

/// Checks whether backups can be made, and whether the last ones were.
fn check(facts: &Facts) -> Finding {
    let Facts { location, schedule, now, .. } = facts;
    let found = match &facts.found {
        Ok(found) => found,
        Err(error) => {
            let hint = " This command has taken the credentials from its own environment, which may differ from that \
                        of the node.";
            let hint = if facts.by_environment { hint } else { "" };
            return Finding::problem(CHECK, error, format!("No backup is made until this is repaired.{hint}"));
        }
    };
    let Some(newest) = found.iter().map(|found| found.name.time()).max() else {
        let next = schedule.next_after(*now).map_or_else(|| "never".to_owned(), text);
        let what = format!("{location} can be used, and holds no backup yet");
        return Finding::note(CHECK, what, format!("The next scheduled time: {next}."));
    };
    let is_over = |time: &u64| time.saturating_add(WINDOW_MAX.as_secs()) < *now;
    let missed = schedule.next_after(newest).filter(is_over);
    let Some(missed) = missed else {
        let what = format!("{location} can be used; the newest of {} backups is of {}", found.len(), text(newest));
        return Finding::ok(CHECK, what, "");
    };
    let what = format!("the newest backup in {location} is of {}, but one was due at {}", text(newest), text(missed));
    let means = "The nodes did not run then, or failed: their logs tell it, with event=backup_failed.";
    // One is left out if the node that made it was killed.
    let is_lasting = schedule.next_after(missed).is_some_and(|next| is_over(&next));
    if is_lasting { Finding::problem(CHECK, what, means) } else { Finding::note(CHECK, what, means) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::finding::Level::{self, Note, Ok as Fine, Problem};
    use super::*;

    const NEWEST: &str = "20261127T020000Z-00000000000000000000000000c0ffee-1.1.57.db.zst";

    fn finding(names: Result<&[&str], &str>, days_later: f64) -> Finding {
        let stored = |name: &&str| Stored { name: name.parse().unwrap(), bytes: 1 };
        let newest = stored(&NEWEST).name.time();
        check(&Facts {
            location: "s3://a".to_owned(),
            schedule: "0 2 * * *".parse().unwrap(),
            by_environment: true,
            found: names.map(|names| names.iter().map(stored).collect()).map_err(str::to_owned),
            now: newest + (days_later * 86_400.0) as u64,
        })
    }

    #[test]
    fn backups_that_fail_or_are_not_made_are_reported() {
        let level = |days: f64| -> Level { finding(Ok(&[NEWEST]), days).level };
        assert_eq!([0.5, 1.02, 1.1, 2.02, 2.1].map(level), [Fine, Fine, Note, Note, Problem]);
        let none = finding(Ok(&[]), 0.5);
        assert_eq!((none.level, none.means.as_str()), (Note, "The next scheduled time: 2026-11-28T02:00:00Z."));
        let refused = finding(Err("no bucket"), 0.5);
        assert_eq!((refused.level, refused.what.as_str()), (Problem, "no bucket"));
        assert!(refused.means.contains("environment"), "{}", refused.means);
    }
}
