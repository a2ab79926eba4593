//! SETs of random keys at a fixed rate: how long one waits while checkpoints run.
//!
//! Each connection sends a pipeline of SETs whenever it is due. The time of a SET counts from the moment at which its
//! pipeline was due, even if the connection still waited for the replies to the pipeline before.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use quorate_bench_harness::{Disk, Histogram, Result, data_dir};

use super::servers::{Server, Servers};

/// How often a connection sends a pipeline.
const STEP: Duration = Duration::from_millis(20);
/// The SETs of a pipeline while the keys are written for the first time.
const FILL: u64 = 128;
/// A SET that waits longer than this is counted.
const LONG: Duration = Duration::from_millis(25);
/// How long nothing is sent before the measured part.
const PAUSE: Duration = Duration::from_secs(6);
/// What Redis replies to a SET.
const REPLY: &[u8] = b"+OK\r\n";

/// The options of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The program `quorate`.
    #[arg(long)]
    quorate: PathBuf,
    /// The number of nodes.
    #[arg(long, default_value_t = 1)]
    nodes: u16,
    /// The number of keys, all of which are written before the measured part.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// The bytes of each value.
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// The number of SETs per second.
    #[arg(long, default_value_t = 30_000)]
    rate: u64,
    /// The number of connections.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    clients: u64,
    /// The seconds of the measured part.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// A directory for the data, on the disk to be measured; by default beside this program. The data are removed at
    /// the end.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Fills the cluster, and measures.
pub fn run(options: &Options) -> Result<()> {
    let dir = data_dir(options.dir.as_deref())?;
    let disk = Disk::probe(dir.path())?;
    let servers = Servers::cluster(&options.quorate, options.nodes, dir.path())?;
    let server = servers.all().first().ok_or("there is no server")?;
    let per_client = options.keys.div_ceil(options.clients);
    on_all(options, |client| fill(server, options, client * per_client..(client + 1) * per_client))?;
    std::thread::sleep(PAUSE);
    let begin = Instant::now();
    let (mut times, mut long) = (Histogram::default(), 0);
    for (of_client, long_ones) in on_all(options, |client| send(server, options, client, begin))? {
        times.add(&of_client);
        long += long_ones;
    }
    let summary = times.summary();
    println!(
        "{} pipelines of {} SETs, {} keys, {} nodes: p50 {:.0} us, p99 {:.0} us, longest {:.0} us, {long} longer than \
         {LONG:?} (fdatasync {:.0} us)",
        summary.count,
        per_pipeline(options),
        options.keys,
        options.nodes,
        summary.p50_us,
        summary.p99_us,
        summary.max_us,
        disk.sync.p50_us,
    );
    Ok(())
}

/// Runs `work` for each client in a thread.
fn on_all<T: Send>(options: &Options, work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.clients).map(|client| scope.spawn(move || work(client))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| "a client panicked")?);
        ended.collect()
    })
}

fn per_pipeline(options: &Options) -> u64 {
    (options.rate * STEP.as_millis() as u64).div_ceil(1_000 * options.clients)
}

fn fill(server: &Server, options: &Options, keys: std::ops::Range<u64>) -> Result<()> {
    let (mut stream, mut keys) = (connect(server)?, keys.peekable());
    while keys.peek().is_some() {
        round(&mut stream, options, keys.by_ref().take(FILL as usize))?;
    }
    Ok(())
}

/// Sends pipelines when they are due. Returns their times, and how many were too long.
fn send(server: &Server, options: &Options, client: u64, begin: Instant) -> Result<(Histogram, u64)> {
    let mut stream = connect(server)?;
    let (mut times, mut long) = (Histogram::default(), 0);
    // Clients do not send all at the same moment.
    let first = begin + STEP.mul_f64(client as f64 / options.clients as f64);
    let mut random = client;
    for step in 0..options.seconds * 1_000 / STEP.as_millis() as u64 {
        let due = first + STEP * u32::try_from(step)?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let keys = (0..per_pipeline(options)).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 20) % options.keys
        });
        round(&mut stream, options, keys.collect::<Vec<_>>())?;
        let took = due.elapsed();
        times.record(took);
        long += u64::from(took > LONG);
    }
    Ok((times, long))
}

/// Sends a SET of each key at once, and waits for all replies.
fn round(stream: &mut TcpStream, options: &Options, keys: impl IntoIterator<Item = u64>) -> Result<()> {
    let (value, mut requests, mut count) = ("x".repeat(options.size), String::new(), 0);
    for key in keys {
        let size = options.size;
        requests.push_str(&format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${size}\r\n{value}\r\n"));
        count += 1;
    }
    stream.write_all(requests.as_bytes())?;
    let mut replies = vec![0; count * REPLY.len()];
    stream.read_exact(&mut replies)?;
    let is_right = replies.chunks(REPLY.len()).all(|reply| reply == REPLY);
    if is_right { Ok(()) } else { Err(String::from_utf8_lossy(&replies).into()) }
}

fn connect(server: &Server) -> Result<TcpStream> {
    let stream = TcpStream::connect((server.host.as_str(), server.port))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
