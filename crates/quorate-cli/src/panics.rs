//! What a panic prints.
//!
//! Where the addresses of the process are limited it prints no backtrace, whatever `RUST_BACKTRACE` says. The standard
//! library gathers one under a lock. An allocation that fails meanwhile is reported under the same lock: that thread
//! would wait for itself, and each that panics afterwards for it.

use std::io::Write as _;
use std::panic::{PanicHookInfo, set_hook};

use rustix::process::{Resource, getrlimit};

/// To be called before there are other threads.
pub fn set_up() {
    if getrlimit(Resource::As).current.is_some() {
        set_hook(Box::new(print));
    }
}

fn print(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    // Where nobody reads the standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "the thread '{name}' {panic}");
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    /// Set in the process that panics.
    const CHILD: &str = "QUORATE_TEST_PANICS";

    #[test]
    fn a_process_whose_addresses_are_limited_prints_no_backtrace() {
        if std::env::var_os(CHILD).is_some() {
            super::set_up();
            panic!("on purpose");
        }
        let report = |limit: &str| {
            let test = "panics::tests::a_process_whose_addresses_are_limited_prints_no_backtrace";
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
