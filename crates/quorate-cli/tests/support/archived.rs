//! A SQLite database with its application, which is the test, and the side-car that archives it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

use super::{QUORATE, quorate, succeeded};

/// A database, whose application is this process, and a place for its archive.
pub struct World {
    pub dir: TempDir,
    pub application: Connection,
}

impl World {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("archive")).unwrap();
        let application = Connection::open(dir.path().join("app.db")).unwrap();
        application.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (v TEXT)").unwrap();
        Self { dir, application }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub fn url(&self) -> String {
        format!("file://{}", self.path("archive"))
    }

    /// Returns `quorate replicate` for the database.
    pub fn replicate(&self, more: &[&str]) -> Command {
        let mut command = Command::new(QUORATE);
        command.args(["replicate", &self.path("app.db"), &self.url()]).args(more);
        command
    }

    pub fn write(&self, value: &str) {
        self.application.execute("INSERT INTO t VALUES (?1)", [value]).unwrap();
    }

    /// Returns the values in what is restored.
    pub fn restored(&self) -> String {
        self.restored_from(&self.url())
    }

    pub fn restored_from(&self, url: &str) -> String {
        let file = self.path("restored.db");
        succeeded(&quorate(&["restore", url, "--at", "latest", "--plain", "-o", &file]));
        let values = values(Path::new(&file));
        std::fs::remove_file(&file).unwrap();
        values
    }

    /// Whether there is something to restore.
    pub fn has_boundary(&self) -> bool {
        Self::has_boundary_at(&self.url())
    }

    pub fn has_boundary_at(url: &str) -> bool {
        quorate(&["restore", url, "--at", "latest", "--dry-run"]).status.success()
    }

    /// Returns how many snapshots there are.
    pub fn snapshots(&self) -> usize {
        std::fs::read_dir(self.replica().join("ltx/9")).unwrap().count()
    }

    /// The replica of Litestream in the archive.
    pub fn replica(&self) -> PathBuf {
        let cluster = std::fs::read_dir(self.path("archive")).unwrap().next().unwrap().unwrap();
        cluster.path().join("00000001")
    }
}

pub fn values(file: &Path) -> String {
    let connection = Connection::open(file).unwrap();
    // What follows an archive locks the file for each change until that is synced.
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection.query_row("SELECT group_concat(v) FROM (SELECT v FROM t ORDER BY rowid)", [], |row| row.get(0)).unwrap()
}

/// A process, and what it says.
pub struct Lines {
    pub child: Child,
    said: std::io::BufReader<std::process::ChildStderr>,
}

impl Lines {
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let said = std::io::BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    /// Returns the next line with this text.
    pub fn until(&mut self, text: &str) -> String {
        use std::io::BufRead as _;
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it ended without '{text}'");
        }
        line
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        super::signal(self.child.id().try_into().unwrap(), signal);
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
