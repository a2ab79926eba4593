//! Verification: do all nodes hold the same?
//!
//! An entry of the log asks each node for the logical hash of its database as it stands right behind that entry; the
//! hashes are computed beside the work, and compared here. Invariant: what is compared are states at one position.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::{NodeId, Position};
use quorate_sql::logical_hash::UNREAD;

use crate::error::Error;
use crate::remote::ConnectError;

/// What the nodes of a cluster hold at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Where they were compared.
    pub position: Position,
    /// All members.
    pub nodes: Vec<VerifiedNode>,
}

/// What one node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedNode {
    /// Its Raft id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// The logical hash of each of its tables, those of Quorate's own (`_quorate_...`) among them, or why there is
    /// none.
    pub tables: Result<BTreeMap<String, u128>, String>,
}

/// A table that is not the same on all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name; `sqlite_schema` stands for the schema of all.
    pub table: String,
    /// The names of the nodes that hold the same, the most first.
    pub versions: Vec<Vec<String>>,
}

/// Why the nodes could not be asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// No node could be reached, or none lets this client in.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster does not serve, or does not want to.
    #[error(transparent)]
    Cluster(#[from] Error),
}

impl VerifyError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Cluster(error) => error.is_retryable(),
        }
    }
}

impl Verification {
    /// Whether all members told what they hold, and all of it is the same.
    pub fn is_sound(&self) -> bool {
        self.nodes.iter().all(|node| node.tables.is_ok()) && self.differences().is_empty()
    }

    /// The tables that are not the same on all nodes that told what they hold.
    pub fn differences(&self) -> Vec<Difference> {
        let told = || self.nodes.iter().filter_map(|node| Some((&node.name, node.tables.as_ref().ok()?)));
        let mut tables: Vec<&String> = told().flat_map(|(_, tables)| tables.keys()).collect();
        tables.sort_unstable();
        tables.dedup();
        let difference = |table: &String| {
            let mut versions: BTreeMap<Option<u128>, Vec<String>> = BTreeMap::new();
            for (name, tables) in told() {
                versions.entry(tables.get(table).copied()).or_default().push(name.clone());
            }
            let mut versions: Vec<Vec<String>> = versions.into_values().collect();
            versions.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            (versions.len() > 1).then(|| Difference { table: table.clone(), versions })
        };
        tables.into_iter().filter_map(difference).collect()
    }

    /// The virtual tables whose rows could not be read, and so were not compared, each with why.
    pub fn unread(&self) -> BTreeSet<&str> {
        let tables = self.nodes.iter().filter_map(|node| node.tables.as_ref().ok());
        tables.flat_map(BTreeMap::keys).map(String::as_str).filter(|name| name.contains(UNREAD)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use quorate_model::{Epoch, GroupId};

    use super::*;

    fn node(name: &str, tables: Option<&[(&str, u128)]>) -> VerifiedNode {
        let tables = tables.map(|tables| tables.iter().map(|(name, hash)| ((*name).to_owned(), *hash)).collect());
        let tables = tables.ok_or_else(|| "it is away".to_owned());
        VerifiedNode { id: NodeId(1), name: name.to_owned(), addr: String::new(), tables }
    }

    fn of(nodes: Vec<VerifiedNode>) -> Verification {
        Verification { position: Position { epoch: Epoch(1), group: GroupId::MAIN, index: 7 }, nodes }
    }

    #[test]
    fn what_differs_is_named_with_who_holds_what() {
        let same: &[(&str, u128)] = &[("t", 1), ("u", 2)];
        let all = of(vec![node("a", Some(same)), node("b", Some(same)), node("c", Some(same))]);
        assert!(all.is_sound() && all.differences().is_empty() && all.unread().is_empty());
        let gone: &[(&str, u128)] = &[("f (can't be read: no such table: x)", 0), ("t", 1)];
        let unread = of(vec![node("a", Some(gone)), node("b", Some(gone))]);
        assert!(unread.is_sound() && unread.unread().iter().eq(["f (can't be read: no such table: x)"].iter()));
        let away = of(vec![node("a", Some(same)), node("b", None)]);
        assert!(!away.is_sound() && away.differences().is_empty());
        let differ =
            of(vec![node("a", Some(&[("t", 9)])), node("b", Some(same)), node("c", Some(same)), node("d", None)]);
        let versions = || vec![vec!["b".to_owned(), "c".to_owned()], vec!["a".to_owned()]];
        let expected = ["t", "u"].map(|table| Difference { table: table.to_owned(), versions: versions() });
        assert_eq!(differ.differences(), expected);
        assert!(!differ.is_sound());
    }
}
