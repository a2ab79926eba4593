//! The jobs of a connection, done by the handle of a node.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use quorate::keys::{KeyCommand, limits};
use quorate::locks::LocksCommand;
use quorate::sql::{Command, CommandResult, Mode};
use quorate::users::{Credentials, Denied, Identity, UserRole};
use quorate::{Error, Failure, FailureKind, Sql};
use quorate_env::serving::Usage;
use quorate_env::{Instant, lock, sleep};
use quorate_resp::{Answered, Awaited, Done, Job, Moment, NOAUTH, Premise, Results, Store, Terms, Wait, with_code};

use super::channels::Feed;
use super::{Shared, role};

/// How many states are read at most for requests that arrived together. One state is enough, unless their replies have
/// more than [`REPLY_BYTES_MAX`](limits::REPLY_BYTES_MAX) bytes. The store refuses the commands that remain after these
/// states.
pub const STATES_MAX: usize = 4;

/// The store, as one connection sees it.
#[derive(Debug)]
pub(super) struct ClientStore {
    shared: Arc<Shared>,
    from: String,
    usage: Usage,
    /// Who has logged in. It is renewed for each job.
    user: Mutex<Option<Identity>>,
    /// How long the jobs took that were done since the last replies, without what the client has waited for.
    took: Mutex<Duration>,
    /// The events, while the client listens to some.
    feed: tokio::sync::Mutex<Option<Feed>>,
}

/// Why a job was not done: the text for the client.
type Why = String;

impl ClientStore {
    pub(super) fn new(shared: Arc<Shared>, from: String, usage: Usage) -> Self {
        let (user, took, feed) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { shared, from, usage, user, took, feed }
    }

    async fn log_in(&self, user: &Bytes, password: &Bytes) -> Answered {
        let text = |bytes: &Bytes| std::str::from_utf8(bytes).ok().map(str::to_owned);
        let Some((user, password)) = text(user).zip(text(password)) else { return Answered::Login(None) };
        let shown = Credentials::password_or_token(user, password);
        match self.shared.identify(Some(&shown), &self.from).await {
            Ok(identity) => {
                let role = role(identity.role());
                *lock(&self.user) = Some(identity);
                Answered::Login(Some(role))
            }
            Err(Denied::Wrong) => Answered::Login(None),
            Err(denied) => Answered::Failed(denied_text(&denied)),
        }
    }

    /// Checks whether the client may still do what a job needs, and returns who it is.
    async fn admit(&self, needs: UserRole) -> Result<Identity, Why> {
        let checked = match self.renewed() {
            Some(renewed) => renewed,
            None => self.shared.identify(None, &self.from).await,
        };
        let admitted = checked.and_then(|identity| identity.needs(needs).map(|()| identity));
        admitted.map_err(|denied| denied_text(&denied))
    }

    /// Returns who has logged in, as the users are now.
    pub(super) fn renewed(&self) -> Option<Result<Identity, Denied>> {
        lock(&self.user).as_ref().map(|user| self.shared.users.renew(user))
    }

    async fn write(&self, terms: Terms, commands: Vec<Command>) -> Result<Answered, Why> {
        let identity = self.admit(UserRole::Write).await?;
        let Terms { premises, is_atomic, key } = terms;
        let sql = self.shared.sql.with_role(identity.role());
        let sql = match key {
            // Users don't share names, nor do the ports.
            Some(key) => sql.with_key([identity.name().unwrap_or_default().as_bytes(), b"\0resp\0", &key].concat()),
            None => sql,
        };
        let premises = premises
            .into_iter()
            .map(|Premise { space, key, version }| sql.keys().space(space).run(KeyCommand::Expect { key, version }));
        let mode = if is_atomic { Mode::Atomic } else { Mode::Pipeline };
        match sql.run_each(mode, premises, commands).await {
            Ok(results) => Ok(Answered::Ran(results)),
            Err(Error::Failed(failure)) if failure.kind == FailureKind::Conflict => Ok(Answered::Conflict),
            Err(Error::Failed(failure)) if is_atomic => {
                Err(format!("EXECABORT Transaction discarded because of: {}", failure.message))
            }
            Err(error) => Err(text(&error)),
        }
    }

    async fn read(&self, level: Option<Bytes>, commands: Vec<Command>) -> Result<Answered, Why> {
        self.admit(UserRole::Read).await?;
        let level = level.and_then(|level| std::str::from_utf8(&level).ok().and_then(quorate_http::level));
        let sql = &self.shared.sql;
        let read = match level {
            Some(level) => self.read_on(&sql.at(level), &commands).await,
            None => self.read_on(sql, &commands).await,
        };
        read.map(Answered::Ran)
    }

    /// Reads on one state, unless there is so much to read that it takes several.
    async fn read_on(&self, sql: &Sql, mut commands: &[Command]) -> Result<Results, Why> {
        let mut results = Results::new();
        for _ in 0..STATES_MAX {
            let read = sql.read_each(commands, limits::REPLY_BYTES_MAX).await.map_err(|error| text(&error))?;
            commands = commands.get(read.len()..).unwrap_or_default();
            results.extend(read);
            if commands.is_empty() {
                break;
            }
        }
        let text = "ERR the replies to these requests have too many bytes together; send fewer requests at once";
        results.extend(commands.iter().map(|_| CommandResult::Failed(Failure::new(FailureKind::TooBig, text))));
        Ok(results)
    }

