//! One database that is archived, until it is stopped; then it can be started again.
//!
//! Invariants:
//! - At most one task archives it. The next one is begun after the last one has closed all files of the database.
//! - An error ends the task only if another process has taken the archive over, or if the whole process is to end with
//!   it. Otherwise it is tried again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quorate::archive::{ArchiveError, Objects};
use quorate_env::{Env, JoinHandle, timeout};
use quorate_replicate::{Options, ReplicateError, Status};
use quorate_server::http::Refusal;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::utc;

/// How long to wait before a database is tried again whose error would not pass by itself.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// What follows on a request, and takes its time.
pub type Pending = BoxFuture<'static, Result<Value, Refusal>>;

/// What is to be archived, and where.
pub struct Job {
    pub env: Env,
    pub path: PathBuf,
    /// The place, without credentials.
    pub url: String,
    pub objects: Arc<dyn Objects>,
    pub options: Options,
    /// Whether the process ends if the database can't be archived.
    pub is_vital: bool,
}

/// A database.
pub struct Database {
    job: Arc<Job>,
    /// Its name in the configuration, or the directory where it was found.
    pub origin: PathBuf,
    status: watch::Sender<Status>,
    state: watch::Sender<State>,
    stop: watch::Sender<bool>,
    /// Ends the wait before the next try.
    wake: Arc<Notify>,
    task: JoinHandle<Result<(), ReplicateError>>,
    /// Whether it is forgotten once it is stopped.
    is_leaving: bool,
}

/// What the task of a database does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// It waits before the next try.
    Failing(String),
    /// It has ended; not `is_asked` if nobody had asked for it.
    Ended {
        is_asked: bool,
        error: Option<String>,
    },
}

impl Database {
    /// Begins to archive a database.
    pub fn begin(job: Job, origin: &Path) -> Self {
        let (status, state, stop) =
            (watch::Sender::default(), watch::Sender::new(State::Running), watch::Sender::new(false));
        let (job, wake) = (Arc::new(job), Arc::default());
        let task = spawn(&job, &status, &state, &stop, &wake);
        Self { job, origin: origin.to_owned(), status, state, stop, wake, task, is_leaving: false }
    }

    /// Returns where it goes.
    pub fn url(&self) -> &str {
        &self.job.url
    }

    /// Returns how far it is, from now on.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Returns what its task does, from now on.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Whether it was unregistered, and has stopped.
    pub fn has_left(&self) -> bool {
        self.is_leaving && self.has_ended()
    }

    /// Checks that it is not being unregistered.
    pub fn check_not_leaving(&self) -> Result<(), Refusal> {
        match self.is_leaving {
            true => self.check_not_stopped(),
            false => Ok(()),
        }
    }

