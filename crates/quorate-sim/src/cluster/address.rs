//! The addresses of nodes, which may change.

use super::Cluster;

/// The port of a node whose address has not changed.
const FIRST_PORT: u16 = 7_000;

impl Cluster {
    /// Returns the addresses at which clients reach the nodes.
    pub fn addrs(&self) -> impl Iterator<Item = String> + use<> {
        let addrs: Vec<String> = self.names.iter().map(|name| self.addr(name)).collect();
        addrs.into_iter()
    }

    /// Returns the address of a node, from its next life on.
    pub fn addr(&self, name: &str) -> String {
        let moves = self.lives().moves.get(name).copied().unwrap_or_default();
        format!("{name}:{}", FIRST_PORT + moves)
    }

    /// Gives a node that is down another address, as an operator does in its configuration. The configuration of each
    /// other node has the new address from its next start on.
    pub fn move_away(&self, name: &'static str) {
        *self.lives().moves.entry(name).or_default() += 1;
    }
}