    /// Waits until it makes sense to ask again, or the time has come.
    async fn wait(&self, Wait { awaited, until, .. }: Wait) -> Result<Answered, Why> {
        let _counted = self.shared.counts.count_waiting();
        let left = until.map(|until| Duration::from_nanos(until.saturating_sub(self.shared.now())));
        let late = async {
            match left {
                Some(left) => sleep(left).await,
                None => pending().await,
            }
        };
        match awaited {
            Awaited::Lock(command) => self.wait_for_lock(command, left).await,
            Awaited::Keys { space, keys: awaited } => {
                let keys = self.shared.sql.keys().space(space);
                tokio::select! {
                    waited = keys.wait_for(awaited) => waited.map(|()| Answered::Woken).map_err(|error| text(&error)),
                    () = late => Ok(Answered::TimedOut),
                }
            }
        }
    }

    /// Waits until a lock is granted. If the client goes away meanwhile, the wait ends.
    async fn wait_for_lock(&self, command: LocksCommand, left: Option<Duration>) -> Result<Answered, Why> {
        let LocksCommand::Acquire { name, holder, ttl, permits, note, .. } = command else {
            return Ok(Answered::Woken);
        };
        let identity = self.admit(UserRole::Write).await?;
        let locks = self.shared.sql.with_role(identity.role()).locks();
        let acquire = locks.acquire(name).holder(holder).ttl(Duration::from_nanos(ttl)).permits(permits).note(note);
        match acquire.grant(left.unwrap_or(Duration::MAX)).await {
            Ok(Some(_)) => Ok(Answered::Woken),
            Ok(None) => Ok(Answered::TimedOut),
            Err(error) => Err(text(&error)),
        }
    }
}

impl Store for ClientStore {
    async fn run(&self, job: Job) -> Answered {
        let begun = Instant::now();
        let waits = matches!(job, Job::Wait(_));
        let ran = match job {
            Job::Run { is_write: true, terms, commands, .. } => self.write(terms, commands).await,
            Job::Run { commands, level, .. } => self.read(level, commands).await,
            Job::Login { user, password } => return self.log_in(&user, &password).await,
            Job::Wait(wait) => self.wait(wait).await,
        };
        if !waits {
            *lock(&self.took) += begun.elapsed();
        }
        ran.unwrap_or_else(Answered::Failed)
    }

    fn moment(&self) -> Moment {
        let Shared { env, cursors, .. } = &*self.shared;
        Moment { now: self.shared.now(), seed: env.rng().next_u64(), space: 0, cursors: Arc::clone(cursors) }
    }

    async fn begin_listening(&self) -> bool {
        let feed = self.shared.channels.begin().await;
        let begun = feed.is_some();
        *self.feed.lock().await = feed;
        begun
    }

    fn end_listening(&self) {
        // Nobody holds the lock while no event is waited for.
        if let Ok(mut feed) = self.feed.try_lock() {
            *feed = None;
        }
    }

    async fn event(&self) -> Option<(Bytes, Bytes)> {
        let mut feed = self.feed.lock().await;
        let feed = feed.as_mut()?;
        feed.ready().await?;
        // The user may be gone, or may not read any more.
        self.admit(UserRole::Read).await.ok()?;
        feed.take()
    }

    fn done(&self, Done { requests, failed, first, asking, name }: Done) {
        let Shared { counts, common, .. } = &*self.shared;
        counts.commands.add(requests as u64);
        counts.errors.add(failed as u64);
        let took = std::mem::take(&mut *lock(&self.took));
        if asking > 0 {
            let at = Duration::from_nanos(self.shared.now()).as_secs();
            common.slow_log.add(at, took, (&first, asking - 1), &self.from, &name);
        }
    }

    fn work(&self) -> impl Send {
        self.usage.work()
    }
}

/// Returns the reply for an error. `TRYAGAIN` says that nothing was done, and that the same may succeed
/// later: clients that know the code send the request again by themselves. `UNKNOWN` says that it may have been done.
fn text(error: &Error) -> Why {
    match error {
        Error::Failed(failure) => with_code(failure.message.clone()),
        Error::Unknown(_) => format!("UNKNOWN {error}"),
        Error::Forbidden(_) => format!("NOPERM {error}"),
        error if error.is_retryable() => format!("TRYAGAIN {error}"),
        error => format!("ERR {error}"),
    }
}

/// Returns the reply for a client that may not do what it asked for.
pub(super) fn denied_text(denied: &Denied) -> Why {
    match denied {
        Denied::Missing => NOAUTH.to_owned(),
        Denied::Wrong => "NOAUTH the user, or its password or token, is gone: log in again".to_owned(),
        Denied::NoUsers => {
            "NOAUTH this port lets in nobody until the cluster has users; `quorate users add` adds one".to_owned()
        }
        Denied::Forbidden { .. } => format!("NOPERM {denied}"),
        denied if denied.is_retryable() => format!("TRYAGAIN {denied}"),
        denied => format!("ERR {denied}"),
    }
}
