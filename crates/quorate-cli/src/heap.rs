//! Sets the C library's heap up for a server.
//!
//! By itself glibc reserves 64 MiB of addresses for each of up to eight heaps a core, and learns from the first large
//! blocks that are freed to keep even larger ones in there. A node then needs more than twice the addresses and half as
//! much memory again, and where both are limited an allocation fails although most of them are free. Figures:
//! `docs/limits.md`, "Reads, temporary files, memory".

#![allow(unsafe_code, reason = "no safe API sets these")]

/// Blocks from this size on are asked of the system one by one, and given back when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: i32 = 1 << 20;

/// Heaps for each core.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_PER_CORE: usize = 2;

/// To be called before there are other threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn set_up() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let heaps = i32::try_from(cores.saturating_mul(HEAPS_PER_CORE)).unwrap_or(i32::MAX);
    // SAFETY: both calls only set a number of the allocator, and no other thread runs. One that is refused changes
    // nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, heaps);
    }
}

/// Other C libraries are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn set_up() {}
