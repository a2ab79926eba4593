//! Plain SQLite in this process: one connection writes, others read. It shows what the machine can do without
//! replication.
//!
//! Calls run on the thread of the task that makes them, which is the fastest way for statements that take microseconds.

use std::path::PathBuf;
use std::sync::Mutex;

use quorate_bench_harness::{About, Durability, Level, NodeSpec, Options, Result, Row, SELECT, System};
use quorate_env::lock;
use rusqlite::{Connection, OptionalExtension as _};

/// A database.
pub struct PlainSqlite {
    path: PathBuf,
    writer: Mutex<Connection>,
    /// The connections that are not in use.
    readers: Mutex<Vec<Connection>>,
}

impl System for PlainSqlite {
    async fn about(&Options { durability, nodes, .. }: &Options) -> Result<About> {
        if nodes != 1 {
            return Err("plain SQLite has no cluster: use --nodes 1".into());
        }
        let acknowledged = match durability {
            Durability::Fsync => "after an fsync (synchronous = FULL), no replication",
            Durability::Os => "before any fsync (synchronous = NORMAL), no replication",
        };
        Ok(About {
            version: rusqlite::version().to_owned(),
            sqlite: rusqlite::version().to_owned(),
            acknowledged: acknowledged.to_owned(),
            configuration: "journal_mode = WAL, prepared statements cached".to_owned(),
        })
    }

    async fn start(spec: NodeSpec) -> Result<Self> {
        let path = spec.dir.join("plain.sqlite");
        let writer = Connection::open(&path)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        let synchronous = match spec.durability {
            Durability::Fsync => "FULL",
            Durability::Os => "NORMAL",
        };
        writer.pragma_update(None, "synchronous", synchronous)?;
        Ok(Self { path, writer: Mutex::new(writer), readers: Mutex::default() })
    }

    async fn leads(&self) -> bool {
        true
    }

    async fn execute(&self, sql: &'static str) -> Result<()> {
        lock(&self.writer).execute(sql, ())?;
        Ok(())
    }

    async fn insert(&self, sql: &'static str, row: Row) -> Result<()> {
        let writer = lock(&self.writer);
        writer.prepare_cached(sql)?.execute((row.id, row.name, row.value))?;
        Ok(())
    }

    async fn insert_all(&self, sql: &'static str, rows: Vec<Row>) -> Result<()> {
        let mut writer = lock(&self.writer);
        let transaction = writer.transaction()?;
        for row in rows {
            transaction.prepare_cached(sql)?.execute((row.id, row.name, row.value))?;
        }
        Ok(transaction.commit()?)
    }

    async fn select(&self, id: i64, _: Level) -> Result<Option<Row>> {
        let kept = lock(&self.readers).pop();
        let reader = kept.map_or_else(|| Connection::open(&self.path), Ok)?;
        let row = reader
            .prepare_cached(SELECT)?
            .query_row((id,), |row| Ok(Row { id: row.get(0)?, name: row.get(1)?, value: row.get(2)? }))
            .optional()?;
        lock(&self.readers).push(reader);
        Ok(row)
    }

    async fn number(&self, sql: &'static str) -> Result<u64> {
        let number: i64 = lock(&self.writer).query_row(sql, (), |row| row.get(0))?;
        Ok(u64::try_from(number)?)
    }
}
