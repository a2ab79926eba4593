//! Archives a cluster whose nodes are killed, restores many states, and compares each with a model.
//!
//! One writer changes a table, each change in an entry of its own. It knows the position of each: what it lost the
//! answer of, it sends again with its key. Meanwhile nodes are killed by SIGKILL, one after another, so the archiver
//! changes or comes back. At the end the archive is restored at drawn entries, and at every boundary by stock
//! Litestream: the rows have to be those that were written up to there. At a boundary the two programs have to make the
//! same file, page by page.
//!
//! `cargo run --release -p quorate-trials -- archive [--seconds 180] [--restores 1000] [--dir DIR] [--quorate FILE]
//! [--litestream FILE]`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use quorate::archive::{FetchOptions, Objects, Target, fetch};
use quorate::{Error, Sql};
use quorate_backup::store::{Location, Store};
use quorate_env::Rng;
use rusqlite::{Connection, OpenFlags};

use crate::harness::cluster::{Cluster, Place};
use crate::harness::dice::Dice;
use crate::harness::options::Options;
use crate::harness::{Result, until};
use crate::verdict::Verdict;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often pages are archived.
const BOUNDARY: &str = "2 s";
/// The keys of the table.
const KEYS: u64 = 2_000;
/// The longest value, in bytes.
const VALUE_BYTES: u64 = 3_000;
/// How many differences are printed, and bytes of each.
const SHOWN: usize = 10;

