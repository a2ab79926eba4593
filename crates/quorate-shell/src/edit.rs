//! `\e` and `.edit`: a text is edited with a program of the user's.
//!
//! Invariant: only the user can read the text while it is in a file, and the file is gone afterwards, with whatever the
//! editor has put next to it.

use std::fs::{DirBuilder, File, read_to_string};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{Context as _, Error, Result};
use crate::program;

/// The variables that name the editor.
const VARIABLES: [&str; 3] = ["QUORATE_EDITOR", "VISUAL", "EDITOR"];

/// The editor without them.
const DEFAULT: &str = "vi";

/// How many names of directories are tried.
const NAMES_MAX: u32 = 1000;

/// Opens the editor on a text, and returns what was saved.
///
/// # Errors
///
/// The editor failed, or saved nothing new. The message says that nothing runs.
pub async fn edit(text: &str) -> Result<String> {
    let command = program::named_by(&VARIABLES).filter(|command| !command.trim().is_empty());
    let command = command.unwrap_or_else(|| DEFAULT.to_owned());
    let edited = edit_with(&command, text).await;
    edited.map_err(|error| error.within(format!("the editor {command}")).followed_by("nothing was run"))
}

async fn edit_with(command: &str, text: &str) -> Result<String> {
    let text = text.trim();
    let directory = Directory::create()?;
    let file = directory.0.join("statement.sql");
    write(&file, text).context(|| "cannot write its file")?;
    let mut program = program::of(command).map_err(Error::new)?;
    let status = program.arg(&file).status().await.context(|| "cannot be started")?;
    if !status.success() {
        return Err(Error::new(format!("it failed with {status}")));
    }
    let saved = read_to_string(&file).context(|| "cannot read its file")?;
    match saved.trim() {
        "" => Err(Error::new("it saved an empty text")),
        saved if saved == text => Err(Error::new("it left the text unchanged")),
        saved => Ok(saved.to_owned()),
    }
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(file)?;
    writeln!(file, "{text}")
}

/// A directory of the user's that is removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Result<Self> {
        let temporary = std::env::temp_dir();
        let names = (0..NAMES_MAX).map(|number| temporary.join(format!("quorate-{}-{number}", std::process::id())));
        for path in names {
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).context(|| format!("cannot create {}", path.display())),
            }
        }
        Err(Error::new(format!("there are too many directories in {}", temporary.display())))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What can't be removed can't be helped.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
