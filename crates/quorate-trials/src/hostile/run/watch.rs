//! Watches the nodes: starts nodes that ended, kills all nodes from time to time, checks that they come back in time,
//! and finds writes that wait too long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};

use super::books::Books;
use super::fleet::{Fleet, NODES, serves};
use super::senders::Sending;
use crate::harness::Result;

/// How often the nodes are checked.
const LOOK: Duration = Duration::from_millis(20);
/// How long after its end a node is started again, as a supervisor would.
const START_AGAIN: Duration = Duration::from_secs(1);
/// How long started nodes may take until all serve.
const BACK_MAX: Duration = Duration::from_secs(40);
/// How long there may be no acknowledged write before all nodes are killed and started again.
const STUCK_MAX: Duration = Duration::from_secs(30);

/// How a cluster ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All statements were sent.
    Done,
    /// The cluster does not come back.
    Lost,
}

/// The watch over a cluster.
pub struct Watch<'a> {
    pub fleet: &'a mut Fleet,
    pub books: &'a Arc<Books>,
    pub sending: &'a Arc<Sending>,
    pub kills: u64,
    pub stall: Option<Instant>,
    pub back: Option<JoinHandle<bool>>,
    /// When each node that ended is started again.
    pub due: [Option<Instant>; NODES],
}

impl Watch<'_> {
    /// Watches until the senders have ended and all nodes serve, or until the cluster seems lost.
    pub async fn watch(&mut self, mut senders: JoinSet<()>) -> Result<End> {
        let begun = Instant::now();
        loop {
            self.ends()?;
            self.stalls(begun).await?;
            if !self.back().await {
                self.books.open().lost += 1;
                return Ok(End::Lost);
            }
            while senders.try_join_next().is_some() {}
            let troubled = self.books.open().trouble.since.is_some();
            if senders.is_empty() && !troubled && self.stall.is_none() {
                return Ok(End::Done);
            }
            let every = self.sending.settings.kill_every;
            if every > 0 && !troubled && self.sending.taken() / every > self.kills {
                self.kills = self.sending.taken() / every;
                self.restart_all().await?;
                self.books.open().kills += 1;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Records nodes that ended, and starts them again.
    fn ends(&mut self) -> Result<()> {
        for (number, status) in self.fleet.ended()? {
            self.books.open().ended += 1;
            let (name, words) = (self.fleet.name(number), self.fleet.last_words(number));
            self.books.fails(&format!("node {name} ended by itself: {status}"), None);
            println!("  its last words: {words}");
            self.books.trouble_begins();
            self.due[number] = Some(Instant::now() + START_AGAIN);
        }
        for number in 0..NODES {
            if self.due[number].take_if(|due| *due <= Instant::now()).is_some() {
                self.fleet.start(number)?;
            }
        }
        Ok(())
    }

    async fn restart_all(&mut self) -> Result<()> {
        self.books.trouble_begins();
        for number in 0..NODES {
            self.fleet.kill(number).await?;
        }
        self.due = [None; NODES];
        (0..NODES).try_for_each(|number| self.fleet.start(number))
    }

    /// Ends a trouble if all nodes serve again. Returns false if the cluster seems lost.
    async fn back(&mut self) -> bool {
        let Some(since) = self.books.open().trouble.since else { return true };
        if self.back.as_ref().is_some_and(JoinHandle::is_finished) {
            let all = match self.back.take() {
                Some(asked) => asked.await.unwrap_or(false),
                None => false,
            };
            let writes =
                self.books.open().writers.iter().any(|own| own.acknowledged.is_some_and(|begun| begun > since));
            if all && writes {
                self.books.trouble_ends();
                return true;
            }
        }
        if since.elapsed() > BACK_MAX {
            self.books.fails(&format!("not all nodes serve {} s after they were started", BACK_MAX.as_secs()), None);
            for number in 0..NODES {
                println!("  the last words of {}: {}", self.fleet.name(number), self.fleet.last_words(number));
            }
            return false;
        }
        if self.back.is_none() {
            let configs: Vec<_> = (0..NODES).map(|number| self.fleet.pinned(number)).collect();
            self.back = Some(tokio::spawn(async move {
                for config in configs {
                    if !serves(config).await {
                        return false;
                    }
                }
                true
            }));
        }
        true
    }

    /// Records writes that wait too long. If no write is acknowledged any more, all nodes are started again.
    async fn stalls(&mut self, begun: Instant) -> Result<()> {
        let (troubled, oldest, last) = {
            let inner = self.books.open();
            let oldest = inner.writers.iter().zip(0..).filter_map(|(own, number)| Some((own.begun?, number))).min();
            let last = inner.writers.iter().filter_map(|own| own.acknowledged).max();
            (inner.trouble.since.is_some(), oldest, last.unwrap_or(begun))
        };
        let (oldest, writer): (_, usize) = oldest.map_or((None, 0), |(begun, number)| (Some(begun), number));
        if troubled {
            self.stall = None;
            return Ok(());
        }
        let waits = oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed());
        let (since, max) = (Instant::now() - waits, self.sending.settings.stall_max);
        match self.stall {
            None if waits > max => {
                self.stall = Some(since);
                let node = self.fleet.name(writer % NODES);
                let text = format!("a write through {node} waits for more than {} ms", max.as_millis());
                self.books.fails(&text, Some(since));
            }
            Some(began) if waits < max => {
                println!("  that was a stall of {} ms", began.elapsed().as_millis());
                self.stall = None;
            }
            _ => {}
        }
        self.books.waited(waits);
        if last.elapsed() > STUCK_MAX {
            self.books.fails(&format!("no write was acknowledged for {} s", STUCK_MAX.as_secs()), Some(last));
            self.restart_all().await?;
        }
        Ok(())
    }
}
