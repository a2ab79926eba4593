//! The report of a panic.
//!
//! If the address space of the process is limited, the report has no backtrace, whatever `RUST_BACKTRACE` says. The
//! standard library collects a backtrace under a lock, and reports a failed allocation under the same lock. If an
//! allocation fails while a thread collects a backtrace, that thread waits for itself for ever, and so does each thread
//! that panics later.

use std::io::Write as _;
use std::panic::{PanicHookInfo, set_hook};

use rustix::process::{Resource, getrlimit};

/// Installs the report. Must be called before other threads start.
pub fn set_up() {
    if getrlimit(Resource::As).current.is_some() {
        set_hook(Box::new(print));
    }
}

fn print(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    // If standard error is closed, there is nowhere to report to.
    let _ = writeln!(std::io::stderr(), "the thread '{name}' {panic}");
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    /// Set in the process that panics.
    const CHILD: &str = "QUORATE_TEST_PANICS";

    #[test]
    fn limited_address_space_disables_backtraces() {
        if std::env::var_os(CHILD).is_some() {
            super::set_up();
            panic!("on purpose");
        }
        let report = |limit: &str| {
            let test = "panics::tests::limited_address_space_disables_backtraces";
            let mut child = Command::new("sh");
            child.arg("-c").arg(format!("ulimit -v {limit}; exec \"$0\" --exact {test} --nocapture"));
            child.arg(std::env::current_exe().unwrap()).env(CHILD, "1").env("RUST_BACKTRACE", "1");
            String::from_utf8(child.output().unwrap().stderr).unwrap()
        };
        let (limited, free) = (report("16000000"), report("unlimited"));
        assert!(limited.contains("on purpose") && !limited.contains("stack backtrace"), "{limited}");
        assert!(free.contains("on purpose") && free.contains("stack backtrace"), "{free}");
    }
}
