//! Runs the nodes of `quorate dev`: starts them, reports when one ends, starts one again on request, and stops them
//! all.
//!
//! Invariant: `cluster.json` exists only while the cluster is ready, and names the latest process of each node.

use std::path::PathBuf;
use std::pin::pin;

use futures_util::future::join_all;
use quorate::SecretSource;
use tokio::sync::mpsc;

use super::child::{Child, Ended};
use super::control::{Control, Request};
use super::layout::Layout;
use super::say;
use crate::client;
use crate::cluster_file::{ClusterFile, NodeProcess};
use crate::error::{Context as _, Error, Result};
use crate::stop::Stop;

/// How many lines of a node's log are shown if it ends before the cluster is ready.
const LOG_LINES_SHOWN: usize = 10;

/// The processes of the nodes.
#[derive(Debug)]
pub struct Supervisor {
    program: PathBuf,
    layout: Layout,
    secret: SecretSource,
    /// Where the nodes archive, if they do.
    archive: Option<String>,
    /// In the order of the ids, which start at 1.
    children: Vec<Child>,
    ends: mpsc::UnboundedReceiver<End>,
    ending: mpsc::UnboundedSender<End>,
}

/// The end of a process.
#[derive(Debug)]
struct End {
    id: u64,
    pid: u32,
    how: String,
}

impl Supervisor {
    /// Starts all nodes.
    pub fn start(layout: Layout, secret: SecretSource, archive: Option<String>) -> Result<Self> {
        let program = std::env::current_exe().context(|| "cannot find the file of this program")?;
        ClusterFile::remove(layout.dir())?;
        let (ending, ends) = mpsc::unbounded_channel();
        let mut supervisor = Self { program, layout, secret, archive, children: Vec::new(), ends, ending };
        let ids: Vec<u64> = supervisor.layout.nodes().map(|(id, _)| id).collect();
        for id in ids {
            let child = supervisor.start_child(id)?;
            supervisor.children.push(child);
        }
        Ok(supervisor)
    }

    fn start_child(&self, id: u64) -> Result<Child> {
        let child = Child::start(&self.program, &self.layout, self.archive.as_deref(), id)?;
        let (pid, mut ended, ending) = (child.pid(), child.ended(), self.ending.clone());
        tokio::spawn(async move {
            let how = ended.wait().await;
            // Sending fails once the supervisor is gone.
            let _ = ending.send(End { id, pid, how });
        });
        Ok(child)
    }

    /// Returns the data directory with the addresses of the nodes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Waits until the cluster answers linearizable reads, then writes `cluster.json`. Fails if a node ends before
    /// that.
    pub async fn ready(&mut self) -> Result<ClusterFile> {
        tokio::select! {
            answered = all_answer(&self.layout, &self.secret) => answered?,
            Some(end) = self.ends.recv() => return Err(self.failed_to_start(&end)),
        }
        self.write_cluster_file()
    }

    fn failed_to_start(&self, end: &End) -> Error {
        let log = self.layout.log(end.id);
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or_default().join("\n");
        Error::new(format!("node {} did not start: {}\n{shown}\n({})", end.id, end.how, log.display()))
    }

    fn write_cluster_file(&self) -> Result<ClusterFile> {
        let nodes = self.layout.nodes().zip(&self.children).map(|((id, addr), child)| NodeProcess {
            id,
            pid: child.pid(),
            peer_addr: addr.to_owned(),
            http_addr: self.layout.http(id),
            resp_addr: self.layout.resp(id),
            data_dir: self.layout.node_dir(id),
        });
        let file = ClusterFile { nodes: nodes.collect() };
        file.write(self.layout.dir())?;
        Ok(file)
    }

    /// Reports nodes that end and serves requests, until a signal arrives.
    pub async fn serve(&mut self, control: &Control, stop: &mut Stop) {
        // Keep this future across iterations: dropping it would lose a request that has arrived in part.
        let mut next = pin!(control.next());
        loop {
            tokio::select! {
                () = stop.requested() => return,
                Some(end) = self.ends.recv() => self.report(&end),
                request = &mut next => {
                    self.restart(request).await;
                    next.set(control.next());
                }
            }
        }
    }

    fn report(&self, end: &End) {
        // A process that was replaced has ended because it was asked to.
        if self.child(end.id).is_some_and(|child| child.pid() == end.pid) {
            let restart = say::restart_command(end.id, self.layout.dir());
            say::line(&format!("node {} (pid {}) ended: {}. Start it again: {restart}", end.id, end.pid, end.how));
        }
    }

    fn child(&self, id: u64) -> Option<&Child> {
        self.children.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    async fn restart(&mut self, request: Request) {
        match self.replace(request.id).await {
            Err(error) => request.answer(Err(error)).await,
            Ok((child_ended, addr)) => {
                // Wait in a separate task: the node may have to wait for others before it answers.
                let secret = self.secret.clone();
                let id = request.id;
                let last_port = self.layout.resp(id);
                tokio::spawn(async move {
                    let mut ended = child_ended;
                    let answers = async {
                        client::wait_for_status(&addr, &secret).await?;
                        opens(last_port).await
                    };
                    let outcome = tokio::select! {
                        answered = answers => answered,
                        how = ended.wait() => Err(Error::new(format!("node {id} did not start: {how}"))),
                    };
                    request.answer(outcome).await;
                });
            }
        }
    }

    /// Starts a node's process, after stopping the previous one if it still runs.
    async fn replace(&mut self, id: u64) -> Result<(Ended, String)> {
        let unknown = || Error::new(format!("there is no node {id}: the ids go from 1 to {}", self.children.len()));
        let at = usize::try_from(id).ok().and_then(|id| id.checked_sub(1)).ok_or_else(unknown)?;
        let addr = self.layout.addrs().get(at).cloned().ok_or_else(unknown)?;
        if let Some(former) = self.children.get_mut(at) {
            former.ask_to_stop();
            former.ended().wait().await;
        }
        let child = self.start_child(id)?;
        let (pid, ended) = (child.pid(), child.ended());
        if let Some(place) = self.children.get_mut(at) {
            *place = child;
        }
        self.write_cluster_file()?;
        say::line(&format!("node {id} started again (pid {pid})"));
        Ok((ended, addr))
    }

    /// Stops all nodes at the same time. A second signal kills those that have not stopped yet.
    pub async fn stop(mut self, stop: &mut Stop) -> Result<()> {
        let ends: Vec<_> = self
            .children
            .iter_mut()
            .map(|child| {
                child.ask_to_stop();
                child.ended()
            })
            .collect();
        tokio::select! {
            _ = join_all(ends.into_iter().map(async |mut ended| ended.wait().await)) => {}
            () = stop.requested() => {}
        }
        ClusterFile::remove(self.layout.dir())
    }
}

/// Waits until each node answers linearizable reads: then all of them are members, and one leads. And until all of
/// their ports are open.
async fn all_answer(layout: &Layout, secret: &SecretSource) -> Result<()> {
    for (id, addr) in layout.nodes() {
        client::wait_for_reads(addr, secret).await?;
        opens(layout.resp(id)).await?;
    }
    Ok(())
}

/// Waits until a node has opened its port for the clients of Redis, if it has one. It opens this port last, and answers
/// its peers before.
async fn opens(resp: Option<String>) -> Result<()> {
    match resp {
        Some(addr) => client::wait_for_port(&addr).await,
        None => Ok(()),
    }
}
