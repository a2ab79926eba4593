//! Checks the file system of a data directory, and the write cache below it.

use std::path::{Path, PathBuf};

use super::finding::Finding;

/// The facts about the file system of a directory.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    mount: Option<Mount>,
    /// What the kernel reports of the disk's own cache.
    write_cache: Option<String>,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mount {
    /// The device, as major:minor.
    device: String,
    point: PathBuf,
    kind: String,
    options: Vec<String>,
}

impl Facts {
    /// Gathers the facts about an existing directory.
    pub fn gather(dir: &Path) -> Self {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = dir.canonicalize().ok().and_then(|dir| mount_of(&table, &dir));
        let write_cache = mount.as_ref().and_then(|mount| {
            let device = Path::new("/sys/dev/block").join(&mount.device);
            // The queue of a partition is that of its disk, which is one directory up.
            ["queue/write_cache", "../queue/write_cache"]
                .into_iter()
                .find_map(|name| std::fs::read_to_string(device.join(name)).ok())
        });
        Self { mount, write_cache: write_cache.map(|text| text.trim().to_owned()) }
    }
}

/// Returns the mount that holds a path: the innermost one above it, and of several at the same point the last.
fn mount_of(table: &str, path: &Path) -> Option<Mount> {
    let mounts = table.lines().filter_map(mount).filter(|mount| path.starts_with(&mount.point));
    mounts.max_by_key(|mount| mount.point.components().count())
}

/// Parses a line such as `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue`
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let (device, _, point, options) = (left.next()?, left.next()?, left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, more_options) = (right.next()?, right.nth(1).unwrap_or_default());
    Some(Mount {
        device: device.to_owned(),
        point: unescaped(point).into(),
        kind: kind.to_owned(),
        options: options.split(',').chain(more_options.split(',')).map(str::to_owned).collect(),
    })
}

/// Decodes the escapes of the kernel: it writes spaces and some other characters as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (code, part.get(3..)) {
            (Some(code), Some(rest)) => {
                shown.push(char::from(code));
                shown.push_str(rest);
            }
            _ => {
                shown.push('\\');
                shown.push_str(part);
            }
        }
    }
    shown
}

/// Checks whether the file system keeps data that were synced.
pub fn check(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "file system";
    let Some(mount) = &facts.mount else {
        return vec![Finding::note(CHECK, "its type can't be read here", "")];
    };
    let (kind, point) = (mount.kind.as_str(), mount.point.display());
    let what = format!("{kind}, mounted at {point}");
    let has = |option: &str| mount.options.iter().any(|found| found == option);
    let mut findings = vec![match kind {
        "tmpfs" | "ramfs" => Finding::problem(
            CHECK,
            what,
            "It is in memory: all of it is lost when the machine restarts. If that happens to a majority, acknowledged \
             writes are lost.",
        ),
        "vfat" | "exfat" | "msdos" => Finding::problem(
            CHECK,
            what,
            "It does not keep names and owners safely through a power failure. Use ext4, XFS, Btrfs or ZFS.",
        ),
        "overlay" | "aufs" => Finding::note(
            CHECK,
            what,
            "It is a container's own layer: it is deleted with the container, and syncs as the file system below it \
             does. Mount a volume for the data directory.",
        ),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" | "glusterfs" | "lustre" | "vboxsf" => {
            Finding::note(CHECK, what, remote())
        }
        _ if kind.starts_with("fuse") => Finding::note(CHECK, what, remote()),
        "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "zfs" | "f2fs" | "bcachefs" | "jfs" | "ufs" | "apfs" => {
            Finding::ok(CHECK, what, "It keeps what was synced, if its disk does.")
        }
        _ => Finding::note(CHECK, what, "How it handles fsync and locks is not known."),
    }];
    if has("nobarrier") || has("barrier=0") {
        let text = "it is mounted without write barriers";
        findings.push(Finding::problem(CHECK, text, "Synced data may still be in the disk's cache, and be lost."));
    }
    if has("ro") {
        findings.push(Finding::problem(CHECK, "it is mounted read-only", "A node can't run there."));
    }
    findings.extend(facts.write_cache.as_deref().map(check_cache));
    findings
}

fn remote() -> &'static str {
    "Locks, shared memory and fsync may not work as on a local disk, and differ between servers and options. Use a \
     local disk: the other nodes keep the copies."
}

fn check_cache(cache: &str) -> Finding {
    const CHECK: &str = "write cache";
    match cache {
        "write through" => Finding::ok(CHECK, "the disk has none, or one that survives a power failure", ""),
        "write back" => Finding::ok(
            CHECK,
            "the disk has a cache that is lost in a power failure",
            "fdatasync flushes it, which is part of the time below. If the disk is virtual, make sure that its host \
             does not ignore flushes.",
        ),
        other => Finding::note(CHECK, format!("the kernel calls it '{other}'"), ""),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::super::finding::Level;
    use super::*;

    const TABLE: &str = "\
21 1 252:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
30 21 0:25 / /run rw,nosuid shared:2 - tmpfs tmpfs rw,size=1k
31 21 252:2 / /var/my\\040data rw shared:3 - xfs /dev/vdb rw,attr2
32 31 0:40 / /var/my\\040data/ro ro shared:4 - fuse.sshfs host:/ rw,user_id=0
33 21 252:3 / /old rw shared:5 - ext3 /dev/vdc rw,barrier=0";

    fn found(path: &str) -> Vec<Finding> {
        check(&Facts { mount: mount_of(TABLE, Path::new(path)), write_cache: None })
    }

    #[test]
    fn the_innermost_mount_counts() {
        for (path, kind, device) in [
            ("/srv/x", "ext4", "252:1"),
            ("/run/user", "tmpfs", "0:25"),
            ("/running", "ext4", "252:1"),
            ("/var/my data/q", "xfs", "252:2"),
            ("/var/my data/ro", "fuse.sshfs", "0:40"),
        ] {
            let mount = mount_of(TABLE, Path::new(path)).unwrap();
            assert_eq!((mount.kind.as_str(), mount.device.as_str()), (kind, device), "{path}");
        }
        assert_eq!(mount_of("", Path::new("/x")), None);
        assert_eq!(mount_of("nonsense\n1 2 - x", Path::new("/x")), None);
    }

    #[test]
    fn losing_synced_writes_is_a_problem() {
        let levels = |path| found(path).iter().map(|finding| finding.level).collect::<Vec<_>>();
        assert_eq!(levels("/srv"), [Level::Ok]);
        assert_eq!(levels("/run"), [Level::Problem]);
        assert_eq!(levels("/var/my data"), [Level::Ok]);
        assert_eq!(levels("/var/my data/ro"), [Level::Note, Level::Problem]);
        assert_eq!(levels("/old"), [Level::Ok, Level::Problem]);
        assert_eq!(check(&Facts::default())[0].level, Level::Note);
        for (cache, level) in [("write back", Level::Ok), ("write through", Level::Ok), ("?", Level::Note)] {
            assert_eq!(check_cache(cache).level, level);
        }
    }

    #[test]
    fn a_real_directory_has_a_mount() {
        let facts = Facts::gather(&std::env::temp_dir());
        assert_eq!(facts.mount.is_some(), Path::new("/proc/self/mountinfo").exists());
    }
}
