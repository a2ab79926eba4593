//! A cluster of processes with an archive in a directory.

use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Dev, quorate, signal, succeeded, wait_until};

/// A cluster with an archive.
pub struct Archived {
    pub dev: Dev,
    pub place: TempDir,
}

impl Archived {
    pub fn start() -> Self {
        let place = TempDir::new().unwrap();
        let dev = Dev::start_in(TempDir::new().unwrap(), &["--archive", place.path().to_str().unwrap()]);
        succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER)"));
        let archived = Self { dev, place };
        archived.wait_for(1);
        archived
    }

    /// Writes a value and returns the position of the write.
    pub fn write(&self, value: u32) -> u64 {
        succeeded(&self.dev.sql(&[], &format!("INSERT INTO kept VALUES ({value})")));
        self.dev.applied()
    }

    /// Waits until everything that was written so far is archived, and returns the last archived entry.
    pub fn wait_for(&self, least: u64) -> u64 {
        let target = self.dev.applied().max(least);
        let mut last = 0;
        wait_until("everything is archived", || {
            last = archived(self.place.path()).unwrap_or(0);
            last >= target
        });
        last
    }

    /// Destroys all machines.
    pub fn destroy(self) -> TempDir {
        for node in self.dev.nodes() {
            signal(i32::try_from(node["pid"].as_i64().unwrap()).unwrap(), Signal::KILL);
        }
        let (_, dir) = self.dev.end(Signal::KILL);
        drop(dir);
        self.place
    }
}

/// Returns the last archived entry.
pub fn archived(place: &Path) -> Option<u64> {
    let listed = quorate(&["archive", "list", "--json", place.to_str().unwrap()]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).ok()?;
    listed[0]["last"]["position"].as_str()?.rsplit('.').next()?.parse().ok()
}
