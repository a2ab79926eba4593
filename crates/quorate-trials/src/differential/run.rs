//! A run: units are generated, done by the cluster and by plain SQLite, and compared, while nodes are killed. From time
//! to time, and at the end, all data of every node is compared too.
//!
//! Invariant: what is generated depends on the seed alone. A unit that the cluster lost with its leader is run again
//! until it is done, so kills do not change the following units.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use quorate_env::Rng;
use tokio::sync::{Mutex, watch};

use crate::harness::cluster::Cluster as Processes;
use crate::harness::{Result, until};

mod cluster;
mod compare;
mod generate;
mod kills;
mod plain;
mod unit;

use cluster::Cluster;
use generate::Generator;
use generate::schema::Schema;
use kills::{Kills, Plan};
use plain::Plain;
use unit::{Answer, Unit};

/// How many statements there are between two comparisons of all data.
const LOOK_EVERY: u64 = 2000;
/// How many units there are between two updates of the row counts that the generator knows.
const LEARN_EVERY: u64 = 20;
/// How long all nodes may take to verify their data.
const VERIFIED_MAX: Duration = Duration::from_secs(60);

/// The settings of a run.
pub struct Settings {
    pub seed: u64,
    pub statements: u64,
    pub kills: u64,
    /// After this many statements, a row is added on the side of plain SQLite only, which must be found.
    pub break_at: Option<u64>,
}

/// What was done, if everything was equal.
#[derive(Debug, Default)]
pub struct Summary {
    pub seed: u64,
    pub statements: u64,
    pub units: BTreeMap<&'static str, u64>,
    pub failures: BTreeMap<i32, u64>,
    /// How many rows the units returned.
    pub returned: u64,
    /// How many comparisons of all data there were, and of how many rows.
    pub looks: u64,
    pub compared: usize,
    /// How many units were lost with their leader and run again.
    pub again: u64,
    pub kills: Kills,
}

/// Does a run, up to the first difference, which is the error.
pub async fn run(settings: &Settings, processes: &Processes) -> Result<Summary> {
    let dir = tempfile::tempdir()?;
    let rng = Rng::from_seed(settings.seed);
    let (tell, progress) = watch::channel(0);
    let plan = Plan { kills: settings.kills, statements: settings.statements, rng: rng.fork() };
    let whole = Mutex::new(());
    let twins = Twins {
        settings,
        processes,
        cluster: Cluster::connect(processes).await?,
        plain: Plain::at(dir.path().join("plain")),
        generator: Generator::new(rng.fork()),
        summary: Summary { seed: settings.seed, ..Summary::default() },
        whole: &whole,
    };
    let (mut summary, kills) = tokio::try_join!(twins.work(tell), plan.run(processes, progress, &whole))?;
    summary.kills = kills;
    Ok(summary)
}

struct Twins<'a> {
    settings: &'a Settings,
    processes: &'a Processes,
    cluster: Cluster,
    plain: Plain,
    generator: Generator,
    summary: Summary,
    whole: &'a Mutex<()>,
}

impl Twins<'_> {
    async fn work(mut self, tell: watch::Sender<u64>) -> Result<Summary> {
        self.compare(0, &Unit::Execute(generate::first())).await?;
        let (mut number, mut looked, mut broken) = (1, 0, false);
        self.learn()?;
        while self.summary.statements < self.settings.statements {
            let unit = self.generator.next();
            self.compare(number, &unit).await?;
            if unit.changes_schema() || number % LEARN_EVERY == 0 {
                self.learn()?;
            }
            let done = self.summary.statements;
            if !broken && self.settings.break_at.is_some_and(|at| done >= at) {
                broken = true;
                self.plain.connect()?.execute("INSERT INTO log (what) VALUES ('only here')", [])?;
            }
            if done >= looked + LOOK_EVERY {
                looked = done;
                self.look().await.map_err(|error| self.difference(number, &error))?;
            }
            tell.send_replace(done);
            number += 1;
        }
        self.look().await.map_err(|error| self.difference(number, &error))?;
        self.summary.again = self.cluster.again;
        Ok(self.summary)
    }

    fn learn(&mut self) -> Result<()> {
        let schema = Schema::read(&self.plain.connect()?)?;
        self.generator.learn(schema);
        Ok(())
    }

    /// Does a unit on both sides.
    async fn compare(&mut self, number: u64, unit: &Unit) -> Result<()> {
        let cluster = self.cluster.answer(unit).await;
        let cluster = cluster.map_err(|error| self.difference(number, &format!("{unit}\ncluster: {error}")))?;
        let plain = self.plain.answer(unit);
        let plain = plain.map_err(|error| self.difference(number, &format!("{unit}\nplain SQLite: {error}")))?;
        if !compare::same_answer(&cluster, &plain) {
            let text = format!("{unit}\ncluster:{cluster}\nplain SQLite:{plain}");
            return Err(self.difference(number, &text).into());
        }
        self.count(unit, &plain);
        Ok(())
    }

    fn count(&mut self, unit: &Unit, answer: &Answer) {
        self.summary.statements += unit.statements();
        *self.summary.units.entry(unit.kind()).or_default() += 1;
        for failed in answer.failures() {
            *self.summary.failures.entry(failed.code).or_default() += 1;
        }
        self.summary.returned += answer.rows().count() as u64;
    }

    /// Compares the data of each node with that of plain SQLite, and the nodes with each other.
    async fn look(&mut self) -> Result<()> {
        let _whole = self.whole.lock().await;
        self.processes.settled().await?;
        let conn = self.plain.connect()?;
        for node in 0..self.processes.nodes()?.len() {
            self.summary.compared += compare::node(&mut self.cluster, node, &conn).await?;
        }
        let config = self.processes.config()?;
        let verification = until("all nodes to verify their data", VERIFIED_MAX, async || {
            let verification = quorate::verify(config.clone()).await.ok()?;
            verification.nodes.iter().all(|node| node.tables.is_ok()).then_some(verification)
        });
        let verification = verification.await?;
        if !verification.is_sound() {
            return Err(format!("the nodes differ: {:?}", verification.differences()).into());
        }
        self.summary.looks += 1;
        Ok(())
    }

    fn difference(&self, number: u64, what: &impl fmt::Display) -> String {
        let Settings { seed, statements, .. } = self.settings;
        let done = self.summary.statements;
        format!(
            "DIFFERENT in unit {number}, after {done} statements of --seed {seed} --statements {statements}:\n{what}"
        )
    }
}

impl Summary {
    /// Returns what the units did, in several lines.
    pub fn details(&self) -> String {
        let Self { units, failures, returned, looks, compared, again, .. } = self;
        format!(
            "units: {units:?}; {again} lost with their leader and run again\n\
             failures by SQLite's code, alike on both sides: {failures:?}\n\
             rows returned: {returned}; {looks} looks at every node: {compared} rows compared"
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, statements, units, failures, kills, .. } = self;
        let failed: u64 = failures.values().sum();
        write!(
            f,
            "EQUAL: seed {seed}, {statements} statements in {} units, {failed} failed alike, {} nodes killed ({} times \
             the leader): every answer and every node equals plain SQLite",
            units.values().sum::<u64>(),
            kills.all,
            kills.leaders
        )
    }
}
