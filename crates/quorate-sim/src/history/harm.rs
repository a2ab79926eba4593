//! Nodes whose data were changed or damaged without their knowledge, until they hold the same data as the others.

use super::{History, node_of};

impl History {
    /// Records that a node's data were changed.
    pub fn tampered(&self, name: &'static str) {
        self.0.trace.add(name, format_args!("has changed data"));
        let mut known = self.known();
        known.tampered.insert(name);
        known.tamperings += 1;
    }

    /// Records that a node holds the same data as the others, or none.
    pub fn is_good_again(&self, name: &str) {
        let mut known = self.known();
        let (tampered, spoiled) = (known.tampered.remove(name), known.spoiled.remove(name));
        if tampered || spoiled {
            self.0.trace.add(name, format_args!("holds good data again"));
        }
    }

    /// Whether the data of a node, given by its name or by one of its lives, are changed or damaged.
    pub fn is_tampered(&self, who: &str) -> bool {
        let (known, name) = (self.known(), node_of(who));
        known.tampered.contains(name) || known.spoiled.contains(name)
    }

    /// Records that a page of a node's database is bad.
    pub fn spoiled(&self, name: &'static str) {
        self.0.trace.add(name, format_args!("has a bad page"));
        let mut known = self.known();
        known.spoiled.insert(name);
        known.spoilings += 1;
    }

    /// Whether a page of the database of a node, given by its name or by one of its lives, is bad.
    pub fn is_spoiled(&self, who: &str) -> bool {
        self.known().spoiled.contains(node_of(who))
    }

    /// Whether any node has had a bad page, so that it may have been unable to apply some entry.
    pub fn was_any_spoiled(&self) -> bool {
        self.known().spoilings > 0
    }

    /// Returns how often the data of nodes were changed.
    pub fn tamperings(&self) -> u64 {
        self.known().tamperings
    }

    /// Returns how many of these nodes got the right data while they ran.
    pub fn healed(&self) -> u64 {
        self.known().healed
    }
}
