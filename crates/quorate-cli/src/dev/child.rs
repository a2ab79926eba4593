//! One node's process, as a child of `quorate dev`.
//!
//! The child's standard input is a pipe whose other end this process holds. The node stops when the pipe closes: on a
//! request to stop, or when this process ends for any reason. The child has its own process group, so that Ctrl-C at
//! the terminal reaches only `quorate dev`, which then stops the nodes cleanly.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::{oneshot, watch};

use super::layout::Layout;
use crate::error::{Context as _, Error, Result};
use crate::settings::VARIABLES;

/// The variable that says where a node archives.
const ARCHIVE_VARIABLE: &str = "QUORATE_ARCHIVE_URL";

/// How long a node may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The process of a node.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    stop: Option<oneshot::Sender<()>>,
    ended: Ended,
}

/// Reports how a process ended. Clones report the same.
#[derive(Clone, Debug)]
pub struct Ended(watch::Receiver<Option<String>>);

impl Child {
    /// Starts the process of a node, which archives at this place, if one is given.
    pub fn start(program: &Path, layout: &Layout, archive: Option<&str>, id: u64) -> Result<Self> {
        let log = layout.log(id);
        let stdout = OpenOptions::new().append(true).create(true).open(&log);
        let stdout = stdout.context(|| format!("cannot write {}", log.display()))?;
        let stderr = stdout.try_clone().context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(program);
        // Only its file and the options of `quorate dev` configure a node: remove the variables that would override it.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(VARIABLES)) {
            command.env_remove(name);
        }
        if let Some(archive) = archive {
            command.env(ARCHIVE_VARIABLE, archive);
        }
        let child = command
            .args(["serve", "--until-stdin-closes", "--config"])
            .arg(layout.config(id))
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context(|| format!("cannot start node {id}"))?;
        let pid = child.id().ok_or_else(|| Error::new(format!("node {id} ended at once")))?;
        let (stop, stopping) = oneshot::channel();
        let (report, ended) = watch::channel(None);
        tokio::spawn(async move {
            let how = attend(child, stopping).await;
            report.send_replace(Some(how));
        });
        Ok(Self { pid, stop: Some(stop), ended: Ended(ended) })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns a handle that reports how the process ends.
    pub fn ended(&self) -> Ended {
        self.ended.clone()
    }

    /// Asks the node to stop. It is killed if it has not stopped after ten seconds.
    pub fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Sending fails if the process has already ended.
            let _ = stop.send(());
        }
    }
}

impl Ended {
    /// Waits for the end of the process and describes it.
    pub async fn wait(&mut self) -> String {
        match self.0.wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_default(),
            Err(_) => "how it ended is unknown".to_owned(),
        }
    }
}

async fn attend(mut child: tokio::process::Child, stopping: oneshot::Receiver<()>) -> String {
    // Take the input out of the child: waiting for the child would close it, and so stop the node.
    let input = child.stdin.take();
    tokio::select! {
        status = child.wait() => return describe(status),
        _ = stopping => drop(input),
    }
    if let Ok(status) = tokio::time::timeout(STOP_MAX, child.wait()).await {
        return describe(status);
    }
    // This fails only if the process has ended meanwhile, which `wait` then reports.
    let _ = child.start_kill();
    describe(child.wait().await)
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Err(error) => format!("how it ended is unknown: {error}"),
        Ok(status) => match (status.code(), status.signal()) {
            (Some(0), _) => "it stopped".to_owned(),
            (Some(code), _) => format!("it failed with exit code {code}"),
            (None, Some(signal)) => format!("signal {signal} killed it"),
            (None, None) => status.to_string(),
        },
    }
}
