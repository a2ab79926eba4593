//! An application in a process of its own, which writes a database as it is told, and copies of that database.
//!
//! The process that follows a database must not open its files in any other way, or SQLite's locks are gone. So the
//! application is another process, and so is the program that copies.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use quorate_archive::objects::Memory;
use quorate_archive::restore::{Plan, Target};
use quorate_archive::{Archiver, Identity, Objects};
use quorate_env::Env;
use quorate_env::disk::OpenMode;
use rusqlite::Connection;

pub const CLUSTER: u128 = 0xbeef;
const DATABASE: &str = "QUORATE_TEST_DATABASE";
const ANSWER: &str = "@@";

/// An application that writes a database. It is killed when this is dropped.
pub struct App {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl App {
    /// Starts the application. The test program has a test with the name `application` that calls [`serve`].
    pub fn start(path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "application", "--nocapture"]).env(DATABASE, path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Lets a connection run statements, or "close" it. Returns what SQLite says if it fails.
    pub fn run(&mut self, connection: u8, sql: &str) -> Result<(), String> {
        self.begin(connection, sql);
        self.end()
    }

    /// Lets a connection begin to run statements.
    pub fn begin(&mut self, connection: u8, sql: &str) {
        writeln!(self.input, "{connection} {}", sql.replace('\n', " ")).unwrap();
    }

    /// Waits for the end of what was begun last.
    pub fn end(&mut self) -> Result<(), String> {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the application has ended");
            if let Some((_, answer)) = line.trim_end().split_once(ANSWER) {
                return if answer.is_empty() { Ok(()) } else { Err(answer.to_owned()) };
            }
        }
    }

    /// Ends the process at once, in whatever it does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the process of the application does. Does nothing in the process of the test.
pub fn serve() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let mut connections: BTreeMap<String, Connection> = BTreeMap::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (name, sql) = line.split_once(' ').unwrap();
        if sql == "close" {
            connections.remove(name);
            println!("{ANSWER}");
            continue;
        }
        let connection = connections.entry(name.to_owned()).or_insert_with(|| Connection::open(&path).unwrap());
        match run_all(connection, sql) {
            Ok(()) => println!("{ANSWER}"),
            Err(error) => println!("{ANSWER}{error}"),
        }
    }
}

/// Runs statements; each gives at most a row.
fn run_all(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    for statement in sql.split(';').filter(|statement| !statement.trim().is_empty()) {
        let mut statement = connection.prepare(statement)?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}

/// Returns what SQLite finds in copies of a database's files that nobody writes at the moment.
pub fn copy(path: &Path) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("copy");
    cp(path, &to);
    let wal = wal_of(path);
    if wal.exists() {
        cp(&wal, &wal_of(&to));
    }
    let connection = Connection::open(&to).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    std::fs::read(to).unwrap()
}

fn cp(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

pub fn wal_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", path.display()))
}

/// Takes an archive over.
pub async fn archiver(env: &Env, memory: &Memory) -> Archiver {
    let identity = Identity { cluster: CLUSTER, epoch: 1, node: env.rng().next_u64(), token: 0 };
    Archiver::take_next(env, Arc::new(memory.clone()), identity).await.unwrap()
}

/// Restores the last boundary of an archive, which must be a sound database.
pub async fn restored(env: &Env, memory: &Memory) -> Vec<u8> {
    let objects: Arc<dyn Objects> = Arc::new(memory.clone());
    let plan = Plan::make(env, &objects, CLUSTER, Target::Latest).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("restored");
    let file = env.disk().open(&path, OpenMode::CreateNew).unwrap();
    plan.write_pages(env, &objects, file, None).await.unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    bytes
}

/// Fails if two databases differ.
pub fn assert_same(restored: &[u8], expected: &[u8], page_size: usize) {
    assert_eq!(restored.len(), expected.len(), "the sizes differ");
    let pages = restored.chunks(page_size).zip(expected.chunks(page_size)).zip(1..);
    let differ: Vec<u32> = pages.filter(|((left, right), _)| left != right).map(|(_, number)| number).collect();
    assert!(differ.is_empty(), "these of {} pages differ: {differ:?}", expected.len() / page_size);
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}
