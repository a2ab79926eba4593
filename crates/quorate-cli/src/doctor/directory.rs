//! Checks who owns a data directory, and who may read what should be secret.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::getuid;

use super::finding::Finding;

/// The id of root, which may do everything.
const ROOT: u32 = 0;

/// The permission bits of other users.
const OTHERS: u32 = 0o007;

/// The permission bits of the group.
const GROUP: u32 = 0o070;

/// The permission bit that lets other users traverse a directory.
const TRAVERSE: u32 = 0o001;

/// The facts about a directory.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    path: PathBuf,
    /// Its owner and its permission bits; `None` if it does not exist.
    found: Option<(u32, u32)>,
    /// The user of this process.
    user: u32,
    is_dir: bool,
    is_writable: bool,
    /// Whether every user may traverse the directories above it.
    is_reachable: bool,
}

impl Facts {
    /// Gathers the facts about a directory, which need not exist.
    pub fn gather(path: &Path) -> Self {
        let meta = std::fs::metadata(path).ok();
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            path: path.to_owned(),
            found: meta.as_ref().map(|meta| (meta.uid(), meta.mode())),
            user: getuid().as_raw(),
            is_dir: meta.is_none_or(|meta| meta.is_dir()),
            is_writable: access(existing(path), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok(),
            is_reachable: whole.ancestors().skip(1).filter_map(mode).all(|mode| mode & TRAVERSE != 0),
        }
    }
}

/// Returns the directory, or the nearest one above it that exists.
pub fn existing(path: &Path) -> PathBuf {
    let above = path.ancestors().find(|above| above.exists() && *above != Path::new(""));
    above.unwrap_or(Path::new(".")).to_owned()
}

/// Returns the permission bits of a file, if it exists.
pub fn mode(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|meta| meta.mode())
}

/// Checks that a node can use the directory, and other users can't.
pub fn check(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "data directory";
    let path = facts.path.display();
    let unusable = format!("this user can't read and write {path}");
    let Some((owner, mode)) = facts.found else {
        let what = format!("{path} does not exist yet");
        return vec![if facts.is_writable {
            Finding::note(
                CHECK,
                what,
                "A node creates it at its first start. The checks below apply to the place where it will be.",
            )
        } else {
            Finding::problem(CHECK, what, "This user can't create it there.")
        }];
    };
    if !facts.is_dir {
        return vec![Finding::problem(CHECK, format!("{path} is not a directory"), "A node needs its own directory.")];
    }
    let mut findings = Vec::new();
    if owner != facts.user && facts.user == ROOT {
        let what = format!("{path} belongs to user {owner}, but this user is root");
        findings.push(Finding::note(CHECK, what, "A node that root starts creates files that the owner can't open."));
    } else if owner != facts.user {
        let what = format!("{path} belongs to user {owner}, but this user is {}", facts.user);
        findings.push(Finding::problem(CHECK, what, "Run the node as the directory's owner, or change the owner."));
    }
    if !facts.is_writable {
        findings.push(Finding::problem(CHECK, unusable, "A node could not start."));
    }
    if mode & OTHERS != 0 && facts.is_reachable {
        let what = format!("{path} is open to every user of this machine (mode {:o})", mode & 0o7777);
        findings.push(Finding::note(CHECK, what, "They may read the database and its log: run `chmod o=` on it."));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{path} belongs to this user, and is closed to others"), ""));
    }
    findings
}

/// Checks that only its owner may read a file with a secret. `mode` is `None` if the file does not exist.
pub fn check_secret(path: &Path, mode: Option<u32>) -> Vec<Finding> {
    const CHECK: &str = "secret";
    let path = path.display();
    let means = "Anyone who knows the secret can read and change everything, and run a node. Run `chmod 600` on the \
                 file, and create a new secret if others may have read it.";
    vec![match mode {
        None => Finding::problem(
            CHECK,
            format!("{path} does not exist"),
            "Nodes and clients need it to authenticate each other.",
        ),
        Some(mode) if mode & OTHERS != 0 => {
            Finding::problem(CHECK, format!("{path} is open to every user (mode {:o})", mode & 0o7777), means)
        }
        Some(mode) if mode & GROUP != 0 => {
            Finding::note(CHECK, format!("{path} is open to its group (mode {:o})", mode & 0o7777), means)
        }
        Some(_) => Finding::ok(CHECK, format!("only its owner may read {path}"), ""),
    }]
}

/// Checks that only its owner may read the private key of a certificate.
pub fn check_key(path: &Path, mode: Option<u32>) -> Option<Finding> {
    let means = "Whoever has the key can pretend to be this node. Run `chmod 600` on the file, and issue another \
                 certificate if others may have read it.";
    check_closed("certificate", path, mode, means)
}

/// Checks that only its owner may read a file. `means` says what it means if others may.
pub fn check_closed(check: &'static str, path: &Path, mode: Option<u32>, means: &str) -> Option<Finding> {
    let mode = mode.filter(|mode| mode & (GROUP | OTHERS) != 0)?;
    let what = format!("{} is open to other users (mode {:o})", path.display(), mode & 0o7777);
    let finding = if mode & OTHERS != 0 { Finding::problem } else { Finding::note };
    Some(finding(check, what.as_str(), means))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::super::finding::Level::{self, Note, Ok, Problem};
    use super::*;

    #[test]
    fn a_directory_must_belong_to_the_user() {
        let facts = |owner, mode, user, is_writable| Facts {
            path: "d".into(),
            found: Some((owner, mode)),
            user,
            is_dir: true,
            is_writable,
            is_reachable: true,
        };
        let levels = |facts: &Facts| check(facts).iter().map(|finding| finding.level).collect::<Vec<Level>>();
        assert_eq!(levels(&facts(7, 0o700, 7, true)), [Ok]);
        assert_eq!(levels(&facts(7, 0o755, 7, true)), [Note]);
        assert_eq!(levels(&Facts { is_reachable: false, ..facts(7, 0o755, 7, true) }), [Ok]);
        assert_eq!(levels(&facts(8, 0o700, 7, false)), [Problem, Problem]);
        assert_eq!(levels(&facts(8, 0o700, ROOT, true)), [Note]);
        assert_eq!(levels(&Facts { found: None, ..facts(7, 0, 7, true) }), [Note]);
        assert_eq!(levels(&Facts { found: None, ..facts(7, 0, 7, false) }), [Problem]);
        assert_eq!(levels(&Facts { is_dir: false, ..facts(7, 0o600, 7, true) }), [Problem]);
    }

    #[test]
    fn a_secret_that_others_can_read_is_reported() {
        let level = |mode| check_secret(Path::new("s"), mode)[0].level;
        let modes = [Some(0o100_600), Some(0o100_400), Some(0o100_640), Some(0o100_644), None];
        assert_eq!(modes.map(level), [Ok, Ok, Note, Problem, Problem]);
    }

    #[test]
    fn facts_are_gathered_from_a_real_directory() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let facts = Facts::gather(dir.path());
        assert!(facts.is_dir && facts.is_writable && facts.found.is_some());
        assert!(!Facts::gather(&dir.path().join("a")).is_reachable, "its parent is closed to others");
        assert!(Facts::gather(&dir.path().join("a/b")).found.is_none());
        assert_eq!(existing(&dir.path().join("a/b")), dir.path());
        assert_eq!(existing(Path::new("no/such/directory")), Path::new("."));
    }
}
