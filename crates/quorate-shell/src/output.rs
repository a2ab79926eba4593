//! Where results go: the standard output, a pager, or a file.
//!
//! Invariant: a terminal gets no active character but line breaks and tabs; files and pipes get the text unchanged.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write, stdout};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::error::{Context as _, Result};
use crate::format::{terminal_size, visible};
use crate::pager::{NotStarted, Page, Pager};

/// The standard output of a command. When its reader has closed it, the reader has seen enough: the process ends with
/// exit code 0 and without a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        end_if_closed(stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        end_if_closed(stdout().flush())
    }
}

fn end_if_closed<T>(outcome: io::Result<T>) -> io::Result<T> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        outcome => outcome,
    }
}

/// Prints a text on the standard output.
pub fn print(text: &str) -> Result<()> {
    Stdout.write_all(text.as_bytes()).and_then(|()| Stdout.flush()).context(|| "cannot write to standard output")
}

/// Where the results of a shell go.
#[derive(Debug, Default)]
pub struct Output {
    file: Option<(PathBuf, BufWriter<File>)>,
    /// The file before the one of `.once`, which gets the results after the next.
    after_once: Option<Option<(PathBuf, BufWriter<File>)>>,
    /// The pager for results that are longer than the terminal.
    pub pager: Pager,
    /// The result that is being printed, if it may go to the pager.
    page: Option<Page>,
}

impl Output {
    /// Writes a text.
    pub fn write(&mut self, text: &str) -> Result<()> {
        match &mut self.file {
            Some((path, file)) => {
                file.write_all(text.as_bytes()).context(|| format!("cannot write {}", path.display()))
            }
            None => self.say(text),
        }
    }

    /// Writes a text about a result, which does not go to a file.
    pub fn say(&mut self, text: &str) -> Result<()> {
        match &mut self.page {
            _ if text.is_empty() => Ok(()),
            Some(page) => {
                page.put(&visible::lines(text));
                Ok(())
            }
            None if stdout().is_terminal() => print(&visible::lines(text)),
            None => print(text),
        }
    }

    /// Lets the pager show what follows, up to [`Output::end_page`], if it goes to a terminal and is longer than it.
    pub fn begin_page(&mut self) {
        let lines = terminal_size().map_or(0, |(lines, _)| lines);
        self.page = (lines > 0 && self.file.is_none() && self.pager.is_on()).then(|| Page::new(lines));
    }

    /// Gives the pager what was written, so that memory stays bounded. `Break` means that no one reads what follows.
    pub async fn drain(&mut self) -> Result<ControlFlow<()>> {
        let Some(page) = &mut self.page else { return Ok(ControlFlow::Continue(())) };
        match page.drain(&self.pager).await {
            Ok(flow) => Ok(flow),
            Err(NotStarted { why, text }) => {
                eprintln!("note: cannot start the pager {}: {why}; .pager COMMAND sets another", self.pager);
                self.pager.set("off");
                self.page = None;
                print(&text).map(ControlFlow::Continue)
            }
        }
    }

    /// Prints what was written, or waits until the user leaves the pager; `true` if there was one.
    pub async fn end_page(&mut self) -> Result<bool> {
        // Whether anyone has read it all does not matter.
        let _ = self.drain().await?;
        let Some(page) = self.page.take() else { return Ok(false) };
        match page.end().await {
            Some(text) => print(&text).map(|()| false),
            None => Ok(true),
        }
    }

    /// Sends everything that follows to another file, or, with `None`, to the standard output again.
    pub fn send_to(&mut self, file: Option<&Path>) -> Result<()> {
        self.end_once()?;
        self.close()?;
        self.file = file.map(create).transpose()?;
        Ok(())
    }

    /// Sends the next result to a file.
    pub fn send_once_to(&mut self, file: &Path) -> Result<()> {
        self.end_once()?;
        let created = create(file)?;
        self.after_once = Some(self.file.replace(created));
        Ok(())
    }

    /// Goes back to where results went before [`Output::send_once_to`].
    pub fn end_once(&mut self) -> Result<()> {
        let Some(before) = self.after_once.take() else { return Ok(()) };
        let closed = self.close();
        self.file = before;
        closed
    }

    /// Closes the file, if there is one. Fails if not all of it could be written.
    pub fn close(&mut self) -> Result<()> {
        let Some((path, mut file)) = self.file.take() else { return Ok(()) };
        file.flush().context(|| format!("cannot write {}", path.display()))
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// The width that tables must fit into, if they go to a terminal.
    pub fn width(&self) -> Option<usize> {
        if self.file.is_some() { None } else { terminal_size().map(|(_, width)| width) }
    }
}

fn create(path: &Path) -> Result<(PathBuf, BufWriter<File>)> {
    let file = File::create(path).context(|| format!("cannot write {}", path.display()))?;
    Ok((path.to_owned(), BufWriter::new(file)))
}
