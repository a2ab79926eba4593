//! Verification: compares the data of all nodes.
//!
//! An entry of the log makes each node compute the logical hash of its database as of that entry, in the background;
//! the hashes are compared here. Invariant: the compared states are those of one position.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_consensus::ClusterId;
use quorate_model::{NodeId, Position};
use quorate_sql::logical_hash::UNREAD;

use crate::error::{ConnectError, Error};

/// How long the nodes may take to compute their hashes.
pub(crate) const HASHES_MAX: Duration = Duration::from_secs(330);

/// The hashes of all nodes of a cluster at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The cluster.
    pub cluster: ClusterId,
    /// The position at which the nodes were compared.
    pub position: Position,
    /// All members.
    pub nodes: Vec<VerifiedNode>,
}

/// The hashes of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedNode {
    /// The node's Raft id.
    pub id: NodeId,
    /// The node's name.
    pub name: String,
    /// The node's address.
    pub addr: String,
    /// The logical hash of each of its tables, including Quorate's own (`_quorate_...`), or the reason why the hashes
    /// are missing.
    pub tables: Result<BTreeMap<String, u128>, String>,
}

/// A table that is not the same on all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The table's name; `sqlite_schema` stands for the whole schema.
    pub table: String,
    /// The names of the nodes, grouped by equal contents of the table; the largest group comes first.
    pub versions: Vec<Vec<String>>,
}

/// The error of a verification.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// No node could be reached, or none accepts this client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster does not serve the request, or refuses it.
    #[error(transparent)]
    Cluster(#[from] Error),
}

impl VerifyError {
    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Cluster(error) => error.is_retryable(),
        }
    }
}

impl Verification {
    /// Returns whether all members reported their hashes, and all hashes are the same.
    pub fn is_sound(&self) -> bool {
        self.nodes.iter().all(|node| node.tables.is_ok()) && self.differences().is_empty()
    }

    /// Returns the tables that are not the same on all nodes that reported their hashes.
    pub fn differences(&self) -> Vec<Difference> {
        let reported = || self.nodes.iter().filter_map(|node| Some((&node.name, node.tables.as_ref().ok()?)));
        let mut tables: Vec<&String> = reported().flat_map(|(_, tables)| tables.keys()).collect();
        tables.sort_unstable();
        tables.dedup();
        let difference = |table: &String| {
            let mut versions: BTreeMap<Option<u128>, Vec<String>> = BTreeMap::new();
            for (name, tables) in reported() {
                versions.entry(tables.get(table).copied()).or_default().push(name.clone());
            }
            let mut versions: Vec<Vec<String>> = versions.into_values().collect();
            versions.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            (versions.len() > 1).then(|| Difference { table: table.clone(), versions })
        };
        tables.into_iter().filter_map(difference).collect()
    }

    /// Returns the virtual tables whose rows could not be read and were not compared, each with the reason.
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
        Verification {
            cluster: ClusterId(1),
            position: Position { epoch: Epoch(1), group: GroupId::MAIN, index: 7 },
            nodes,
        }
    }

    #[test]
    fn differences_name_the_nodes_of_each_version() {
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
