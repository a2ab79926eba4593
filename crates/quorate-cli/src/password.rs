//! Passwords of users, from the terminal without showing them, or from standard input.
//!
//! Invariant: the terminal shows what is typed again when this returns.

use std::io::{BufRead as _, IsTerminal as _, Read as _, stdin};

use quorate::users::PASSWORD_BYTES_MAX;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::error::{Error, Result};

/// The most bytes of a line: a password, and the end of the line.
const LINE_BYTES_MAX: u64 = PASSWORD_BYTES_MAX as u64 + 2;

/// Returns a new password for a user. At a terminal it has to be typed twice.
pub fn read_new(name: &str) -> Result<String> {
    if !stdin().is_terminal() {
        return line();
    }
    let password = typed(&format!("new password of '{name}': "))?;
    if typed("the same again: ")? != password {
        return Err(Error::new("the two passwords differ; nothing was changed: run the command again"));
    }
    Ok(password)
}

/// Returns the password of a user who logs in. Without a terminal it must be in the variable.
pub fn read(name: &str, variable: &str) -> Result<String> {
    if !stdin().is_terminal() {
        return Err(Error::new(format!("there is no terminal to ask for the password of '{name}' at: set {variable}")));
    }
    typed(&format!("password of '{name}': "))
}

/// Restores the terminal when it is dropped.
struct Hidden(Termios);

impl Drop for Hidden {
    fn drop(&mut self) {
        // A terminal that is gone needs no repair.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
        eprintln!();
    }
}

fn typed(prompt: &str) -> Result<String> {
    let shown = tcgetattr(stdin()).map_err(Error::of)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    eprint!("{prompt}");
    let _hidden = Hidden(shown);
    tcsetattr(stdin(), OptionalActions::Flush, &hidden).map_err(Error::of)?;
    line()
}

/// Returns the first line of standard input.
fn line() -> Result<String> {
    let mut line = String::new();
    stdin().lock().take(LINE_BYTES_MAX).read_line(&mut line).map_err(Error::of)?;
    let password = line.strip_suffix('\n').unwrap_or(&line);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(Error::new("no password was given: type it, or pass it as the first line of standard input"));
    }
    Ok(password.to_owned())
}
