//! Where nodes are reached, and that this changes.

use super::Cluster;

/// The port of a node that has not moved.
const FIRST_PORT: u16 = 7_000;

impl Cluster {
    /// Where clients reach the nodes.
    pub fn addrs(&self) -> impl Iterator<Item = String> + use<> {
        let addrs: Vec<String> = self.names.iter().map(|name| self.addr(name)).collect();
        addrs.into_iter()
    }

    /// Where a node is reached, from its next life on.
    pub(super) fn addr(&self, name: &str) -> String {
        let moves = self.lives().moves.get(name).copied().unwrap_or_default();
        format!("{name}:{}", FIRST_PORT + moves)
    }

    /// An operator gives a node that is down another address, and its file says so. The files of the others say so when
    /// they start the next time.
    pub fn move_away(&self, name: &'static str) {
        *self.lives().moves.entry(name).or_default() += 1;
    }
}
