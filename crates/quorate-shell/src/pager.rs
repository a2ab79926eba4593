//! The pager of the prompt: a result with more lines than the terminal goes to a program that shows it in pages.
//!
//! Invariants:
//! - A page holds only what was written since it was last drained, so results of any size stream into the pager.
//! - The end of the pager is no error, whatever its reason: the user has seen enough.

use std::fmt;
use std::ops::ControlFlow;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin};

use crate::program;

/// The variables that name the pager.
const VARIABLES: [&str; 2] = ["QUORATE_PAGER", "PAGER"];

/// The pager without them.
const DEFAULT: &str = "less";

/// The options of `less` if the user has set none: it ends by itself if all fits on the screen, and leaves the text
/// there.
const LESS: (&str, &str) = ("LESS", "FRX");

/// The setting: which pager there is, and whether it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pager {
    command: String,
    is_on: bool,
}

impl Pager {
    /// The pager that the environment names.
    pub fn from_env() -> Self {
        Self::of(program::named_by(&VARIABLES).as_deref().unwrap_or(DEFAULT))
    }

    /// The pager with this command line. `cat` and an empty one mean that there shall be none.
    fn of(command: &str) -> Self {
        match command.trim() {
            "" | "cat" => Self { command: DEFAULT.to_owned(), is_on: false },
            command => Self { command: command.to_owned(), is_on: true },
        }
    }

    /// Changes the setting: `on`, `off`, or a command line.
    pub fn set(&mut self, to: &str) {
        match to {
            "on" | "off" => self.is_on = to == "on",
            command => *self = Self::of(command),
        }
    }

    /// Whether it is used.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    fn start(&self) -> Result<Running, String> {
        let mut command = program::of(&self.command)?;
        if std::env::var_os(LESS.0).is_none() {
            command.env(LESS.0, LESS.1);
        }
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let input = child.stdin.take();
        Ok(Running { child, input })
    }
}

impl fmt::Display for Pager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on { &self.command } else { "off" })
    }
}

/// A result on its way to the terminal.
#[derive(Debug)]
pub struct Page {
    /// The lines of the terminal.
    lines: usize,
    /// What was written and went nowhere yet.
    held: String,
    pager: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// `None` once it reads no more.
    input: Option<ChildStdin>,
}

/// A pager that could not be started.
#[derive(Debug)]
pub struct NotStarted {
    pub why: String,
    /// The text that it should have shown.
    pub text: String,
}

impl Page {
    /// A page for a terminal with so many lines.
    pub fn new(lines: usize) -> Self {
        Self { lines, held: String::new(), pager: None }
    }

    /// Adds a text.
    pub fn put(&mut self, text: &str) {
        self.held.push_str(text);
    }

    /// Gives the pager what is held, and starts it before if that is too long for the terminal. `Break` means that no
    /// one reads the rest. It may be dropped while it waits for the user to read; then the text is lost.
    pub async fn drain(&mut self, pager: &Pager) -> Result<ControlFlow<()>, NotStarted> {
        // The prompt takes the last line.
        if self.pager.is_none() && self.held.lines().count() >= self.lines {
            let started = pager.start();
            self.pager = Some(started.map_err(|why| NotStarted { why, text: std::mem::take(&mut self.held) })?);
        }
        let Some(running) = &mut self.pager else { return Ok(ControlFlow::Continue(())) };
        let text = std::mem::take(&mut self.held);
        let Some(input) = &mut running.input else { return Ok(ControlFlow::Break(())) };
        if input.write_all(text.as_bytes()).await.is_err() {
            running.input = None;
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Waits until the user leaves the pager. If there is none, this is the text.
    pub async fn end(self) -> Option<String> {
        let Some(Running { mut child, input }) = self.pager else { return Some(self.held) };
        drop(input);
        // A pager that can't be waited for has ended.
        let _ = child.wait().await;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_on_off_or_a_command() {
        let mut pager = Pager::of("most -s");
        let after = |to| {
            pager.set(to);
            pager.to_string()
        };
        assert_eq!(
            ["off", "on", "cat", "on", " less -S", ""].map(after),
            ["off", "most -s", "off", "less", "less -S", "off"]
        );
    }
}
