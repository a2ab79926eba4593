//! Sends hostile queries to a node that is embedded in a program whose threads have small stacks: queries run on the
//! thread of their caller.
//!
//! That program is a new process of this one, so that its end is noticed. It records each statement before it runs it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quorate::sql::Param;
use quorate::{Config, Error, Level, Node, Sql};

use super::Source;
use super::books::shown;
use super::schema::SCHEMA;
use super::statements::{Door, Hostile, parameters};
use crate::harness::Result;
use crate::verdict::Verdict;

/// The stack of a caller.
const STACK_BYTES: usize = 512 << 10;
/// The deadline of a query.
const DEADLINE: Duration = Duration::from_secs(20);
/// The file in which the program records the number of the statement that it runs.
const RUNNING: &str = "running";

/// Runs the queries in a range of numbers, in separate processes, none of which may end early. They get the seed that
/// was chosen, if the command line has none.
pub fn run(source: &Source, from: u64, to: u64, dir: &Path, chosen: Option<u64>) -> Result<Verdict> {
    let (mut next, mut ended) = (from, 0);
    while next < to {
        let life = dir.join(format!("embedded-{next}"));
        std::fs::create_dir_all(&life)?;
        let mut again = Command::new(std::env::current_exe()?);
        again.args(std::env::args_os().skip(1)).arg("--inside").arg(&life).args(["--begin", &next.to_string()]);
        if let Some(seed) = chosen {
            again.args(["--seed", &seed.to_string()]);
        }
        let output = again.stdout(Stdio::inherit()).stderr(Stdio::piped()).output()?;
        let running = std::fs::read_to_string(life.join(RUNNING)).unwrap_or_default();
        if output.status.success() {
            break;
        }
        ended += 1;
        let Ok(last) = running.trim().parse::<u64>() else {
            return Err(format!("the program did not begin: {}", String::from_utf8_lossy(&output.stderr)).into());
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let words: Vec<&str> =
            said.lines().filter(|line| line.contains("overflow") || line.contains("panic")).collect();
        let hostile = source.statement(last).map_or_else(String::new, |hostile| shown(&hostile));
        println!("FAILS: the program ended: {}: {}\n  for {hostile}", output.status, words.join("; "));
        std::fs::remove_dir_all(&life)?;
        next = last + 1;
    }
    Ok(Verdict::new(format!("embedded: statements {}, programs ended {ended}", to - from), ended == 0))
}

/// The work of such a process.
pub async fn inside(source: Source, begin: u64, to: u64, dir: PathBuf) -> Result<()> {
    let node = Node::start(Config::single(dir.join("data"))).await?;
    let sql = node.sql().with_deadline(DEADLINE);
    for statement in SCHEMA {
        sql.execute(*statement, ()).await?;
    }
    let mut running = std::fs::File::create(dir.join(RUNNING))?;
    let source = Arc::new(source);
    let queries = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        for number in begin..to {
            let Some(hostile) = source.statement(number) else { continue };
            if !matches!(hostile.door, Door::Local | Door::Linearizable) {
                continue;
            }
            running.set_len(0)?;
            std::io::Seek::rewind(&mut running)?;
            write!(running, "{number}")?;
            runtime.block_on(query(&sql, &hostile));
        }
        std::io::Result::Ok(())
    };
    let caller = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(queries)?;
    tokio::task::spawn_blocking(move || caller.join()).await?.map_err(|_| "the caller panicked")??;
    node.stop().await;
    Ok(())
}

/// Runs a query. Any error of the statement is fine; errors of the node are printed.
async fn query(sql: &Sql, hostile: &Hostile) {
    let values: Vec<Param> = parameters(hostile.parameters).into_iter().map(Param::Value).collect();
    if let Err(error @ (Error::Store(_) | Error::Unavailable(_) | Error::Closed)) =
        sql.at(Level::Local).query(hostile.sql.clone(), values).await
    {
        println!("doubtful: {error}\n  for {}", shown(hostile));
    }
}
