//! Loads the five tables of nycflights13 into a running cluster while its leader is killed again and again, and
//! compares every table on every node with the same files in plain SQLite. `run.sh` starts this program.
//!
//! The last line of its output is `tables 5, rows N, kills N: equal`; anything else is a failure.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "an example, outside of the simulated world")]

mod cluster;
mod csv;
mod load;
mod multiset;
mod plain;
mod remote;
mod source;
mod tables;

use std::path::PathBuf;
use std::time::Instant;

use cluster::Cluster;
use remote::Remote;
use source::Source;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The options, which `run.sh` sets.
struct Options {
    /// The directory of the CSV files, to which the plain database is written, too.
    data: PathBuf,
    cluster: Cluster,
    /// The maximum number of flights to load.
    share: usize,
    /// How many flights are inserted by a statement each; the others are inserted in batches.
    singles: usize,
    kills: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Options { data, cluster, share, singles, kills } = options()?;
    let source = Source::read(&data, share)?;
    let plain = plain::load(&data.join("plain.db"), &source)?;

    let remote = Remote::connect(&cluster.nodes()?).await?;
    let start = Instant::now();
    let killed = load::load(&remote, &cluster, &source, singles, kills).await?;
    println!("loaded in {:.1} s", start.elapsed().as_secs_f64());

    let (mut tables, mut rows) = (0, 0);
    for file in source.files() {
        let expected = plain::rows(&plain, file.table)?;
        for node in cluster.nodes()? {
            let found = Remote::rows(&node, file.table).await?;
            if let Some(difference) = found.difference(&expected) {
                return Err(format!("{} on node {}: {difference}", file.table.name, node.id).into());
            }
        }
        tables += 1;
        rows += expected.len();
    }
    println!("tables {tables}, rows {rows}, kills {killed}: equal");
    Ok(())
}

fn options() -> Result<Options> {
    let mut options = Options {
        data: PathBuf::new(),
        cluster: Cluster { quorate: PathBuf::new(), data_dir: PathBuf::new() },
        share: usize::MAX,
        singles: 100_000,
        kills: 6,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--data" => options.data = value.into(),
            "--quorate" => options.cluster.quorate = value.into(),
            "--cluster" => options.cluster.data_dir = value.into(),
            "--share" => options.share = value.parse()?,
            "--singles" => options.singles = value.parse()?,
            "--kills" => options.kills = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}
