//! A client of keys in memory, which sends lines.
#![allow(dead_code, reason = "each test program uses some of it")]

use quorate_resp::differential::MemoryDoor;

/// The time of all clients.
pub const NOW: u64 = 1_700_000_000_000_000_000;

/// Lets a client send lines, and returns what it reads.
pub fn talk(door: &mut MemoryDoor, lines: &str) -> String {
    talk_at(door, lines, NOW)
}

/// Lets a client send lines at a time, and returns what it reads.
pub fn talk_at(door: &mut MemoryDoor, lines: &str, now: u64) -> String {
    let lines = lines.lines().map(|line| format!("{}\r\n", line.trim())).collect::<String>();
    String::from_utf8_lossy(&door.send(lines.as_bytes(), now)).replace("\r\n", " ").trim().to_owned()
}
