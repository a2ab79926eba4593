//! Registers: each is a row that is read, written, and written if it holds a certain value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorate_history::register::{Access, Action};

use super::{Client, Result, Window, int};

pub const TABLES: &[&str] = &["CREATE TABLE registers (key INTEGER PRIMARY KEY, value INTEGER NOT NULL)"];

/// How many registers are in use at a time.
const WIDTH: u64 = 4;
/// How many operations are done on these registers before the next registers are used.
const USES_MAX: u64 = 600;

#[derive(Clone, Default)]
pub struct Registers {
    window: Window,
    /// The last value that was written. Each value is new, so that a read identifies the write.
    value: Arc<AtomicU64>,
}

impl Registers {
    pub async fn step(&self, client: &Client) {
        let key = self.window.first(1, USES_MAX, WIDTH) + client.rng.below(WIDTH);
        let new = self.value.fetch_add(1, Ordering::Relaxed);
        let (writer, reader) = (client.write(), client.read());
        let op = match client.rng.below(4) {
            0 => {
                let write = "INSERT INTO registers VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2";
                let ended = client.run("register write", true, writer.execute(write, (int(key), int(new)))).await;
                ended.with(Access { key, action: Action::Write(new) })
            }
            1 => {
                // The register probably holds one of the last values.
                let old = new.saturating_sub(1 + client.rng.below(4 * WIDTH));
                let swap = "UPDATE registers SET value = ?3 WHERE key = ?1 AND value = ?2";
                let ended =
                    client.run("register swap", true, writer.execute(swap, (int(key), int(old), int(new)))).await;
                let swapped = ended.answer.is_some_and(|done| done.changes > 0);
                ended.with(Access { key, action: Action::Swap { old, new, swapped } })
            }
            _ => {
                let read = "SELECT value FROM registers WHERE key = ?";
                let ended = client.run("register read", false, reader.query_optional::<u64>(read, (int(key),))).await;
                ended.with(Access { key, action: Action::Read(ended.answer.flatten()) })
            }
        };
        client.ledger.record().registers.push(op);
    }

    pub async fn finish(&self, client: &Client) -> Result<()> {
        for first in (0..=self.window.first(0, USES_MAX, WIDTH)).step_by(usize::try_from(WIDTH)?) {
            let read = "SELECT key, value FROM registers WHERE key >= ? AND key < ?";
            let reader = client.patient();
            let read = reader.query_as::<(u64, u64)>(read, (int(first), int(first + WIDTH)));
            let ended = client.run("register read", false, read).await;
            let held = ended.answer.as_ref().ok_or("the registers can't be read at the end")?;
            for key in first..first + WIDTH {
                let found = held.iter().find(|(of, _)| *of == key).map(|(_, value)| *value);
                client.ledger.record().registers.push(ended.with(Access { key, action: Action::Read(found) }));
            }
        }
        Ok(())
    }
}
