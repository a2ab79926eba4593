//! Whose a data directory is, and who may read what should be secret.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::getuid;

use super::finding::Finding;

/// Root, who may do everything.
const ROOT: u32 = 0;

/// Permission bits of the others, and of the group.
const OTHERS: u32 = 0o007;
const GROUP: u32 = 0o070;

/// The bit that lets others pass a directory.
const PASS: u32 = 0o001;

/// What is known of a directory.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    path: PathBuf,
    /// Its owner and its permission bits; none where it does not exist.
    found: Option<(u32, u32)>,
    /// Who asks.
    user: u32,
    is_dir: bool,
    is_writable: bool,
    /// Whether everyone may pass the directories above it.
    is_reachable: bool,
}

impl Facts {
    /// Looks at a directory, which need not exist.
    pub fn gather(path: &Path) -> Self {
        let meta = std::fs::metadata(path).ok();
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            path: path.to_owned(),
            found: meta.as_ref().map(|meta| (meta.uid(), meta.mode())),
            user: getuid().as_raw(),
            is_dir: meta.is_none_or(|meta| meta.is_dir()),
            is_writable: access(existing(path), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok(),
            is_reachable: whole.ancestors().skip(1).filter_map(mode).all(|mode| mode & PASS != 0),
        }
    }
}

/// The directory, or the nearest one above it that exists.
pub fn existing(path: &Path) -> PathBuf {
    let above = path.ancestors().find(|above| above.exists() && *above != Path::new(""));
    above.unwrap_or(Path::new(".")).to_owned()
}

/// The permission bits of a file, if it is there.
pub fn mode(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|meta| meta.mode())
}

/// Whether a node can use the directory, and nobody else.
pub fn check(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "data directory";
    let path = facts.path.display();
    let unusable = format!("{path} can't be read and written by this user");
    let Some((owner, mode)) = facts.found else {
        let what = format!("{path} does not exist yet");
        return vec![if facts.is_writable {
            Finding::note(CHECK, what, "A node makes it at its first start. What follows is about where it will be.")
        } else {
            Finding::problem(CHECK, what, "This user can't make it there.")
        }];
    };
    if !facts.is_dir {
        return vec![Finding::problem(CHECK, format!("{path} is no directory"), "A node needs one of its own.")];
    }
    let mut findings = Vec::new();
    if owner != facts.user && facts.user == ROOT {
        let what = format!("{path} belongs to the user {owner}, and this is root");
        findings.push(Finding::note(CHECK, what, "A node that root starts makes files that this user can't open."));
    } else if owner != facts.user {
        let what = format!("{path} belongs to the user {owner}, and this is {}", facts.user);
        findings.push(Finding::problem(
            CHECK,
            what,
            "Run the node as the directory's owner, or give the directory away.",
        ));
    }
    if !facts.is_writable {
        findings.push(Finding::problem(CHECK, unusable, "A node would not start."));
    }
    if mode & OTHERS != 0 && facts.is_reachable {
        let what = format!("{path} is open to every user of this machine (mode {:o})", mode & 0o7777);
        findings.push(Finding::note(CHECK, what, "They may read the database and its log: `chmod o= ` it."));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{path} is this user's, and closed to others"), ""));
    }
    findings
}

/// Whether a file with a secret is one. `mode` is none where it is not there.
pub fn check_secret(path: &Path, mode: Option<u32>) -> Vec<Finding> {
    const CHECK: &str = "secret";
    let path = path.display();
    let means = "Who knows the secret may read and change everything, and be a node: `chmod 600` it, and make a new \
                 secret if others could have read it.";
    vec![match mode {
        None => {
            Finding::problem(CHECK, format!("{path} is not there"), "Nodes and clients need it to know each other.")
        }
        Some(mode) if mode & OTHERS != 0 => {
            Finding::problem(CHECK, format!("{path} is open to every user (mode {:o})", mode & 0o7777), means)
        }
        Some(mode) if mode & GROUP != 0 => {
            Finding::note(CHECK, format!("{path} is open to its group (mode {:o})", mode & 0o7777), means)
        }
        Some(_) => Finding::ok(CHECK, format!("{path} is its owner's alone"), ""),
    }]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::super::finding::Level::{self, Note, Ok, Problem};
    use super::*;

    #[test]
    fn a_directory_must_be_ones_own() {
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
    fn a_secret_that_others_can_read_is_none() {
        let level = |mode| check_secret(Path::new("s"), mode)[0].level;
        let modes = [Some(0o100_600), Some(0o100_400), Some(0o100_640), Some(0o100_644), None];
        assert_eq!(modes.map(level), [Ok, Ok, Note, Problem, Problem]);
    }

    #[test]
    fn a_directory_of_this_machine_is_known() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let facts = Facts::gather(dir.path());
        assert!(facts.is_dir && facts.is_writable && facts.found.is_some());
        assert!(!Facts::gather(&dir.path().join("a")).is_reachable, "the one above is closed to others");
        assert!(Facts::gather(&dir.path().join("a/b")).found.is_none());
        assert_eq!(existing(&dir.path().join("a/b")), dir.path());
        assert_eq!(existing(Path::new("no/such/directory")), Path::new("."));
    }
}
