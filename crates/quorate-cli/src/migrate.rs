//! `quorate migrate`: runs the pending migrations of a folder.

use std::path::{Path, PathBuf};

use clap::{Args, value_parser};
use quorate::limits::BUDGET_MAX;
use quorate::{
    Migrations,
    sql::{MigrateError, Migration},
};
use quorate_shell::Connection;
use quorate_shell::format::visible;

use crate::access::Access;
use crate::error::{Context as _, Error, Result};
use crate::options::AccessArgs;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  quorate migrate                       the pending files of ./migrations, in their order
  quorate migrate schema --dry-run      list what has run, and what would run

A migration is a file like 0001_users.sql: any number of statements, run once, all or none. A file that was run must not
be changed. Migrations that a newer program has run do not disturb an older one.";

/// Options of `quorate migrate`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MigrateArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// List the migrations that have run and those that would, and run none
    #[arg(long, visible_alias = "status")]
    pub dry_run: bool,
    /// How many steps of SQLite each migration may take; an index on a large table, for example, needs more [default:
    /// 25,000,000]
    #[arg(long, value_name = "STEPS", value_parser = value_parser!(u64).range(1..=BUDGET_MAX))]
    pub budget: Option<u64>,
    /// The folder of the migrations
    #[arg(value_name = "FOLDER", default_value = "migrations")]
    pub folder: PathBuf,
}

/// Runs the command.
pub async fn run(args: &MigrateArgs) -> Result<()> {
    let migrations = read(&args.folder)?;
    let client = Connection::connect(Access::find(&args.access)?.remote(), None).await?.with_budget(args.budget);
    let report = if args.dry_run {
        client.sql().migration_status(&migrations).await.map(|status| status.to_string())
    } else {
        client.sql().migrate(&migrations).await.map(|run| list(&run))
    };
    client.close().await;
    output::print(&format!("{}\n", visible::lines(&report.map_err(failure)?)))
}

fn list(run: &[Migration]) -> String {
    let lines: Vec<String> = run.iter().map(|migration| format!("{}  run", migration.file())).collect();
    if lines.is_empty() { "nothing to run".to_owned() } else { lines.join("\n") }
}

fn failure(error: MigrateError) -> Error {
    match error {
        MigrateError::Failed { file, error } => Error::from(error).within(file),
        MigrateError::Database(error) => error.into(),
        error => Error::caused(visible::lines(&error.to_string()), error),
    }
}

/// Reads the files of a folder whose names end in `.sql`.
fn read(folder: &Path) -> Result<Migrations> {
    let of_folder = || folder.display().to_string();
    let mut migrations = Vec::new();
    for entry in std::fs::read_dir(folder).context(of_folder)? {
        let path = entry.context(of_folder)?.path();
        if path.extension().is_none_or(|extension| extension != "sql") {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).context(|| path.display().to_string())?;
        migrations.push(Migration::new(name, text).context(of_folder)?);
    }
    if migrations.is_empty() {
        return Err(Error::new("there are no migrations: add files like 0001_users.sql, or name another folder")
            .within(of_folder()));
    }
    Migrations::new(migrations).context(of_folder)
}
