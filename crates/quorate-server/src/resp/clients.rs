//! The connections of a port, as CLIENT LIST shows them to one another.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;

const SECOND: u64 = 1_000_000_000;

/// The open connections, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The number of the last connection.
    last: u64,
    open: BTreeMap<u64, Known>,
}

/// What the others know of a connection.
#[derive(Debug)]
struct Known {
    address: String,
    /// When it began, in nanoseconds since 1970.
    since: u64,
}

/// A connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Client<'a> {
    clients: &'a Clients,
    number: u64,
}

impl Clients {
    /// Adds a connection.
    pub(super) fn add(&self, address: &str, now: u64) -> Client<'_> {
        let mut table = self.table();
        table.last = table.last.saturating_add(1);
        let number = table.last;
        table.open.insert(number, Known { address: address.to_owned(), since: now });
        Client { clients: self, number }
    }

    /// Returns the lines of all but one, as CLIENT LIST has them.
    pub(super) fn lines(&self, but: u64, now: u64) -> Vec<String> {
        let table = self.table();
        let others = table.open.iter().filter(|(number, _)| **number != but);
        let line = |(number, Known { address, since }): (&u64, &Known)| {
            format!("id={number} addr={address} age={}", now.saturating_sub(*since) / SECOND)
        };
        others.map(line).collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }
}

impl Client<'_> {
    /// Returns its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.clients.table().open.remove(&self.number);
    }
}
