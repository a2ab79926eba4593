//! Information about the machine and this process.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The file with Linux's figures about this process.
const STATUS: &str = "/proc/self/status";

/// The file with the memory limit of a container on Linux.
const CONTAINER_MAX: &str = "/sys/fs/cgroup/memory.max";

/// The host name of the machine, up to the first dot.
pub fn host_name() -> io::Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match name.split('.').next() {
        Some(first) if !first.is_empty() => Ok(first.to_owned()),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "this machine has no host name")),
    }
}

/// The processor time that this thread has used.
pub fn thread_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanos)
}

/// The resident memory of this process in bytes; known only on Linux.
pub(crate) fn resident_bytes() -> Option<u64> {
    status("VmRSS:")
}

/// The bytes of memory that this process may still allocate under its limit on address space and its container's limit,
/// or `None` if there is neither limit.
pub fn memory_room() -> Option<u64> {
    let address_space = getrlimit(Resource::As).current.map(|max| max.saturating_sub(status("VmSize:").unwrap_or(0)));
    let container = read(CONTAINER_MAX).and_then(|max| max.trim().parse::<u64>().ok());
    let container = container.map(|max| max.saturating_sub(resident_bytes().unwrap_or(0)));
    address_space.into_iter().chain(container).min()
}

/// A figure about this process, in bytes.
fn status(name: &str) -> Option<u64> {
    let text = read(STATUS)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[expect(clippy::disallowed_methods, reason = "the one place that asks what this process has of its machine")]
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_time_and_process_memory_are_measured() {
        let before = thread_time();
        let mut sum = 0_u64;
        while thread_time() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        if cfg!(target_os = "linux") {
            assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
            assert!(status("VmSize:") >= resident_bytes());
        }
    }
}
