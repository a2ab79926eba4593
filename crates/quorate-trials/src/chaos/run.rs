//! One run: the rounds of faults, the requirements in each, and the verdict at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quorate::{Level, verify};
use quorate_env::Rng;

use super::ChaosArgs;
use super::faults::{Kind, Round, plan};
use super::fleet::Fleet;
use super::load::{Client, Ledger, Load, Work, keys};
use super::report::{Report, Struck};
use super::world::World;
use crate::harness::figures::ms;
use crate::harness::{Result, until};
use crate::verdict::Verdict;

/// Within this time of a fault that leaves a majority, and of the end of any fault, a write must be served.
const SERVED_MAX: Duration = Duration::from_secs(20);
/// Within this time of the end of a fault every node must serve.
const WHOLE_MAX: Duration = Duration::from_secs(60);
/// How long the cluster may take to be founded.
const FOUNDED_MAX: Duration = Duration::from_secs(60);
/// How long all nodes may take to verify their data.
const VERIFIED_MAX: Duration = Duration::from_secs(120);
/// How many clients use each single node, and how many follow the leader.
const CLIENTS: usize = 3;
/// How many clients of Redis use each node.
const CLIENTS_OF_KEYS: usize = 2;

/// The settings of a run.
pub struct Settings {
    minutes: u64,
    seed: u64,
    nodes: usize,
    rate: u64,
    reads: Level,
    /// How many faults of each kind.
    wanted: BTreeMap<Kind, u64>,
}

impl Settings {
    /// Returns the settings that the options ask for.
    pub fn of(args: &ChaosArgs, world: World) -> Self {
        let minutes = args.minutes;
        // The defaults are for an hour; a shorter run has at least one of each.
        let number = |given: Option<u64>, an_hour: u64, min| given.unwrap_or((an_hour * minutes / 60).max(min));
        let mut wanted = BTreeMap::from([
            (Kind::Kill, number(args.kills, 100, 1)),
            (Kind::Stop, number(args.stops, 30, 1)),
            (Kind::Slow, number(args.slows, 10, 1)),
            (Kind::Full, number(args.fulls, 15, 1)),
            (Kind::SyncError, number(args.sync_errors, 15, 1)),
            (Kind::RestartAll, number(args.restarts, 8, 1)),
        ]);
        let partitions = number(args.partitions, 40, 5);
        for (kind, extra) in Kind::PARTITIONS.into_iter().zip(0..) {
            wanted.insert(kind, (partitions + 4 - extra) / 5);
        }
        wanted.retain(|kind, count| *count > 0 && (world.own || !kind.needs_own_world()));
        let seed = args.seed.unwrap_or_else(|| Rng::from_os().below(1 << 32));
        Self { minutes, seed, nodes: args.nodes, rate: args.rate, reads: args.reads.into(), wanted }
    }

    /// Prints the settings.
    pub fn print(&self, world: World) {
        println!("{} nodes, seed {}, {} operations a second, reads {:?}", self.nodes, self.seed, self.rate, self.reads);
        if world.own {
            println!("each node in a network namespace, on a tmpfs of its own: what is tested is not loss of power");
            let slow = if world.delays { "late by some 50 ms" } else { "a line of 400 kbit/s (no netem here)" };
            println!("slow means: {slow}");
        } else {
            println!("all nodes on the loopback interface: no partitions, no slow lines, no full disks");
        }
    }
}

/// A run.
pub struct Run {
    settings: Settings,
    fleet: Fleet,
    rng: Rng,
    probe: quorate::Client,
    ledger: Ledger,
    report: Report,
}

impl Run {
    /// Starts the nodes.
    pub async fn start(mut settings: Settings, world: World, program: PathBuf, dir: PathBuf) -> Result<Self> {
        let fleet = Fleet::start(world, program, dir, settings.nodes).await?;
        if !fleet.syncs_fail {
            println!("no C compiler: no failing syncs");
            settings.wanted.remove(&Kind::SyncError);
        }
        let probe = fleet.client(None, FOUNDED_MAX).await?;
        let rng = Rng::from_seed(settings.seed);
        Ok(Self { settings, fleet, rng, probe, ledger: Ledger::new(), report: Report::default() })
    }

    /// Ends the nodes.
    pub async fn stop(&mut self, keep: bool) -> Result<()> {
        self.fleet.stop(keep).await
    }

