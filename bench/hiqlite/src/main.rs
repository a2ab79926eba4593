//! hiqlite, embedded, under the same load as Quorate, with the same arguments and figures.
//!
//! It uses what its own benchmark uses: jemalloc and WAL files of 8 MiB; everything else has its default. By default
//! its log is synced every 200 ms, after writes were acknowledged (`--durability os`); with `immediate` it is synced
//! before (`fsync`).

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use hiqlite::{Client, LogSync, Node, NodeConfig, Param, Params};
use quorate_bench_harness::{
    About, Durability, Level, Measure, NodeSpec, Options, Result, Row, SELECT, System, SystemName, locked_version, run,
};

/// The bytes of a WAL file, as in its own benchmark. This also limits the size of an entry.
const WAL_BYTES: u32 = 8 << 20;

#[derive(Parser)]
#[command(name = "quorate-bench-hiqlite", about = "Measures hiqlite as quorate-bench measures Quorate")]
struct Cli {
    #[command(subcommand)]
    measure: Measure,
}

fn main() -> ExitCode {
    let Cli { measure } = Cli::parse();
    if measure.system() != SystemName::Hiqlite {
        eprintln!("this program only measures --system hiqlite");
        return ExitCode::FAILURE;
    }
    if run::<HiqliteNode>(&measure) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A node.
struct HiqliteNode(Client);

/// A row that a query returns.
struct Selected(Row);

/// A number that a query returns.
struct Number(i64);

impl From<&mut hiqlite::Row<'_>> for Selected {
    fn from(row: &mut hiqlite::Row<'_>) -> Self {
        Self(Row { id: row.get("id"), name: row.get("name"), value: row.get("value") })
    }
}

impl From<&mut hiqlite::Row<'_>> for Number {
    fn from(row: &mut hiqlite::Row<'_>) -> Self {
        Self(row.get("rows"))
    }
}

impl System for HiqliteNode {
    async fn about(options: &Options) -> Result<About> {
        let acknowledged = match options.durability {
            Durability::Fsync => "after an msync on a majority of nodes (log_sync = immediate)",
            Durability::Os => "before any sync, which follows within 200 ms (log_sync = interval_200, its default)",
        };
        Ok(About {
            version: locked_version(include_str!("../Cargo.lock"), "hiqlite"),
            sqlite: hiqlite::rusqlite::version().to_owned(),
            acknowledged: acknowledged.to_owned(),
            configuration: format!(
                "jemalloc, wal_size = {WAL_BYTES}, as in its own benchmark; otherwise defaults, no TLS"
            ),
        })
    }

    async fn start(spec: NodeSpec) -> Result<Self> {
        let members = spec.members.into_iter().zip(1..);
        let member = |([addr_raft, addr_api], id): ([String; 2], u64)| Node { id, addr_raft, addr_api };
        let secret = "known to everybody";
        let config = NodeConfig {
            node_id: spec.id,
            nodes: members.map(member).collect(),
            listen_addr_api: "127.0.0.1".into(),
            listen_addr_raft: "127.0.0.1".into(),
            data_dir: spec.dir.to_string_lossy().into_owned().into(),
            wal_sync: match spec.durability {
                Durability::Fsync => LogSync::Immediate,
                Durability::Os => LogSync::IntervalMillis(200),
            },
            wal_size: WAL_BYTES,
            secret_raft: secret.to_owned(),
            secret_api: secret.to_owned(),
            ..NodeConfig::default()
        };
        let client = hiqlite::start_node(config).await?;
        client.wait_until_healthy_db().await;
        Ok(Self(client))
    }

    async fn leads(&self) -> bool {
        self.0.is_leader_db().await
    }

    async fn execute(&self, sql: &'static str) -> Result<()> {
        self.0.execute(sql, Params::new()).await?;
        Ok(())
    }

    async fn insert(&self, sql: &'static str, row: Row) -> Result<()> {
        self.0.execute(sql, params(row)).await?;
        Ok(())
    }

    async fn insert_all(&self, sql: &'static str, rows: Vec<Row>) -> Result<()> {
        for inserted in self.0.txn(rows.into_iter().map(|row| (sql, params(row)))).await? {
            inserted?;
        }
        Ok(())
    }

    async fn select(&self, id: i64, level: Level) -> Result<Option<Row>> {
        let params = vec![Param::from(id)];
        let rows: Vec<Selected> = match level {
            Level::Local => self.0.query_map(SELECT, params).await?,
            // This query runs on the leader.
            Level::Linearizable => self.0.query_consistent_map(SELECT, params).await?,
        };
        Ok(rows.into_iter().next().map(|Selected(row)| row))
    }

    async fn stop(self) -> Result<()> {
        Ok(self.0.shutdown().await?)
    }

    async fn number(&self, sql: &'static str) -> Result<u64> {
        let Number(number) = self.0.query_map_one(sql, Params::new()).await?;
        Ok(u64::try_from(number)?)
    }
}

fn params(row: Row) -> Params {
    vec![Param::from(row.id), Param::from(row.name), Param::from(row.value)]
}
