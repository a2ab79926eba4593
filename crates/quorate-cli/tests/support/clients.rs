//! Programs of clients for Redis, unmodified, which `.ci/clients` installs, and how they run beside a cluster.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::{is_alive, wait_until_within};

/// How long a program may take for its next line, with all steps before it.
const LINE_TIME_MAX: Duration = Duration::from_secs(180);

/// Returns the directory that `.ci/clients` fills.
fn installed() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::env::var_os("QUORATE_CLIENTS").map_or_else(|| target.join("clients"), PathBuf::from)
}

/// Returns the path of a script below the directory of these tests.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Returns a program that was built from its source, if it is installed.
pub fn program(path: &str) -> Option<Command> {
    let program = installed().join(path);
    program.exists().then(|| Command::new(program))
}

/// Returns a script for node, if its package is installed.
pub fn node(package: &str, name: &str) -> Option<Command> {
    let modules = installed().join("npm/node_modules");
    let mut command = Command::new("node");
    command.arg(script(name)).env("NODE_PATH", &modules);
    modules.join(package).exists().then_some(command)
}

/// Returns a script for Python, if its package is installed in an environment.
pub fn python(environment: &str, package: &str, name: &str) -> Option<Command> {
    let environment = installed().join(environment);
    let mut versions = environment.join("lib").read_dir().into_iter().flatten().flatten();
    let is_installed = versions.any(|version| version.path().join("site-packages").join(package).exists());
    let mut command = Command::new(environment.join("bin/python"));
    command.arg(script(name)).env("PYTHONDONTWRITEBYTECODE", "1");
    is_installed.then_some(command)
}

/// Says what is skipped if it is not installed. In CI that is an error.
pub fn or_skipped<T>(name: &str, found: Option<T>) -> Option<T> {
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{name} is not installed");
        eprintln!("skipped: {name} is not installed; `.ci/run setup` installs it");
    }
    found
}

/// A program that runs, in a group with the processes that it starts.
pub struct Running {
    process: Child,
    dir: TempDir,
}

impl Running {
    /// Starts a program, whose standard input stays open until the test ends it.
    pub fn start(command: &mut Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name| File::create(dir.path().join(name)).unwrap();
        command.process_group(0).stdin(Stdio::piped()).stdout(file("output")).stderr(file("errors"));
        Self { process: command.spawn().unwrap(), dir }
    }

    /// Waits until it has printed a line.
    pub fn says(&self, line: &str) {
        wait_until_within(LINE_TIME_MAX, line, || {
            let has_ended = !is_alive(self.id());
            let has_said = self.read("output").lines().any(|said| said == line);
            assert!(has_said || !has_ended, "it has ended without the line {line:?}");
            has_said
        });
    }

    /// Tells it to end: closes its standard input.
    pub fn ends(&mut self) {
        self.process.stdin = None;
    }

    fn id(&self) -> i32 {
        self.process.id().try_into().unwrap()
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.dir.path().join(name)).unwrap()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it said:\n{}{}", self.read("output"), self.read("errors"));
        }
        // Its workers end with it, too, if it has failed.
        let _ = kill_process_group(Pid::from_raw(self.id()).unwrap(), Signal::KILL);
        let _ = self.process.wait();
    }
}
