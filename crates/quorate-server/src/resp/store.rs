//! The jobs of a connection, done by the handle of a node.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use quorate::keys::{Answers, KeyCommand, KeysCommand, KeysReply, SpaceCommand, limits};
use quorate::users::{Credentials, Denied, UserRole};
use quorate::{Error, Failure, FailureKind};
use quorate_env::{lock, sleep};
use quorate_resp::{Answered, Done, Job, Moment, Premise, Store, Wait, with_code};

use super::channels::Feed;
use super::{Shared, role};

/// How many states are read at most for requests that arrived together. One state is enough, unless their replies have
/// more than [`REPLY_BYTES_MAX`](limits::REPLY_BYTES_MAX) bytes. The store refuses the commands that remain after these
/// states.
pub const STATES_MAX: usize = 4;

/// How long a client that waits for a key is at most not told of a change that another one was told of in vain.
pub const WAIT_LOOK: Duration = Duration::from_secs(1);

/// The store, as one connection sees it.
#[derive(Debug)]
pub(super) struct ClientStore {
    shared: Arc<Shared>,
    from: String,
    /// What the client has logged in with. It is checked again for each job.
    shown: Mutex<Option<Credentials>>,
    /// The events, while the client listens to some.
    feed: tokio::sync::Mutex<Option<Feed>>,
}

/// Why a job was not done: the text for the client.
type Why = String;

impl ClientStore {
    pub(super) fn new(shared: Arc<Shared>, from: String) -> Self {
        Self { shared, from, shown: Mutex::default(), feed: tokio::sync::Mutex::default() }
    }

    async fn log_in(&self, user: &Bytes, password: &Bytes) -> Answered {
        let text = |bytes: &Bytes| std::str::from_utf8(bytes).ok().map(str::to_owned);
        let Some((user, password)) = text(user).zip(text(password)) else { return Answered::Login(None) };
        let shown = Credentials::password_or_token(user, password);
        match self.shared.identify(Some(&shown), &self.from).await {
            Ok(identity) => {
                *lock(&self.shown) = Some(shown);
                Answered::Login(Some(role(identity.role())))
            }
            Err(Denied::Wrong) => Answered::Login(None),
            Err(denied) => Answered::Failed(denied_text(&denied)),
        }
    }

    /// Checks whether the client may still do what a job needs.
    async fn admit(&self, needs: UserRole) -> Result<(), Why> {
        let shown = lock(&self.shown).clone();
        let checked = self.shared.identify(shown.as_ref(), &self.from).await;
        checked.and_then(|identity| identity.needs(needs)).map_err(|denied| {
            if denied == Denied::Wrong {
                // Else each request would count as another failed login.
                *lock(&self.shown) = None;
            }
            denied_text(&denied)
        })
    }

    async fn keys(&self, is_write: bool, premises: Vec<Premise>, commands: Vec<SpaceCommand>) -> Result<Answered, Why> {
        let is_write = is_write || !premises.is_empty();
        self.admit(if is_write { UserRole::Write } else { UserRole::Read }).await?;
        if !is_write {
            return self.read(&commands).await.map(Answered::Keys);
        }
        let keys = &self.shared.keys;
        let premises = premises
            .into_iter()
            .map(|Premise { space, key, version }| keys.space(space).run(KeyCommand::Expect { key, version }));
        match keys.run_each(premises, commands).await {
            Ok(answers) => Ok(Answered::Keys(answers)),
            Err(Error::Failed(failure)) if failure.kind == FailureKind::Conflict => Ok(Answered::Conflict),
            Err(error) => Err(text(&error)),
        }
    }

    /// Adds an event, and answers how many connections of this port listen, to whatever channel.
    async fn publish(&self, channel: &Bytes, payload: Bytes) -> Result<Answered, Why> {
        self.admit(UserRole::Write).await?;
        let Ok(channel) = std::str::from_utf8(channel) else {
            return Err("ERR the name of a channel must be UTF-8".to_owned());
        };
        self.shared.events.notify(channel, payload).await.map_err(|error| text(&error))?;
        Ok(Answered::Published(self.shared.channels.listening() as u64))
    }

    /// Reads on one state, unless there is so much to read that it takes several.
    async fn read(&self, mut commands: &[SpaceCommand]) -> Result<Answers, Why> {
        let mut answers = Answers::new();
        for _ in 0..STATES_MAX {
            let read = self.shared.keys.read_each(commands, limits::REPLY_BYTES_MAX).await;
            let read = read.map_err(|error| text(&error))?;
            commands = commands.get(read.len()..).unwrap_or_default();
            answers.extend(read);
            if commands.is_empty() {
                break;
            }
        }
        let text = "ERR the replies to these requests have too many bytes together; send fewer requests at once";
        answers.extend(commands.iter().map(|_| Err(Failure::new(FailureKind::TooBig, text))));
        Ok(answers)
    }

    /// Waits until one of the keys is there, or the time has come.
    async fn wait(&self, Wait { space, keys, until, .. }: Wait) -> Result<Answered, Why> {
        let Shared { keys: handle, counts, .. } = &*self.shared;
        let _counted = counts.count_waiting();
        let exist = KeysCommand::Key(KeyCommand::Exists { keys: keys.clone() });
        let look = [SpaceCommand { space, command: exist }];
        let late = async {
            match until {
                Some(until) => sleep(Duration::from_nanos(until.saturating_sub(self.shared.now()))).await,
                None => pending().await,
            }
        };
        let there = async {
            loop {
                // In line first, and then look: so no change is missed.
                let mut line = handle.space(space).line(keys.clone()).await.map_err(|error| text(&error))?;
                let found = handle.read_each(&look, limits::REPLY_BYTES_MAX).await.map_err(|error| text(&error))?;
                if found.iter().flatten().any(|reply| !matches!(reply, KeysReply::Count(0))) {
                    return Ok(Answered::Woken);
                }
                tokio::select! {
                    () = line.turn() => return Ok(Answered::Woken),
                    () = sleep(WAIT_LOOK) => {}
                }
            }
        };
        tokio::select! {
            answered = there => answered,
            () = late => Ok(Answered::TimedOut),
        }
    }
}

impl Store for ClientStore {
    async fn run(&self, job: Job) -> Answered {
        let ran = match job {
            Job::Keys { is_write, premises, commands } => self.keys(is_write, premises, commands).await,
            Job::Login { user, password } => return self.log_in(&user, &password).await,
            Job::Wait(wait) => self.wait(wait).await,
            Job::Publish { channel, payload } => self.publish(&channel, payload).await,
        };
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
        let event = feed.take()?;
        Some((event.channel.into(), event.payload))
    }

    fn done(&self, Done { requests, failed }: Done) {
        self.shared.counts.commands.add(requests as u64);
        self.shared.counts.errors.add(failed as u64);
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
fn denied_text(denied: &Denied) -> Why {
    match denied {
        Denied::Missing => "NOAUTH Authentication required.".to_owned(),
        Denied::Wrong => "NOAUTH the user, or its password or token, is gone: log in again".to_owned(),
        Denied::NoUsers => {
            "NOAUTH this port lets in nobody until the cluster has users; `quorate users add` adds one".to_owned()
        }
        Denied::Forbidden { .. } => format!("NOPERM {denied}"),
        denied if denied.is_retryable() => format!("TRYAGAIN {denied}"),
        denied => format!("ERR {denied}"),
    }
}
