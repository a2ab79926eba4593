//! The program that measures hiqlite: a package with its own lock file, which is built when it is needed.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use quorate_bench_harness::Result;

/// The package, in the checkout that this program was built from.
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hiqlite/Cargo.toml");

/// Builds the program into the same target directory as this one, and returns its path.
pub fn build_hiqlite() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let profile_dir = program.parent().ok_or("the path of this program has no directory")?;
    let target_dir = profile_dir.parent().ok_or("this program is not in a target directory")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--locked", "--manifest-path", MANIFEST, "--target-dir"]);
    // Standard output is for figures, and Cargo writes its messages to standard error.
    if !cargo.arg(target_dir).stdout(Stdio::null()).status()?.success() {
        return Err(format!("{MANIFEST} can't be built").into());
    }
    Ok(target_dir.join("release/quorate-bench-hiqlite"))
}

/// Replaces this process by that program, with the same arguments. Returns only if that fails.
pub fn become_hiqlite() -> Result<()> {
    Err(Command::new(build_hiqlite()?).args(std::env::args_os().skip(1)).exec().into())
}
