//! Single INSERTs into plain SQLite files, alone and while a side-car archives them to a directory or to S3:
//! `quorate replicate` and stock Litestream, in turns.
//!
//! One thread inserts into the databases, one after the other. What the side-car takes from it is what counts; its own
//! processor time, memory, objects and lag stand beside.

mod page;
mod place;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use place::Place;
use quorate_bench_harness::{Disk, Histogram, Result, Summary, Usage, data_dir};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::wait;

/// How long a side-car may take until every database has an archive, or until it has the last change.
const ARCHIVED_MAX: Duration = Duration::from_secs(60);
/// How long the same load runs before it is measured.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long all are idle before that.
const PAUSE: Duration = Duration::from_secs(1);

const TABLE: &str = "CREATE TABLE bench (id INTEGER PRIMARY KEY, name TEXT, value INTEGER)";
const INSERT: &str = "INSERT INTO bench (name, value) VALUES (?1, ?2)";

/// The options of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The numbers of databases to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100])]
    databases: Vec<usize>,
    /// The seconds of each run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How often each is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    turns: u64,
    /// The program `quorate`.
    #[arg(long)]
    quorate: PathBuf,
    /// The program `litestream`; without it only `quorate` is measured.
    #[arg(long)]
    litestream: Option<PathBuf>,
    /// An S3 server that does not check signatures, such as `moto_server`: `http://HOST:PORT`. The databases are
    /// archived to it too, not only to a directory on the same disk.
    #[arg(long)]
    s3: Option<String>,
    /// A directory for the data, on the disk to be measured; by default beside this program. The data are removed at
    /// the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Write the figures to this page, again after each kind of run.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Print one line of JSON for each run, as the last lines.
    #[arg(long)]
    json: bool,
}

/// What archives the databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SideCar {
    None,
    Quorate,
    Litestream,
}

/// The figures of a run.
struct Run {
    place: &'static str,
    side_car: SideCar,
    databases: usize,
    synchronous: &'static str,
    inserts_per_s: f64,
    times: Summary,
    disk: Disk,
    own: Option<Own>,
}

/// The figures of the side-car itself.
struct Own {
    /// Processor time for each second.
    cpu: f64,
    peak_mib: f64,
    objects_per_s: f64,
    /// From an INSERT after a pause to the object that holds it.
    lag: Duration,
}

/// Measures all, in turns.
pub fn run(options: &Options) -> Result<()> {
    let mut side_cars = vec![SideCar::None, SideCar::Quorate];
    side_cars.extend(options.litestream.as_ref().map(|_| SideCar::Litestream));
    let places = [Some(("directory", None)), options.s3.as_deref().map(|url| ("S3", Some(url)))];
    let mut runs = Vec::new();
    for place in places.into_iter().flatten() {
        for databases in &options.databases {
            for synchronous in ["FULL", "NORMAL"] {
                for _ in 0..options.turns {
                    for side_car in &side_cars {
                        let run = measure(options, place, *side_car, *databases, synchronous)?;
                        print(&run);
                        runs.push(run);
                    }
                }
                if let Some(page) = &options.page {
                    fs::write(page, page::markdown(&runs, &arguments(options)))?;
                }
            }
        }
    }
    for run in runs.iter().filter(|_| options.json) {
        println!("{}", as_json(run));
    }
    Ok(())
}

/// Returns the arguments that a reader needs to repeat the measurement.
fn arguments(options: &Options) -> String {
    let s3 = options.s3.as_ref().map(|url| format!(" --s3 {url}")).unwrap_or_default();
    let programs = " --quorate QUORATE --litestream LITESTREAM";
    format!("{programs}{s3} --seconds {} --turns {}", options.seconds, options.turns)
}

