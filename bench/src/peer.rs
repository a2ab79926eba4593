//! The program that measures hiqlite: a package with a lock file of its own, built when it is asked for.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use quorate_bench_harness::Result;

/// The package, in the checkout that this program was built from.
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hiqlite/Cargo.toml");

/// Builds it, into the same target directory as this program, and says where it is.
pub fn build_hiqlite() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let profile_dir = program.parent().ok_or("this program is in no directory")?;
    let target_dir = profile_dir.parent().ok_or("this program is in no target directory")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--locked", "--manifest-path", MANIFEST, "--target-dir"]);
    // Cargo writes to standard error; standard output is for figures.
    if !cargo.arg(target_dir).stdout(Stdio::null()).status()?.success() {
        return Err(format!("{MANIFEST} can't be built").into());
    }
    Ok(target_dir.join("release/quorate-bench-hiqlite"))
}

/// Goes on as that program, with the arguments of this one. Returns only if that fails.
pub fn become_hiqlite() -> Result<()> {
    Err(Command::new(build_hiqlite()?).args(std::env::args_os().skip(1)).exec().into())
}