    /// Does all rounds, and returns the verdict.
    pub async fn go(&mut self) -> Result<Verdict> {
        let work = Work::default();
        let patient = Client::new(self.probe.sql(), Level::Linearizable, self.rng.fork(), &self.ledger);
        let mut of_keys = Vec::new();
        for _ in 0..CLIENTS_OF_KEYS {
            let all = self.fleet.nodes.iter();
            of_keys.extend(
                all.map(|node| keys::Client::new(&node.redis, self.settings.reads, self.rng.fork(), &self.ledger)),
            );
        }
        let mut patient_keys = keys::Client::patient(&self.fleet.nodes[0].redis, self.rng.fork(), &self.ledger);
        work.prepare(&patient, &mut patient_keys).await?;
        let tables = ["CREATE TABLE rounds (number INTEGER)", "CREATE TABLE filler (data BLOB)"];
        self.probe.sql().with_deadline(FOUNDED_MAX).batch(tables).await?;
        let mut clients = Vec::new();
        for pinned in (0..self.fleet.count()).map(Some).chain([None]) {
            for _ in 0..CLIENTS {
                let sql = self.fleet.client(pinned, FOUNDED_MAX).await?.sql();
                clients.push(Client::new(sql, self.settings.reads, self.rng.fork(), &self.ledger));
            }
        }
        let load = Load::start(&work, clients, of_keys, self.settings.rate);
        let begun = Instant::now();
        let ended = self.rounds(begun).await;
        load.stop().await?;
        self.report.took = begun.elapsed();
        match ended {
            Ok(()) => {
                work.finish(&patient, &mut patient_keys).await?;
                self.compare().await?;
            }
            // Check the histories up to then all the same.
            Err(error) => self.report.wrong.push(error.to_string()),
        }
        Ok(self.report.judge(&mut self.ledger.record(), &self.settings.wanted))
    }

    /// Does all rounds, spread over the time.
    async fn rounds(&mut self, begun: Instant) -> Result<()> {
        let rounds = plan(&self.settings.wanted, &self.rng);
        let slot = Duration::from_secs(60 * self.settings.minutes) / u32::try_from(rounds.len().max(1))?;
        for (number, round) in rounds.into_iter().enumerate() {
            // This sleep only spreads the rounds over the time.
            tokio::time::sleep_until((begun + slot * u32::try_from(number)?).into()).await;
            self.round(number, round).await?;
        }
        tokio::time::sleep_until((begun + Duration::from_secs(60 * self.settings.minutes)).into()).await;
        Ok(())
    }

    async fn round(&mut self, number: usize, round: Round) -> Result<()> {
        let begun = self.ledger.now();
        let struck = round.strike(&mut self.fleet, &self.probe, &self.rng).await?;
        let what = format!("round {number}: {}", struck.describe(&self.fleet));
        let wrong = |error| format!("{what}: {error}");
        let strike = Instant::now();
        if struck.round().kind.leaves_a_majority() {
            self.served(number).await.map_err(wrong)?;
        }
        let during = strike.elapsed();
        tokio::time::sleep_until((strike + struck.round().lasts).into()).await;

        struck.heal(&mut self.fleet, &self.probe).await?;
        let heal = Instant::now();
        self.served(number).await.map_err(wrong)?;
        let served = heal.elapsed();
        for node in 0..self.fleet.count() {
            self.whole(node).await.map_err(wrong)?;
        }
        let whole = heal.elapsed();
        self.fleet.intact().map_err(wrong)?;
        println!("{what}: served after {}; mended: served after {}, whole after {}", ms(during), ms(served), ms(whole));
        let ended = self.ledger.now();
        self.report.rounds.push(Struck { kind: struck.round().kind, begun, ended, served: during.max(served), whole });
        self.report.count(struck.counts());
        Ok(())
    }

    /// Waits until a write is served.
    async fn served(&self, number: usize) -> Result<()> {
        let number = i64::try_from(number)?;
        let write = self.probe.sql().with_deadline(SERVED_MAX);
        let written = write.execute("INSERT INTO rounds VALUES (?)", (number,)).await;
        Ok(written.map(drop).map_err(|error| format!("no write within {} s: {error}", SERVED_MAX.as_secs()))?)
    }

    /// Waits until a node serves a read of the latest state itself.
    async fn whole(&self, node: usize) -> Result<()> {
        let begun = Instant::now();
        let client = self.fleet.client(Some(node), WHOLE_MAX).await?;
        let left = WHOLE_MAX.saturating_sub(begun.elapsed());
        let sql = client.sql().with_deadline(left);
        let count: i64 = sql.query_one("SELECT count(*) FROM rounds", ()).await?;
        client.close().await;
        if count == 0 { Err("a read of the latest state shows no round".into()) } else { Ok(()) }
    }

    /// Compares the data of the nodes.
    async fn compare(&mut self) -> Result<()> {
        let config = self.fleet.config();
        let verification = until("all nodes to verify their data", VERIFIED_MAX, async || {
            let verification = verify(config.clone()).await.ok()?;
            verification.nodes.iter().all(|node| node.tables.is_ok()).then_some(verification)
        })
        .await?;
        for difference in verification.differences() {
            self.report.wrong.push(format!("nodes differ in {}: {:?}", difference.table, difference.versions));
        }
        for (number, node) in self.fleet.nodes.iter().enumerate() {
            if self.fleet.said_after(number, 0)?.contains("panicked") {
                self.report.wrong.push(format!("node {} panicked", node.name));
            }
        }
        let nodes = verification.nodes.len();
        println!("{nodes} nodes compared at index {}", verification.position.index);
        if nodes == self.fleet.count() { Ok(()) } else { Err("a member is missing".into()) }
    }
}
