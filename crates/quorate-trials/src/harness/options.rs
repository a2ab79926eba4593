//! The options of every trial that runs the nodes as processes.

use std::path::PathBuf;

use clap::Args;
use tempfile::TempDir;

use super::Result;

/// Where the binary is, and where the files go.
#[derive(Args, Debug)]
pub struct Options {
    /// Create the directory with all files below this one [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The binary to run [default: `quorate` next to this program]
    #[arg(long, value_name = "FILE")]
    pub quorate: Option<PathBuf>,
}

impl Options {
    /// Returns the path of the binary. Fails if the option is not given and no binary is next to this program.
    pub fn program(&self) -> Result<PathBuf> {
        let program = match &self.quorate {
            Some(program) => return Ok(program.clone()),
            None => std::env::current_exe()?.with_file_name("quorate"),
        };
        if program.is_file() {
            return Ok(program);
        }
        let release = if cfg!(debug_assertions) { "" } else { "--release " };
        let missing = program.display();
        Err(format!(
            "there is no {missing}: build it with `cargo build {release}-p quorate-cli`, or name the binary \
                     with --quorate"
        )
        .into())
    }

    /// Creates a directory, which is removed when the value is dropped.
    pub fn scratch(&self) -> Result<TempDir> {
        Ok(match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir)?,
            None => tempfile::tempdir()?,
        })
    }
}
