//! A line on the terminal that shows how far something is.
//!
//! Invariant: it goes to the standard error, and only if that is a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate_env::lock;
use quorate_shell::format::size;

/// How often it is shown.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// The line.
pub struct Line {
    is_shown: bool,
}

impl Line {
    /// Begins the line.
    pub fn begin() -> Self {
        Self { is_shown: std::io::stderr().is_terminal() }
    }

    /// Returns what shows a report `P`, which has these bytes done and expected.
    pub fn teller<P: 'static>(&self, bytes: fn(P) -> (u64, u64)) -> Option<Arc<dyn Fn(P) + Send + Sync>> {
        let last = Mutex::new(None::<Instant>);
        let tell = move |report: P| {
            let mut last = lock(&last);
            if last.is_none_or(|last| last.elapsed() >= SHOW_EVERY) {
                *last = Some(Instant::now());
                let (done, expected) = bytes(report);
                eprint!("\r\x1b[K{} of about {}", size(done), size(expected));
                // An error loses only a progress message.
                let _ = std::io::stderr().flush();
            }
        };
        self.is_shown.then(|| Arc::new(tell) as Arc<dyn Fn(P) + Send + Sync>)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}
