//! The user that a command logs in as.
//!
//! The credentials come from the first of these that applies: `--token-file`; `--user`; the profile; `QUORATE_TOKEN`;
//! `QUORATE_USER`. The password of a user comes from `QUORATE_PASSWORD`, or is asked for at the terminal. A secret that
//! is named on the command line is used instead of what the profile or the environment say.

use std::path::Path;

use quorate::users::Credentials;

use crate::error::{Context as _, Error, Result};
use crate::options::AccessArgs;
use crate::password;
use crate::profile::Profile;

const TOKEN: &str = "QUORATE_TOKEN";
const USER: &str = "QUORATE_USER";
const PASSWORD: &str = "QUORATE_PASSWORD";

/// The environment variables that only clients read.
pub const VARIABLES: [&str; 4] = [TOKEN, USER, PASSWORD, crate::profile::VARIABLE];

/// The most bytes of a file with a token.
const TOKEN_FILE_BYTES_MAX: u64 = 4 << 10;

/// Returns what to log in with; `None` to use the secret of the cluster.
pub fn find(args: &AccessArgs, profile: Option<&Profile>) -> Result<Option<Credentials>> {
    if let Some(file) = &args.login.token_file {
        return token(file).map(Some);
    }
    if let Some(name) = &args.login.user {
        return with_password(name).map(Some);
    }
    if args.secret_file.is_some() {
        return Ok(None);
    }
    if let Some(profile) = profile {
        return match (&profile.token_file, &profile.user) {
            (Some(file), _) => token(file).map(Some),
            (None, Some(name)) => with_password(name).map(Some),
            (None, None) => Ok(None),
        };
    }
    if let Some(token) = variable(TOKEN)? {
        return Ok(Some(Credentials::token(token.trim())));
    }
    variable(USER)?.map(|name| with_password(&name)).transpose()
}

fn token(file: &Path) -> Result<Credentials> {
    let said = || format!("the token in {}", file.display());
    let size = std::fs::metadata(file).context(said)?.len();
    if size > TOKEN_FILE_BYTES_MAX {
        return Err(Error::new(format!("{} has more than {TOKEN_FILE_BYTES_MAX} bytes", said())));
    }
    let text = std::fs::read_to_string(file).context(said)?;
    Ok(Credentials::token(text.trim()))
}

fn with_password(name: &str) -> Result<Credentials> {
    let password = match variable(PASSWORD)? {
        Some(password) => password,
        None => password::read(name, PASSWORD)?,
    };
    Ok(Credentials::password(name, password))
}

fn variable(name: &str) -> Result<Option<String>> {
    let text = |value: std::ffi::OsString| {
        value.into_string().map_err(|_| Error::new(format!("the variable {name} is not UTF-8 text")))
    };
    std::env::var_os(name).map(text).transpose()
}
