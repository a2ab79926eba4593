//! One node's process, as a child of `quorate dev`.
//!
//! The child's standard input is a pipe whose other end lives here: when it closes, by a request to stop or by the
//! death of this process however it comes, the node stops by itself. The child is in a process group of its own, so
//! that a Ctrl-C at the terminal reaches only `quorate dev`, which then stops the nodes in order.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::{oneshot, watch};

use super::layout::Layout;
use crate::error::{Error, Result, Told as _};
use crate::settings::VARIABLES;

/// How long a node may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(10);

/// A process that was started for a node.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    stop: Option<oneshot::Sender<()>>,
    ended: Ended,
}

/// Learns how a process ended. Clones learn the same.
#[derive(Clone, Debug)]
pub struct Ended(watch::Receiver<Option<String>>);

impl Child {
    /// Starts the process of a node.
    pub fn start(program: &Path, layout: &Layout, id: u64) -> Result<Self> {
        let log = layout.log(id);
        let said = OpenOptions::new().append(true).create(true).open(&log);
        let said = said.told(|| format!("cannot write {}", log.display()))?;
        let said_too = said.try_clone().told(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(program);
        // The nodes are configured by their files alone.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(VARIABLES)) {
            command.env_remove(name);
        }
        let child = command
            .args(["serve", "--until-stdin-closes", "--config"])
            .arg(layout.config(id))
            .stdin(Stdio::piped())
            .stdout(said)
            .stderr(said_too)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .told(|| format!("cannot start node {id}"))?;
        let pid = child.id().ok_or_else(|| Error::new(format!("node {id} ended at once")))?;
        let (stop, stopping) = oneshot::channel();
        let (telling, ended) = watch::channel(None);
        tokio::spawn(async move {
            let how = attend(child, stopping).await;
            telling.send_replace(Some(how));
        });
        Ok(Self { pid, stop: Some(stop), ended: Ended(ended) })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// To learn how it ends.
    pub fn ended(&self) -> Ended {
        self.ended.clone()
    }

    /// Asks the node to stop, which takes at most ten seconds; then it is killed.
    pub fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Its receiver is gone when the process has ended by itself.
            let _ = stop.send(());
        }
    }
}

impl Ended {
    /// Waits for the end and says how it came.
    pub async fn wait(&mut self) -> String {
        match self.0.wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_default(),
            Err(_) => "its end was not seen".to_owned(),
        }
    }
}

async fn attend(mut child: tokio::process::Child, stopping: oneshot::Receiver<()>) -> String {
    // Taken out, because waiting for a child would close its input, and so stop it.
    let input = child.stdin.take();
    tokio::select! {
        status = child.wait() => return describe(status),
        _ = stopping => drop(input),
    }
    if let Ok(status) = tokio::time::timeout(STOP_MAX, child.wait()).await {
        return describe(status);
    }
    // Fails only when it has ended meanwhile, which the wait then tells.
    let _ = child.start_kill();
    describe(child.wait().await)
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Err(error) => format!("its end was not seen: {error}"),
        Ok(status) => match (status.code(), status.signal()) {
            (Some(0), _) => "it stopped".to_owned(),
            (Some(code), _) => format!("it failed with exit code {code}"),
            (None, Some(signal)) => format!("signal {signal} killed it"),
            (None, None) => status.to_string(),
        },
    }
}
