//! The cluster as a database. TODO(lead): to be filled in with `quorate::RemoteSql`; nothing else here knows it.

use crate::Result;
use crate::cluster::Node;
use crate::multiset::Multiset;
use crate::tables::{Row, Table};

/// The handle of one client; clones share its connections.
#[derive(Clone, Debug)]
pub struct Remote;

impl Remote {
    /// A client of the nodes.
    pub async fn connect(nodes: &[Node]) -> Result<Self> {
        Err(format!("no client of {} nodes yet", nodes.len()).into())
    }

    /// Runs a statement of the schema.
    pub async fn execute(&self, sql: String) -> Result<()> {
        Err(format!("no client to run {sql}").into())
    }

    /// Inserts rows: one by a single statement, more by one atomic batch.
    pub async fn insert(&self, table: &Table, rows: Vec<Row>) -> Result<()> {
        Err(format!("no client to insert {} into {}", rows.len(), table.name).into())
    }

    /// All rows of a table as this very node has them, once it has applied everything acknowledged before the call.
    pub async fn rows(node: &Node, table: &Table) -> Result<Multiset> {
        Err(format!("no client to read {} at node {}", table.name, node.id).into())
    }
}
