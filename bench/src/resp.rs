//! Commands of Redis, sent by `redis-benchmark` to a cluster of three processes and to Valkey, in turns.
//!
//! All servers run during the whole measurement, on the same disk, and only one of them has load at a time. The cluster
//! acknowledges a write when a majority of its nodes has synced it; Valkey runs once with `appendfsync always` and once
//! with `everysec`. The load connects to the node that leads, and chooses keys as `redis-benchmark` does by itself.

mod page;
mod servers;
pub mod steady;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use quorate_bench_harness::{Disk, Result, data_dir};
use serde_json::{Value, json};
use servers::{Server, Servers};

/// The number of requests of the run before each measured one. Its rate determines how many requests that one has.
const TRIAL_REQUESTS: u64 = 2_000;
/// The most requests of one run.
const REQUESTS_MAX: f64 = 20_000_000.0;

/// The options of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The program `quorate`.
    #[arg(long)]
    quorate: PathBuf,
    /// The program `valkey-server`; without it only Quorate is measured.
    #[arg(long)]
    valkey: Option<PathBuf>,
    /// The program `redis-benchmark`.
    #[arg(long, default_value = "redis-benchmark")]
    redis_benchmark: PathBuf,
    /// The tests of `redis-benchmark` to run.
    #[arg(long, value_delimiter = ',', default_value = "set,get,incr,lpush,lpop,hset,sadd,zadd")]
    tests: Vec<String>,
    /// The numbers of connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 50, 200])]
    clients: Vec<u64>,
    /// The numbers of requests that a connection sends at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    pipelines: Vec<u64>,
    /// The numbers of different keys, members or fields; the largest only with SET and GET.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100_000, 1_000_000])]
    keys: Vec<u64>,
    /// The sizes of values in bytes; the second and later ones only with SET and GET.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000])]
    sizes: Vec<u64>,
    /// The approximate seconds of each run.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How often each is measured.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=99))]
    turns: u64,
    /// A directory for the data, on the disk to be measured; by default beside this program. The data are removed at
    /// the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Write the figures to this page.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Print one line of JSON for each run, as the last lines.
    #[arg(long)]
    json: bool,
}

/// What a run sends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Load {
    test: String,
    clients: u64,
    pipeline: u64,
    keys: u64,
    size: u64,
}

/// The figures of a run.
struct Run {
    load: Load,
    server: &'static str,
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Processor time of the server for each second, and its memory at the end.
    processors: f64,
    memory_mib: f64,
}

/// Measures all, in turns.
pub fn run(options: &Options) -> Result<()> {
    let dir = data_dir(options.dir.as_deref())?;
    let disk = Disk::probe(dir.path())?;
    let servers = Servers::start(&options.quorate, options.valkey.as_deref(), dir.path())?;
    println!("fdatasync {:.0} us at the median", disk.sync.p50_us);
    let mut runs = Vec::new();
    for load in loads(options) {
        for _ in 0..options.turns {
            for server in servers.all() {
                let run = measure(options, &load, server)?;
                print(&run);
                runs.push(run);
            }
        }
        if let Some(page) = &options.page {
            fs::write(page, page::markdown(&runs, &disk, options.seconds))?;
        }
    }
    for run in runs.iter().filter(|_| options.json) {
        println!("{}", as_json(run, &disk));
    }
    Ok(())
}

/// Returns the loads in the order of the tests, so that GET and LPOP find what SET and LPUSH wrote.
fn loads(options: &Options) -> Vec<Load> {
    let mut loads = Vec::new();
    let (first_size, most_keys) = (options.sizes.first(), options.keys.iter().max());
    for keys in &options.keys {
        for size in &options.sizes {
            for clients in &options.clients {
                for pipeline in &options.pipelines {
                    for test in &options.tests {
                        let is_plain = test == "set" || test == "get";
                        let is_extra = Some(size) != first_size || (Some(keys) == most_keys && options.keys.len() > 2);
                        if is_plain || !is_extra {
                            let (clients, pipeline) = (*clients, *pipeline);
                            loads.push(Load { test: test.clone(), clients, pipeline, keys: *keys, size: *size });
                        }
                    }
                }
            }
        }
    }
    loads
}

fn measure(options: &Options, load: &Load, server: &Server) -> Result<Run> {
    let trial = send(options, load, server, TRIAL_REQUESTS.max(load.clients * load.pipeline))?;
    let requests = (trial.per_s * options.seconds).clamp(TRIAL_REQUESTS as f64, REQUESTS_MAX);
    send(options, load, server, requests as u64)
}

/// Runs `redis-benchmark` once.
fn send(options: &Options, load: &Load, server: &Server, requests: u64) -> Result<Run> {
    let mut command = Command::new(&options.redis_benchmark);
    command.args(["-h", &server.host, "-p", &server.port.to_string(), "--csv", "--precision", "3"]);
    command.args(["-t", &load.test, "-n", &requests.to_string(), "-c", &load.clients.to_string()]);
    command.args(["-P", &load.pipeline.to_string(), "-d", &load.size.to_string()]);
    if load.keys > 1 {
        command.args(["-r", &load.keys.to_string()]);
    }
    let before = server.usage()?;
    let begun = std::time::Instant::now();
    let output = command.output()?;
    let (seconds, after) = (begun.elapsed(), server.usage()?);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = || format!("redis-benchmark: {text}{}", String::from_utf8_lossy(&output.stderr));
    // The columns are: the test, requests per second, and the mean, least, p50, p95, p99 and longest latency.
    let line = text.lines().last().ok_or_else(error)?;
    let cells: Vec<f64> = line.split(',').skip(1).filter_map(|cell| cell.trim_matches('"').parse().ok()).collect();
    let [per_s, _, _, p50_ms, _, p99_ms, max_ms] = *cells.as_slice() else { return Err(error().into()) };
    let processors = processors(after.cpu - before.cpu, seconds);
    let memory_mib = after.peak_memory as f64 / (1 << 20) as f64;
    Ok(Run { load: load.clone(), server: server.name, per_s, p50_ms, p99_ms, max_ms, processors, memory_mib })
}

fn processors(time: Duration, of: Duration) -> f64 {
    time.as_secs_f64() / of.as_secs_f64()
}

fn print(run: &Run) {
    let Run { load, server, per_s, p50_ms, p99_ms, max_ms, processors, memory_mib } = run;
    let Load { test, clients, pipeline, keys, size } = load;
    println!(
        "{test}, {keys} keys, {size} bytes, {clients} clients, pipeline {pipeline}, {server}: {per_s:.0}/s, p50 \
         {p50_ms} ms, p99 {p99_ms} ms, longest {max_ms} ms, {processors:.2} processors, {memory_mib:.0} MiB"
    );
}

fn as_json(run: &Run, disk: &Disk) -> Value {
    let Run { load, server, per_s, p50_ms, p99_ms, max_ms, processors, memory_mib } = run;
    let Load { test, clients, pipeline, keys, size } = load;
    json!({
        "test": test, "clients": clients, "pipeline": pipeline, "keys": keys, "size": size, "server": server,
        "per_s": per_s, "p50_ms": p50_ms, "p99_ms": p99_ms, "max_ms": max_ms, "processors": processors,
        "memory_mib": memory_mib, "fdatasync_p50_us": disk.sync.p50_us,
    })
}
