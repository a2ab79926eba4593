//! A terminal with the prompt of `quorate sql` in it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{Dev, QUORATE, wait_until};

pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";
pub const UP: &str = "\x1b[A";

/// A user at a terminal, who types and waits for text on the screen.
pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    /// How many bytes of the screen were read.
    seen: usize,
    process: Child,
    /// What the prompt said at its beginning.
    pub greeting: String,
}

impl Terminal {
    /// Opens a prompt whose history is in `home`.
    pub fn open(dev: &Dev, home: &Path, options: &[&str]) -> Self {
        Self::open_with(dev, home, options, &[])
    }

    /// Does the same with some variables in the environment.
    pub fn open_with(dev: &Dev, home: &Path, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 50, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        let side = || slave.try_clone().unwrap();
        // The terminal controls the process, so that Ctrl-C is a signal to it.
        let process = Command::new("setsid")
            .args(["--ctty", QUORATE])
            .args(dev.sql_options(options))
            .env("HOME", home)
            .env("TERM", "xterm")
            .env("QUORATE_PAGER", "")
            .envs(variables.iter().copied())
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        drop(slave);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let mut terminal = Self { keyboard: watch(master, &screen), screen, seen: 0, process, greeting: String::new() };
        terminal.greeting = terminal.wait_for("quorate> ");
        terminal
    }

    /// Types a text.
    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Types a line and waits for the expected output, and then for the prompt.
    pub fn runs(&mut self, line: &str, expected: &str) -> String {
        self.types(&format!("{line}\r"));
        let seen = self.wait_for(expected);
        seen + &self.wait_for("> ")
    }

    /// Waits until the prompt knows the names of tables, this one among them. Tab and hints wait for them only for a
    /// moment.
    pub fn knows(&mut self, table: &str) {
        let hint = format!("hint: did you mean {table}?");
        wait_until("the names of tables", || {
            self.runs(&format!("SELECT * FROM {table}x;"), "error: no such table").contains(&hint)
        });
    }

    /// Waits until a text appears, and returns everything up to it. Text that was already read does not count.
    pub fn wait_for(&mut self, expected: &str) -> String {
        let mut found = None;
        wait_until(&format!("{expected:?} on the screen: {:?}", self.rest()), || {
            found = self.rest().find(expected).map(|at| at + expected.len());
            found.is_some()
        });
        let text = self.rest()[..found.unwrap()].to_owned();
        self.seen += text.len();
        text
    }

    /// Waits for the end of the shell.
    pub fn ends(mut self) -> ExitStatus {
        let mut ended = None;
        wait_until("the end of the shell", || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    fn rest(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()[self.seen..]).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on the screen:\n{}", String::from_utf8_lossy(&self.screen.lock().unwrap()));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Collects what appears on the screen, and returns the keyboard.
fn watch(master: OwnedFd, screen: &Arc<Mutex<Vec<u8>>>) -> File {
    let keyboard = File::from(master);
    let (mut source, screen) = (keyboard.try_clone().unwrap(), Arc::clone(screen));
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = source.read(&mut bytes) {
            screen.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    });
    keyboard
}
