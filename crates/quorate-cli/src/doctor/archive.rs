//! Checks the archive: whether its store does what an archive needs.

use std::time::Duration;

use quorate::archive::{self, Objects};
use quorate_env::{Env, timeout};
use quorate_server::ArchiveConfig;

use super::directory::{check_closed, mode};
use super::finding::Finding;

const CHECK: &str = "archive";

/// How long all requests to the store may take.
const STORE_MAX: Duration = Duration::from_secs(30);

/// Tries the store of the archive of a configuration, if it has one.
pub async fn look(config: &ArchiveConfig) -> Vec<Finding> {
    let means = "Whoever has it can read or delete the archive. Run `chmod 600` on the file, and replace what is in it \
                 if others may have read it.";
    let file = config.credentials_file.iter();
    let mut findings: Vec<_> = file.filter_map(|path| check_closed(CHECK, path, mode(path), means)).collect();
    let place = config.url.as_deref().unwrap_or_default();
    match config.open() {
        Ok(None) => {}
        Ok(Some(archive)) => {
            let probed = timeout(STORE_MAX, probe(&*archive.objects)).await;
            let late = |_| Err(format!("{place} has not answered within {} s", STORE_MAX.as_secs()));
            findings.push(check(place, config.credentials_file.is_none(), probed.unwrap_or_else(late)));
        }
        Err(error) => {
            findings.push(Finding::problem(CHECK, error.to_string(), "No node can start with this [archive]."));
        }
    }
    findings
}

/// Creates an object twice and deletes it; returns how many clusters have an archive in the store.
async fn probe(objects: &dyn Objects) -> Result<usize, String> {
    let text = |error: archive::objects::ObjectsError| error.to_string();
    let clusters = archive::clusters(objects).await.map_err(|error| error.to_string())?.len();
    let key = format!("probe/{:016x}", Env::real().rng().next_u64());
    let first = objects.create(&key, b"probe".as_slice().into(), None).await.map_err(text)?;
    let again = objects.create(&key, b"probe".as_slice().into(), None).await;
    objects.delete(&key).await.map_err(text)?;
    match (first, again.map_err(text)?) {
        (Some(_), None) => Ok(clusters),
        _ => Err("the store creates an object although one of the same name exists; use a store with conditional \
                  writes"
            .to_owned()),
    }
}

fn check(place: &str, by_environment: bool, probed: Result<usize, String>) -> Finding {
    match probed {
        Ok(0) => Finding::note(CHECK, format!("{place} can be used, and holds no archive yet"), ""),
        Ok(count) => Finding::ok(CHECK, format!("{place} can be used, and holds the archives of {count} clusters"), ""),
        Err(error) => {
            let hint = " This command has taken the credentials from its own environment, which may differ from that \
                        of the node.";
            let hint = if by_environment && place.contains("://") { hint } else { "" };
            Finding::problem(CHECK, error, format!("Nothing is archived until this is repaired.{hint}"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use quorate::archive::objects::{Memory, Trouble};

    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_store_is_tried() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let memory = Memory::new();
            assert_eq!(probe(&memory).await, Ok(0));
            assert!(memory.contents().is_empty(), "it leaves nothing behind");
            memory.set_troubles(|_, _| Trouble { is_refused: true, ..Trouble::default() });
            let refused = check("s3://a", true, probe(&memory).await);
            assert_eq!(refused.level, Level::Problem);
            assert!(refused.what.contains("the store has trouble") && refused.means.contains("environment"));
            let dir = tempfile::tempdir().unwrap();
            let url = Some(dir.path().display().to_string());
            let found = look(&ArchiveConfig { url, ..ArchiveConfig::default() }).await;
            assert_eq!(found.iter().map(|finding| finding.level).collect::<Vec<_>>(), [Level::Note]);
            assert!(look(&ArchiveConfig::default()).await.is_empty());
        });
    }
}
