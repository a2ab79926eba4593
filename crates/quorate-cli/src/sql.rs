//! `quorate sql`: runs scripts. Without a script it opens a prompt, if standard input and output are a terminal. The
//! shell is `quorate-shell`.

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use futures_util::FutureExt as _;
use quorate::limits::BUDGET_MAX;
use quorate::users::Credentials;
use quorate_shell::format::Mode;
use quorate_shell::{Connection, Options, Script, Shell};

use crate::access::Access;
use crate::client;
use crate::error::{Error, Result};
use crate::options::{AccessArgs, Level, seconds};
use crate::status;

/// What `quorate sql --help` ends with.
const SQL_EXAMPLES: &str = "\
Examples:
  quorate sql                                             a prompt; .help lists its commands
  quorate sql 'SELECT count(*) FROM users'                one statement, or several separated by semicolons
  quorate sql < schema.sql                                a script; it stops at the first error
  quorate sql -f schema.sql -f data.sql --keep-going      scripts; errors do not stop them
  quorate sql --format csv 'SELECT * FROM users' > u.csv  results of any size
  quorate sql .dump > backup.sql                          the whole database as SQL, at one position
  quorate sql --node 10.0.0.2:7001 --level local .status  what one node reports
  quorate sql --timeout 2 'SELECT count(*) FROM users'    fail rather than wait longer
  quorate sql --budget 1000000000 'CREATE INDEX i ON t (a)'  a long write; other writes wait for it

Exit code: 0 done; 1 a statement failed; 2 wrong arguments; 3 the cluster can't be reached, refuses this client or did
not answer in time (the message says if a write may have been done).";

/// Options of `quorate sql`.
#[derive(Args, Debug)]
#[command(after_help = SQL_EXAMPLES)]
pub struct SqlArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The format of results: table, line, csv, tsv, json, ndjson, markdown, list, quote, or insert=TABLE
    #[arg(long, visible_alias = "mode", value_name = "MODE", default_value = "table", value_parser = Mode::parse)]
    pub format: Mode,
    /// The guarantee of reads
    #[arg(long, value_enum, default_value_t = Level::Linearizable)]
    pub level: Level,
    /// How long each statement may take [default: 60]; a query never runs longer than the node's sql.query_timeout
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// How many steps of SQLite a write may take; an index on a large table, for example, needs more [default:
    /// 25,000,000]
    #[arg(long, value_name = "STEPS", value_parser = value_parser!(u64).range(1..=BUDGET_MAX))]
    pub budget: Option<u64>,
    /// Run a script; `-` is standard input; can be given several times
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "query")]
    pub files: Vec<PathBuf>,
    /// Continue after a statement that fails; the exit code is then 1
    #[arg(long)]
    pub keep_going: bool,
    /// Statements, separated by semicolons, or a command that starts with a dot
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
}

/// Runs the command.
pub async fn run(args: &SqlArgs) -> Result<()> {
    let scripts = scripts(args)?;
    let access = Access::find(&args.access).map_err(Error::of_connection)?;
    let client = Connection::connect(access.remote(), args.timeout).await?.with_budget(args.budget);
    let greeting = if scripts.is_none() { greeting(&access).await } else { String::new() };
    let options = Options { mode: args.format.clone(), level: args.level.into(), keep_going: args.keep_going };
    let status = Box::new(move || {
        let access = access.clone();
        async move { Ok::<_, quorate_shell::Error>(status::text(&access).await?) }.boxed_local()
    });
    let mut shell = Shell::new(client.clone(), options).with_status(status).with_greeting(greeting);
    let outcome = match scripts {
        Some(scripts) => shell.run_scripts(scripts).await,
        None => shell.prompt().await,
    };
    client.close().await;
    Ok(outcome?)
}

/// Says what the prompt is connected to.
async fn greeting(access: &Access) -> String {
    let by = match &access.login {
        Some(Credentials::Password { name, .. }) => format!("as '{name}'"),
        Some(_) => "by a token".to_owned(),
        None => "by the cluster's secret".to_owned(),
    };
    let tls = if access.tls.is_some() { ", over TLS" } else { "" };
    let cluster = match client::status(access.remote()).await {
        Err(_) => "a cluster that has just not answered".to_owned(),
        Ok(status) => {
            let members = status.members.len();
            let nodes = if members == 1 { "1 node".to_owned() } else { format!("{members} nodes") };
            let leader = status.leader().map(|leader| format!(", led by '{}' at {}", leader.name, leader.addr));
            format!("{nodes}{}", leader.unwrap_or_else(|| ", without a leader".to_owned()))
        }
    };
    format!("Quorate {}, connected {by} to {cluster}{tls}", env!("CARGO_PKG_VERSION"))
}

/// Opens the scripts to run, all before the first is run; `None` means a prompt.
fn scripts(args: &SqlArgs) -> Result<Option<Vec<Script>>> {
    if let Some(query) = &args.query {
        return Ok(Some(vec![Script::text(query)]));
    }
    if !args.files.is_empty() {
        return Ok(Some(args.files.iter().map(|file| Script::open(file)).collect::<Result<_, _>>()?));
    }
    let is_prompt = stdin().is_terminal() && stdout().is_terminal();
    Ok((!is_prompt).then(|| vec![Script::stdin()]))
}