    /// Ends its task at once.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Waits for its end. Returns its path, and how far it is or why that is not all.
    pub async fn ended(self) -> (PathBuf, Result<Status, String>) {
        let result = match self.task.await {
            Ok(Ok(())) => Ok(self.status.borrow().clone()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        (self.job.path.clone(), result)
    }

    /// Archives it again, at once if it waits before the next try.
    pub fn start(&mut self) -> Result<Value, Refusal> {
        if self.has_ended() && !self.is_leaving {
            self.stop.send_replace(false);
            self.state.send_replace(State::Running);
            self.task = spawn(&self.job, &self.status, &self.state, &self.stop, &self.wake);
            return Ok(json!({"status": "started", "path": self.job.path}));
        }
        self.check_not_stopped()?;
        self.try_now();
        Ok(json!({"status": "already_running", "path": self.job.path}))
    }

    /// Tells it to archive what has changed, and to end. Does not wait for it.
    pub fn tell_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Archives what has changed, and lets go of the database. One that `is_leaving` is forgotten.
    pub fn stop(&mut self, limit: Duration, is_leaving: bool) -> Pending {
        self.tell_to_stop();
        self.is_leaving |= is_leaving;
        let (mut state, path, done) =
            (self.state(), self.job.path.clone(), if is_leaving { "unregistered" } else { "stopped" });
        let stopped = async move {
            let ended = timeout(limit, state.wait_for(|state| matches!(state, State::Ended { .. }))).await;
            let Ok(Ok(ended)) = ended else {
                return Err(Refusal::Late(format!(
                    "after {limit:?}, the last changes are still being archived, and the database is in use: \
                     ask again, or name a longer timeout"
                )));
            };
            match &*ended {
                State::Ended { error: Some(error), .. } => Err(Refusal::Failed(format!(
                    "the database is {done}, but what has changed last may not be in the store: {error}"
                ))),
                _ => Ok(json!({"status": done, "path": path})),
            }
        };
        stopped.boxed()
    }

    /// Archives at once what has changed. Without a limit, nobody waits for it.
    pub fn sync(&self, limit: Option<Duration>) -> Result<Pending, Refusal> {
        self.check_not_stopped()?;
        if let State::Ended { error, .. } = &*self.state.borrow() {
            let why = error.clone().unwrap_or_default();
            return Err(Refusal::Conflict(format!("the database is not archived: {why}; start it again")));
        }
        self.try_now();
        let number = self.job.options.syncs.ask();
        let status = self.status();
        let Some(limit) = limit else {
            let answer = synced("requested", &status.borrow());
            return Ok(async { Ok(answer) }.boxed());
        };
        Ok(until_synced(number, status, self.state(), limit).boxed())
    }

    /// Returns what is known of it.
    pub fn shown(&self) -> Value {
        let status = self.status.borrow();
        let (state, error) = match (&*self.state.borrow(), *self.stop.borrow()) {
            (State::Ended { is_asked: true, error }, _) => ("stopped", error.clone()),
            (State::Ended { error, .. }, _) => ("failing", error.clone()),
            (_, true) => ("stopping", status.error.clone()),
            (State::Failing(error), _) => ("failing", Some(error.clone())),
            (State::Running, _) if status.error.is_some() => ("failing", status.error.clone()),
            (State::Running, _) => ("running", None),
        };
        let is_stored = status.boundary > 0;
        let stored_at = utc::seconds_text(u64::try_from(status.time).unwrap_or(0) / 1000);
        let lag = if state == "stopped" { Duration::ZERO } else { status.lag() };
        json!({
            "path": self.job.path,
            "url": self.job.url,
            "state": state,
            "error": error,
            "txid": status.taken,
            "replicated_txid": status.boundary,
            "replicated_at": is_stored.then_some(stored_at),
            "generation": status.generation,
            "cluster": status.cluster.map(|cluster| format!("{cluster:032x}")),
            "lag_seconds": lag.as_secs_f64(),
            "lag_bytes": status.behind_bytes,
        })
    }

    fn has_ended(&self) -> bool {
        matches!(*self.state.borrow(), State::Ended { .. })
    }

    fn check_not_stopped(&self) -> Result<(), Refusal> {
        match (*self.stop.borrow(), self.has_ended()) {
            (false, _) => Ok(()),
            (true, true) => Err(Refusal::Conflict("the database is stopped: start it first".to_owned())),
            (true, false) => Err(Refusal::Conflict("the database is being stopped: ask again soon".to_owned())),
        }
    }

    /// Ends the wait before the next try, if it waits.
    fn try_now(&self) {
        if self.state.send_if_modified(|state| {
            let is_waiting = matches!(state, State::Failing(_));
            if is_waiting {
                *state = State::Running;
            }
            is_waiting
        }) {
            self.wake.notify_one();
        }
    }
}

/// Waits until a request to archive everything is fulfilled.
async fn until_synced(
    number: u64,
    mut status: watch::Receiver<Status>,
    mut state: watch::Receiver<State>,
    limit: Duration,
) -> Result<Value, Refusal> {
    let before = status.borrow().boundaries;
    let waiting = async {
        tokio::select! {
            biased;
            _ = status.wait_for(|status| status.synced >= number) => State::Running,
            state = state.wait_for(|state| *state != State::Running) => match state {
                Ok(state) => state.clone(),
                Err(_) => State::Ended { is_asked: true, error: None },
            }
        }
    };
    let state = timeout(limit, waiting).await;
    let now = status.borrow();
    match state {
        Ok(State::Running) => Ok(synced(if now.boundaries == before { "no_change" } else { "synced" }, &now)),
        Ok(State::Failing(error) | State::Ended { error: Some(error), .. }) => {
            Err(Refusal::Failed(format!("the database could not be archived: {error}")))
        }
        Ok(State::Ended { error: None, .. }) => {
            Err(Refusal::Conflict("the database was stopped meanwhile: start it first".to_owned()))
        }
        Err(_) => {
            let why = now.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            let hint = "it is tried again; ask again, or name a longer timeout";
            Err(Refusal::Late(format!("not everything is in the store after {limit:?}{why}; {hint}")))
        }
    }
}

fn synced(what: &str, status: &Status) -> Value {
    json!({"status": what, "txid": status.taken, "replicated_txid": status.boundary})
}

/// Begins a task that archives a database.
fn spawn(
    job: &Arc<Job>,
    status: &watch::Sender<Status>,
    state: &watch::Sender<State>,
    stop: &watch::Sender<bool>,
    wake: &Arc<Notify>,
) -> JoinHandle<Result<(), ReplicateError>> {
    let (status, state, stopped) = (status.clone(), state.clone(), stop.subscribe());
    let (env, job, wake) = (job.env.clone(), Arc::clone(job), Arc::clone(wake));
    env.spawn(async move {
        let result = archive(&job, status, &state, stopped.clone(), &wake).await;
        let error = result.as_ref().err().map(ToString::to_string);
        state.send_replace(State::Ended { is_asked: *stopped.borrow(), error });
        result
    })
}

/// Archives a database until a request, or the end of the process, stops it. After an error the task begins anew,
/// unless another process has taken the archive over: the two would take it from each other for ever.
async fn archive(
    job: &Job,
    status: watch::Sender<Status>,
    state: &watch::Sender<State>,
    mut stopped: watch::Receiver<bool>,
    wake: &Notify,
) -> Result<(), ReplicateError> {
    let Job { env, path, objects, options, is_vital, .. } = job;
    loop {
        let mut stop = stopped.clone();
        // If the sender is gone, nobody waits for the end.
        let until = async move { drop(stop.wait_for(|is_stopped| *is_stopped).await) };
        let (objects, options) = (Arc::clone(objects), options.clone());
        let Err(error) = quorate_replicate::replicate(env, path, objects, options, status.clone(), until).await else {
            return Ok(());
        };
        tracing::error!(database = %path.display(), %error, "the database is not archived");
        let is_final = *is_vital || matches!(error, ReplicateError::Archive(ArchiveError::Fenced { .. }));
        if is_final || *stopped.borrow() {
            return Err(error);
        }
        state.send_replace(State::Failing(error.to_string()));
        tokio::select! {
            _ = stopped.wait_for(|is_stopped| *is_stopped) => return Err(error),
            _ = timeout(RETRY_INTERVAL, wake.notified()) => {}
        }
        state.send_replace(State::Running);
    }
}
