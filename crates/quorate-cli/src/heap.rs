//! Configures the C library's heap for a server.
//!
//! By default glibc reserves 64 MiB of address space for each of up to eight heaps per core. When the first large
//! blocks are freed, it also raises the size below which blocks are kept in these heaps. A node then needs more than
//! twice the address space and half as much memory again. Where both are limited, an allocation fails although most of
//! the space is free. Figures: `docs/limits.md`, "Reads, temporary files, memory".

#![allow(unsafe_code, reason = "no safe API sets these")]

/// Blocks of at least this size are requested from the system one by one, and returned when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: i32 = 1 << 20;

/// The number of heaps per core.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_PER_CORE: usize = 2;

/// Sets the limits. Must be called before other threads start.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn set_up() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let heaps = i32::try_from(cores.saturating_mul(HEAPS_PER_CORE)).unwrap_or(i32::MAX);
    // SAFETY: both calls only set a parameter of the allocator, and no other thread runs. A call that is refused
    // changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, heaps);
    }
}

/// Does nothing: other C libraries keep their settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn set_up() {}