fn measure(
    options: &Options,
    (place, s3): (&'static str, Option<&str>),
    side_car: SideCar,
    databases: usize,
    synchronous: &'static str,
) -> Result<Run> {
    let dir = data_dir(options.dir.as_deref())?;
    let archive = Place::new(s3, dir.path())?;
    let disk = Disk::probe(dir.path())?;
    let open = |number: usize| -> Result<Connection> {
        let connection = Connection::open(dir.path().join(format!("{number}.db")))?;
        connection.busy_timeout(ARCHIVED_MAX)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.execute(TABLE, ())?;
        Ok(connection)
    };
    let connections = (0..databases).map(open).collect::<Result<Vec<_>>>()?;
    let mut process = start(options, side_car, dir.path(), &archive, databases)?;
    if process.is_some() {
        wait(|| Ok(archive.objects()? >= databases))?;
    }
    std::thread::sleep(PAUSE);
    insert(&connections, WARM_UP, &mut Histogram::default())?;

    let usage = |process: &Option<Running>| process.as_ref().map(|process| process.usage()).transpose();
    let (before, objects) = (usage(&process)?, archive.objects()?);
    let (begun, mut times) = (Instant::now(), Histogram::default());
    let inserts = insert(&connections, Duration::from_secs(options.seconds), &mut times)?;
    let seconds = begun.elapsed().as_secs_f64();
    let after = usage(&process)?;
    let objects = archive.objects()?.saturating_sub(objects);
    let own = match (before, after) {
        (Some(before), Some(after)) => Some(Own {
            cpu: (after.cpu - before.cpu).as_secs_f64() / seconds,
            peak_mib: after.peak_memory as f64 / (1 << 20) as f64,
            objects_per_s: objects as f64 / seconds,
            lag: lag(&archive, &connections)?,
        }),
        _ => None,
    };
    if let Some(process) = &mut process {
        process.0.kill()?;
    }
    let inserts_per_s = inserts as f64 / seconds;
    Ok(Run { place, side_car, databases, synchronous, inserts_per_s, times: times.summary(), disk, own })
}

/// Inserts into one database after the other for some time, and returns how often.
fn insert(connections: &[Connection], time: Duration, times: &mut Histogram) -> Result<u64> {
    let mut statements =
        connections.iter().map(|connection| connection.prepare(INSERT)).collect::<Result<Vec<_>, _>>()?;
    let (end, mut inserts) = (Instant::now() + time, 0_u32);
    while Instant::now() < end {
        for statement in &mut statements {
            let begun = Instant::now();
            statement.execute(("somebody somewhere", inserts))?;
            times.record(begun.elapsed());
            inserts += 1;
        }
    }
    Ok(inserts.into())
}

/// A side-car, which is killed in the end.
struct Running(Child);

impl Running {
    fn usage(&self) -> Result<Usage> {
        Usage::of_all([Ok(self.0.id())].into_iter())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended otherwise.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(
    options: &Options,
    side_car: SideCar,
    dir: &Path,
    archive: &Place,
    databases: usize,
) -> Result<Option<Running>> {
    let shown = dir.display();
    let (program, text) = match side_car {
        SideCar::None => return Ok(None),
        SideCar::Quorate => {
            let url = archive.url("");
            let text = format!("[[directory]]\npath = \"{shown}\"\npattern = \"*.db\"\nurl = \"{url}\"\n");
            (Some(&options.quorate), text)
        }
        SideCar::Litestream => {
            let database = |number| {
                let url = archive.url(&format!("{number}.db"));
                format!("  - path: {shown}/{number}.db\n    replica:\n      url: {url}\n")
            };
            let databases: String = (0..databases).map(database).collect();
            (options.litestream.as_ref(), format!("dbs:\n{databases}"))
        }
    };
    let program = program.ok_or("the program is not known")?;
    let config = dir.join(if side_car == SideCar::Quorate { "replicate.toml" } else { "litestream.yml" });
    fs::write(&config, text)?;
    let mut command = Command::new(program);
    command.args(["replicate", if side_car == SideCar::Quorate { "--config" } else { "-config" }]).arg(&config);
    let log = fs::File::create(dir.join("side-car.log"))?;
    command.envs(place::CREDENTIALS).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Some(Running(command.spawn()?)))
}

/// Returns the time from an INSERT, after a pause, until there is another object.
fn lag(archive: &Place, connections: &[Connection]) -> Result<Duration> {
    std::thread::sleep(2 * PAUSE);
    let (objects, begun) = (archive.objects()?, Instant::now());
    if let Some(connection) = connections.first() {
        connection.execute(INSERT, ("somebody somewhere", 0))?;
    }
    wait(|| Ok(archive.objects()? > objects))?;
    Ok(begun.elapsed())
}

fn wait(is_reached: impl Fn() -> Result<bool>) -> Result<()> {
    wait::until(ARCHIVED_MAX, "the side-car archived nothing", || Ok(is_reached()?.then_some(())))
}

fn print(run: &Run) {
    let Run { place, side_car, databases, synchronous, inserts_per_s, times, disk, own } = run;
    let own = own.as_ref().map(|Own { cpu, peak_mib, objects_per_s, lag }| {
        let lag = lag.as_millis();
        format!(
            ", side-car: {:.1} % of a processor, {peak_mib:.0} MiB, {objects_per_s:.1} objects/s, lag {lag} ms",
            cpu * 100.0
        )
    });
    println!(
        "{place}, {databases} databases, {synchronous}, {side_car:?}: {inserts_per_s:.0} inserts/s, p99 {:.0} us{} \
         (fdatasync {:.0} us)",
        times.p99_us,
        own.unwrap_or_default(),
        disk.sync.p50_us
    );
}

fn as_json(run: &Run) -> Value {
    let Run { place, side_car, databases, synchronous, inserts_per_s, times, disk, own } = run;
    let own = own.as_ref().map(|Own { cpu, peak_mib, objects_per_s, lag }| {
        json!({"cpu": cpu, "peak_mib": peak_mib, "objects_per_s": objects_per_s, "lag_ms": lag.as_millis() as u64})
    });
    json!({
        "archive": place, "side_car": format!("{side_car:?}"), "databases": databases, "synchronous": synchronous,
        "inserts_per_s": inserts_per_s, "p50_us": times.p50_us, "p99_us": times.p99_us,
        "fdatasync_p50_us": disk.sync.p50_us, "own": own,
    })
}
