//! The connections of a port, as CLIENT LIST shows them to one another.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;
use quorate_resp::Summary;

/// The open connections, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The number of the last connection.
    last: u64,
    open: BTreeMap<u64, Summary>,
}

/// A connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Client<'a> {
    clients: &'a Clients,
    number: u64,
}

impl Clients {
    /// Adds a connection.
    pub(super) fn add(&self) -> Client<'_> {
        let mut table = self.table();
        table.last = table.last.saturating_add(1);
        Client { clients: self, number: table.last }
    }

    /// Returns what is shown of all but one.
    pub(super) fn others(&self, but: u64) -> Vec<Summary> {
        let table = self.table();
        table.open.iter().filter(|(number, _)| **number != but).map(|(_, summary)| summary.clone()).collect()
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

    /// Takes what the others are to be shown of it from now on.
    pub(super) fn note(&self, summary: Summary) {
        self.clients.table().open.insert(self.number, summary);
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.clients.table().open.remove(&self.number);
    }
}