/// Options of `quorate-trials archive`.
#[derive(Args, Debug)]
pub struct ArchiveArgs {
    /// How long the cluster is written to
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    seconds: u64,
    /// How many entries are restored
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    restores: u64,
    /// Stock Litestream [default: boundaries are restored only by Quorate]
    #[arg(long, value_name = "FILE")]
    litestream: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// A change of the table, which is one entry.
#[derive(Clone, Debug)]
enum Change {
    Put(i64, String),
    Remove(i64),
    /// Changes rows in many pages.
    Mark(i64),
    /// Changes all pages, and no row.
    Vacuum,
}

/// The rows of the table.
type Rows = BTreeMap<i64, String>;

/// Every change with its index, in order.
type Written = Vec<(u64, Change)>;

/// Runs the trial.
pub async fn run(args: ArchiveArgs) -> Result<Verdict> {
    let place = args.options.scratch()?;
    let (written, kills) = write_under_kills(&args, place.path()).await?;
    let (Some((first, _)), Some((last, _))) = (written.first(), written.last()) else {
        return Err("nothing was written".into());
    };
    println!("{} changes in the entries {first} to {last}, {kills} kills", written.len());
    let mut comparison = Comparison::new(&args, place.path(), written.clone())?;
    let rng = Rng::from_os();
    let mut entries: Vec<u64> = (0..args.restores).map(|_| first + rng.below(last - first + 1)).collect();
    entries.sort_unstable();
    for index in entries {
        comparison.entry(index).await?;
    }
    let boundaries = comparison.boundaries().await?;
    let Comparison { differences, .. } = comparison;
    differences.iter().take(SHOWN).for_each(|difference| println!("{difference}"));
    let text = format!(
        "{} changes, {kills} kills, {} entries and {boundaries} boundaries restored, differences {}",
        written.len(),
        args.restores,
        differences.len()
    );
    Ok(Verdict::new(text, differences.is_empty() && boundaries > 0))
}

/// Writes while nodes are killed, and waits until everything is archived. Returns the changes, and the number of kills.
async fn write_under_kills(args: &ArchiveArgs, place: &Path) -> Result<(Written, u64)> {
    let at = Place { dir: place.to_owned(), boundary: Some(BOUNDARY) };
    let cluster = Cluster::archiving(&args.options, at).await?;
    let sql = cluster.sql().await?.with_deadline(PATIENCE);
    // The archive begins before it returns.
    let create = "CREATE TABLE kept (key INTEGER PRIMARY KEY, value TEXT)";
    sql.with_archived_writes().execute(create, ()).await?;
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let (written, kills) = tokio::join!(write(&sql, end), kill(&cluster, end));
    let (written, kills) = (written?, kills?);
    let last = written.last().map_or(0, |(index, _)| *index);
    until("the archive", PATIENCE, async || cluster.archived().await.filter(|archived| *archived >= last)).await?;
    cluster.destroy().await?;
    Ok((written, kills))
}

/// Changes the table until this moment.
async fn write(sql: &Sql, end: Instant) -> Result<Written> {
    let (dice, mut written) = (Dice(Rng::from_os()), Written::new());
    while Instant::now() < end {
        let change = Change::draw(&dice);
        let with_key = sql.with_key(format!("change {}", written.len()));
        let index = loop {
            match change.execute(&with_key).await {
                Ok(index) => break index,
                Err(error) if error.is_retryable() || matches!(error, Error::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        };
        written.push((index, change));
    }
    Ok(written)
}

/// Kills one node after another until this moment. Returns how often.
async fn kill(cluster: &Cluster, end: Instant) -> Result<u64> {
    let (dice, mut kills) = (Dice(Rng::from_os()), 0);
    let rest = |most: u64| tokio::time::sleep(Duration::from_millis(dice.below(most)));
    while Instant::now() < end {
        rest(4_000).await;
        let node = dice.pick(&cluster.nodes()?).cloned().ok_or("there are no nodes")?;
        cluster.kill(&node)?;
        kills += 1;
        // Now and then the node is away for so long that another one becomes the archiver.
        rest(if dice.chance(20) { 20_000 } else { 1_000 }).await;
        cluster.restart(node.id).await?;
        cluster.settled().await?;
    }
    Ok(kills)
}

impl Change {
    fn draw(dice: &Dice) -> Self {
        let key = i64::try_from(dice.below(KEYS)).unwrap_or(0);
        match dice.below(1_000) {
            0 => Self::Vacuum,
            1..20 => Self::Mark(key % 17),
            20..250 => Self::Remove(key),
            _ => {
                let letter = char::from(b'a' + u8::try_from(dice.below(26)).unwrap_or(0));
                let length = usize::try_from(dice.below(VALUE_BYTES)).unwrap_or(0);
                Self::Put(key, letter.to_string().repeat(length))
            }
        }
    }

    /// Executes it, and returns its index.
    async fn execute(&self, sql: &Sql) -> std::result::Result<u64, Error> {
        let executed = match self {
            Self::Put(key, value) => sql.execute("REPLACE INTO kept VALUES (?, ?)", (*key, value.as_str())).await,
            Self::Remove(key) => sql.execute("DELETE FROM kept WHERE key = ?", (*key,)).await,
            Self::Mark(rest) => {
                sql.execute("UPDATE kept SET value = substr(value, 2) || '.' WHERE key % 17 = ?", (*rest,)).await
            }
            Self::Vacuum => sql.execute("VACUUM", ()).await,
        };
        executed.map(|executed| executed.position.index)
    }

    fn apply(&self, rows: &mut Rows) {
        match self {
            Self::Put(key, value) => drop(rows.insert(*key, value.clone())),
            Self::Remove(key) => drop(rows.remove(key)),
            Self::Mark(rest) => {
                let marked = rows.iter_mut().filter(|(key, _)| *key % 17 == *rest);
                marked.for_each(|(_, value)| *value = format!("{}.", value.get(1..).unwrap_or_default()));
            }
            Self::Vacuum => {}
        }
    }
}

/// Compares restored states with the model: the changes, applied in order.
struct Comparison {
    archive: PathBuf,
    objects: Arc<dyn Objects>,
    scratch: tempfile::TempDir,
    litestream: Option<PathBuf>,
    written: Written,
    /// The rows after the first changes, and how many these are.
    rows: (Rows, usize),
    differences: Vec<String>,
}

impl Comparison {
    fn new(args: &ArchiveArgs, archive: &Path, written: Written) -> Result<Self> {
        Ok(Self {
            archive: archive.to_owned(),
            objects: Arc::new(Store::open(&Location::dir(archive)?, None)?),
            scratch: args.options.scratch()?,
            litestream: args.litestream.clone(),
            written,
            rows: (Rows::new(), 0),
            differences: Vec::new(),
        })
    }

    /// Restores an entry, and compares the rows.
    async fn entry(&mut self, index: u64) -> Result<()> {
        let file = self.fetch(index).await?;
        self.compare(&file, index)?;
        Ok(std::fs::remove_file(file)?)
    }

    /// Restores the state after an entry into a plain file.
    async fn fetch(&self, index: u64) -> Result<PathBuf> {
        let file = self.scratch.path().join("fetched");
        let mut options = FetchOptions::default();
        (options.target, options.is_plain) = (Some(Target::Entry(index)), true);
        fetch(&self.objects, &file, &options).await?;
        Ok(file)
    }

    /// Compares the rows of a file with those that were written up to an entry.
    fn compare(&mut self, file: &Path, index: u64) -> Result<()> {
        let conn = open(file)?;
        let mut found = conn.prepare("SELECT key, value FROM kept")?;
        let found: Rows =
            found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
        let at = applied(&conn)?;
        let expected = self.rows_at(index);
        if at != index || found != *expected {
            let keys = expected.keys().chain(found.keys()).find(|key| expected.get(key) != found.get(key));
            let text = format!("entry {index}: the file is of entry {at}, and the row of the key {keys:?} differs");
            self.differences.push(text);
        }
        Ok(())
    }

    /// Returns the rows after an entry.
    fn rows_at(&mut self, index: u64) -> &Rows {
        let count = self.written.partition_point(|(at, _)| *at <= index);
        if self.rows.1 > count {
            self.rows = (Rows::new(), 0);
        }
        let (rows, done) = &mut self.rows;
        self.written[*done..count].iter().for_each(|(_, change)| change.apply(rows));
        *done = count;
        rows
    }

    /// Restores every boundary after the first change. Returns how many.
    async fn boundaries(&mut self) -> Result<u64> {
        let Some(litestream) = self.litestream.clone() else {
            println!("no --litestream: boundaries are not compared");
            return Ok(0);
        };
        let first = self.written.first().map_or(0, |(index, _)| *index);
        let mut count = 0;
        for cluster in folders(&self.archive)? {
            // The others hold entries.
            for generation in folders(&cluster)?.into_iter().filter(|dir| dir.join("ltx").is_dir()) {
                for txid in transactions(&generation)? {
                    let theirs = self.scratch.path().join("litestream");
                    restore(&litestream, &generation, txid, &theirs)?;
                    let index = applied(&open(&theirs)?)?;
                    if index >= first {
                        self.compare(&theirs, index)?;
                        let ours = self.fetch(index).await?;
                        let differing = differing(&std::fs::read(&theirs)?, &std::fs::read(&ours)?);
                        if !differing.is_empty() {
                            let text = format!("boundary {txid} at entry {index}: the bytes {differing:?} differ");
                            self.differences.push(text);
                        }
                        std::fs::remove_file(ours)?;
                        count += 1;
                    }
                    std::fs::remove_file(theirs)?;
                }
            }
        }
        Ok(count)
    }
}

/// Restores a transaction of a generation with stock Litestream.
fn restore(litestream: &Path, generation: &Path, txid: u64, to: &Path) -> Result<()> {
    let mut command = Command::new(litestream);
    command.arg("restore").arg("-o").arg(to).arg(format!("-txid={txid:016x}"));
    let output = command.arg(format!("file://{}", generation.display())).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("litestream can't restore {txid} of {}: {said}", generation.display()).into());
    }
    Ok(())
}

/// Returns the first places at which two files differ, other than in the header's journal mode and counters of changes,
/// which change when Quorate opens what it has restored, to apply the entries after the boundary.
fn differing(one: &[u8], other: &[u8]) -> Vec<usize> {
    let longest = one.len().max(other.len());
    let is_of_opening = |at: &usize| matches!(at, 18..20 | 24..28 | 92..96);
    (0..longest).filter(|at| one.get(*at) != other.get(*at) && !is_of_opening(at)).take(SHOWN).collect()
}

/// Returns the transactions after which a generation has a file of the lowest level.
fn transactions(generation: &Path) -> Result<Vec<u64>> {
    let level = generation.join("ltx/0");
    let mut found = Vec::new();
    for file in std::fs::read_dir(level).into_iter().flatten() {
        let name = file?.file_name().into_string().unwrap_or_default();
        let last = name.strip_suffix(".ltx").and_then(|name| name.split_once('-')).map(|(_, last)| last);
        found.extend(last.and_then(|last| u64::from_str_radix(last, 16).ok()));
    }
    found.sort_unstable();
    Ok(found)
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths = std::fs::read_dir(dir)?.map(|item| Ok(item?.path()));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.is_dir());
    paths.sort();
    Ok(paths)
}

fn open(file: &Path) -> Result<Connection> {
    Ok(Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?)
}

/// Returns the last entry in a database.
fn applied(conn: &Connection) -> Result<u64> {
    let index: i64 = conn.query_row("SELECT \"index\" FROM _quorate_applied", [], |row| row.get(0))?;
    Ok(u64::try_from(index)?)
}
