//! Nodes whose data were changed or damaged behind their backs, until they hold what the others hold.

use super::{History, node_of};

impl History {
    /// Somebody has changed a node's data.
    pub fn tampered(&self, name: &'static str) {
        self.0.trace.add(name, format_args!("is tampered with"));
        let mut known = self.known();
        known.tampered.insert(name);
        known.tamperings += 1;
    }

    /// A node holds what the others hold, or nothing.
    pub fn is_good_again(&self, name: &str) {
        let mut known = self.known();
        let (tampered, spoiled) = (known.tampered.remove(name), known.spoiled.remove(name));
        if tampered || spoiled {
            self.0.trace.add(name, format_args!("is good again"));
        }
    }

    /// Whether a node, given by its name or as one of its lives, holds what somebody has changed.
    pub fn is_tampered(&self, who: &str) -> bool {
        let (known, name) = (self.known(), node_of(who));
        known.tampered.contains(name) || known.spoiled.contains(name)
    }

    /// A page of a node's database is bad.
    pub fn spoiled(&self, name: &'static str) {
        self.0.trace.add(name, format_args!("has a bad page"));
        let mut known = self.known();
        known.spoiled.insert(name);
        known.spoilings += 1;
    }

    /// Whether a page of the database of a node, given by its name or as one of its lives, is bad.
    pub fn is_spoiled(&self, who: &str) -> bool {
        self.known().spoiled.contains(node_of(who))
    }

    /// Whether any node has had a bad page, so that it may not have been able to apply some entry.
    pub fn was_any_spoiled(&self) -> bool {
        self.known().spoilings > 0
    }

    /// How often somebody has changed a node's data.
    pub fn tamperings(&self) -> u64 {
        self.known().tamperings
    }

    /// How many of those nodes got the right data while they ran.
    pub fn healed(&self) -> u64 {
        self.known().healed
    }
}
