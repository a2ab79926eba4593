//! Access to the cluster as a database through `quorate::Sql`, which only this module uses.

use quorate::sql::RowRef;
use quorate::{Client, ClientConfig, Level, SecretSource, Sql, Value};
use rusqlite::types::Value as Plain;

use crate::Result;
use crate::cluster::Node;
use crate::multiset::Multiset;
use crate::tables::{Row, Table};

/// The number of rows that are read at a time.
const PAGE_ROWS: i64 = 20_000;

/// The handle of a client; clones share its connections.
#[derive(Clone, Debug)]
pub struct Remote(Sql);

impl Remote {
    /// Connects a client to the nodes.
    pub async fn connect(nodes: &[Node]) -> Result<Self> {
        let secret = nodes.first().map(|node| SecretSource::File(node.secret.clone())).unwrap_or_default();
        let addrs = nodes.iter().map(|node| &node.peer_addr);
        Ok(Self(Client::connect(ClientConfig::new(addrs, secret)).await?.sql()))
    }

    /// Runs a statement of the schema.
    pub async fn execute(&self, sql: String) -> Result<()> {
        self.0.execute(sql, ()).await?;
        Ok(())
    }

    /// Inserts rows in one atomic batch.
    pub async fn insert(&self, table: &Table, rows: Vec<Row>) -> Result<()> {
        let sql = table.insert();
        let statements = rows.into_iter().map(|row| (sql.clone(), row.into_iter().map(replicated).collect::<Vec<_>>()));
        self.0.batch(statements).await?;
        Ok(())
    }

    /// Returns all rows of a table from this node, once it has applied everything that was acknowledged before the
    /// call.
    pub async fn rows(node: &Node, table: &Table) -> Result<Multiset> {
        let secret = SecretSource::File(node.secret.clone());
        let remote = Client::connect(ClientConfig::pinned(&node.peer_addr, secret)).await?.sql();
        remote.query("SELECT 1", ()).await?;
        // The query was linearizable. From here on reads use only the node's own state.
        let here = remote.at(Level::Local);
        let sql = format!("SELECT rowid, * FROM {} WHERE rowid > ? ORDER BY rowid LIMIT {PAGE_ROWS}", table.name);
        let (mut set, mut after) = (Multiset::default(), 0);
        loop {
            let page = here.query(sql.clone(), (after,)).await?;
            let Some(last) = page.iter().last() else { return Ok(set) };
            after = last.get(0)?;
            set.extend(page.iter().map(plain));
        }
    }
}

/// Returns a row without its rowid.
fn plain(row: RowRef<'_>) -> Row {
    row.values().iter().skip(1).cloned().map(plain_value).collect()
}

fn plain_value(value: Value) -> Plain {
    match value {
        Value::Null => Plain::Null,
        Value::Integer(value) => Plain::Integer(value),
        Value::Real(value) => Plain::Real(value),
        Value::Text(value) => Plain::Text(value),
        Value::Blob(value) => Plain::Blob(value.into()),
    }
}

fn replicated(value: Plain) -> Value {
    match value {
        Plain::Null => Value::Null,
        Plain::Integer(value) => Value::Integer(value),
        Plain::Real(value) => Value::Real(value),
        Plain::Text(value) => Value::Text(value),
        Plain::Blob(value) => Value::Blob(value.into()),
    }
}
