//! The stock `litestream` program, and archives on the file system that it reads and writes.

use std::path::{Path, PathBuf};
use std::process::Command;

use quorate_archive::ltx::{FileName, Level, Reader};
use tempfile::TempDir;

/// The installed program.
pub struct Stock(PathBuf);

impl Stock {
    /// Returns the program, or `None`, with a message, if it is not installed.
    pub fn installed() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let dir = std::env::var_os("QUORATE_LITESTREAM").map_or_else(|| target().join("litestream"), PathBuf::from);
        let program = dir.join("bin/litestream");
        if program.exists() {
            return Some(Self(program));
        }
        assert!(std::env::var_os("CI").is_none(), "{} is missing: run .ci/litestream", program.display());
        eprintln!("skipped: Litestream is not installed; .ci/litestream installs it");
        None
    }

    /// Captures what has changed in a database since the last time.
    pub fn capture(&self, database: &Path, archive: &Archive) {
        let mut command = Command::new(&self.0);
        let output = command.args(["replicate", "-once"]).arg(database).arg(archive.url()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Restores the last state, or that after a transaction. Returns the bytes of the database, or what the program
    /// said.
    pub fn restore(&self, archive: &Archive, txid: Option<u64>) -> Result<Vec<u8>, String> {
        let dir = tempfile::tempdir().unwrap();
        let restored = dir.path().join("restored");
        let mut command = Command::new(&self.0);
        command.arg("restore").arg("-o").arg(&restored);
        command.args(txid.map(|txid| format!("-txid={txid:016x}")));
        let output = command.arg(archive.url()).output().unwrap();
        if output.status.success() {
            return Ok(std::fs::read(restored).unwrap());
        }
        Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

/// An archive on the file system, in a folder that is removed at the end.
pub struct Archive(TempDir);

impl Archive {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    /// Stores a file under its name.
    pub fn put(&self, level: Level, file: &[u8]) {
        let name = FileName(Reader::new(file).unwrap().header().txids);
        std::fs::create_dir_all(self.level(level)).unwrap();
        std::fs::write(self.level(level).join(name.to_string()), file).unwrap();
    }

    /// Returns the files of a level, the oldest first.
    pub fn files(&self, level: Level) -> Vec<Vec<u8>> {
        let names = std::fs::read_dir(self.level(level)).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<FileName> = names.map(|name| name.to_str().unwrap().parse().unwrap()).collect();
        names.sort_by_key(|name| name.0.min());
        names.iter().map(|name| std::fs::read(self.level(level).join(name.to_string())).unwrap()).collect()
    }

    pub fn has(&self, level: Level, name: FileName) -> bool {
        self.level(level).join(name.to_string()).exists()
    }

    fn level(&self, level: Level) -> PathBuf {
        self.root().join(level.folder())
    }

    fn root(&self) -> PathBuf {
        self.dir().join("archive")
    }

    fn url(&self) -> String {
        format!("file://{}", self.root().display())
    }
}
