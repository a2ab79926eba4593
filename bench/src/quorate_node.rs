//! Quorate, embedded, with its default configuration.

use std::sync::Arc;
use std::time::Instant;

use quorate::archive::Archive;
use quorate::{Ca, Config, Level as QuorateLevel, Node, SecretSource, Sql, TlsConfig};
use quorate_backup::store::Store;
use quorate_bench_harness::{
    About, Durability, Level, NodeSpec, Options, Result, Row, SELECT, Stage, System, locked_version,
};
use quorate_env::metrics::Histogram;

/// A node.
pub struct QuorateNode {
    node: Node,
    sql: Sql,
}

impl System for QuorateNode {
    async fn about(Options { durability, nodes, tls, archive, .. }: &Options) -> Result<About> {
        Ok(About {
            version: locked_version(include_str!("../Cargo.lock"), "quorate"),
            sqlite: rusqlite::version().to_owned(),
            acknowledged: match (*durability, *nodes) {
                (Durability::Fsync, 1) => "after an fdatasync".to_owned(),
                (Durability::Fsync, _) => "after an fdatasync on a majority of nodes".to_owned(),
                (Durability::Os, 1) => "when the operating system has it, before any sync".to_owned(),
                (Durability::Os, _) => "when the operating systems of a majority have it, before any sync".to_owned(),
            },
            configuration: [
                Some("defaults"),
                (*durability == Durability::Os).then_some("except for durability"),
                tls.is_some().then_some("with TLS"),
                archive.is_some().then_some("with an archive"),
            ]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
        })
    }

    async fn start(spec: NodeSpec) -> Result<Self> {
        let name = |id: usize| format!("node-{id}");
        let mut config = Config::single(&spec.dir);
        config.durability = match spec.durability {
            Durability::Fsync => quorate::config::Durability::Fsync,
            Durability::Os => quorate::config::Durability::Os,
        };
        if spec.members.len() > 1 {
            config.name = name(usize::try_from(spec.id)?);
            let members = spec.members.iter().zip(1..);
            config.members = members.map(|([address, _], id)| (name(id), address.clone())).collect();
            config.secret = SecretSource::Inline("known to everybody".to_owned());
        }
        config.tls = spec.tls.map(|dir| {
            let file = |end: &str| dir.join(format!("node-{}.{end}", spec.id));
            TlsConfig::new(file("crt"), file("key"), Ca::File(dir.join("ca.crt")))
        });
        if let Some(url) = &spec.archive {
            let store = Store::open(&url.parse()?, None)?;
            config = config.with_archive(Archive::new(Arc::new(store)));
        }
        let node = Node::start(config).await?;
        Ok(Self { sql: node.sql(), node })
    }

    async fn leads(&self) -> bool {
        self.node.is_leader()
    }

    async fn execute(&self, sql: &'static str) -> Result<()> {
        self.sql.execute(sql, ()).await?;
        Ok(())
    }

    async fn insert(&self, sql: &'static str, row: Row) -> Result<()> {
        self.sql.execute(sql, (row.id, row.name, row.value)).await?;
        Ok(())
    }

    async fn insert_all(&self, sql: &'static str, rows: Vec<Row>) -> Result<()> {
        self.sql.batch(rows.into_iter().map(|row| (sql, (row.id, row.name, row.value)))).await?;
        Ok(())
    }

    async fn select(&self, id: i64, level: Level) -> Result<Option<Row>> {
        let row = match level {
            Level::Local => self.sql.query_optional(SELECT, (id,)).await?,
            Level::Linearizable => self.sql.at(QuorateLevel::Linearizable).query_optional(SELECT, (id,)).await?,
        };
        Ok(row.map(|(id, name, value)| Row { id, name, value }))
    }

    async fn number(&self, sql: &'static str) -> Result<u64> {
        Ok(u64::try_from(self.sql.query_one::<i64>(sql, ()).await?)?)
    }

    fn long_syncs(&self) -> Vec<(Instant, Instant)> {
        let syncs = self.node.metrics().log.long_syncs.list().into_iter();
        syncs.map(|sync| (sync.began.into_std(), sync.ended.into_std())).collect()
    }

    async fn stop(self) -> Result<()> {
        let Self { node, sql } = self;
        drop(sql);
        node.stop().await;
        Ok(())
    }

    fn stages(&self) -> Vec<Stage> {
        let writes = self.node.metrics().main.writes;
        let stages = [
            ("queue", &writes.queue),
            ("append", &writes.append),
            ("fsync", &writes.fsync),
            ("replicate", &writes.replicate),
            ("apply", &writes.apply),
            ("total", &writes.total),
        ];
        let stage = |(name, times): (_, &Histogram)| Stage { name, writes: times.count(), time: times.sum() };
        stages.map(stage).into()
    }
}
