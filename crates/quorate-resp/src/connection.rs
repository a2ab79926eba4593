//! What a connection is between its requests: its user, its database, its transaction, its subscriptions; and how a
//! request runs.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use quorate_keys::Space;

use crate::args::{Args, Moment};
use crate::audience::Audience;
use crate::batch::{Hello, Step, Terms};
use crate::control::{Control, Controls};
use crate::error::Refusal;
use crate::frame::{Frame, Protocol};
use crate::host::{Host, Role};
use crate::plan::{Plan, Premise};
use crate::slow_log::SlowLog;
use crate::summary::{Called, Labels};
use crate::table::{Access, Found, Run, find, row};

mod client;
mod clients;
mod introspect;
mod own;
mod saves;
mod server;
mod session;
mod subscriptions;
mod transaction;

pub use client::COMMANDS;
pub use introspect::HELP;
pub use own::OWN_COMMANDS;
pub use saves::SAVE_COMMANDS;
pub use server::SERVER_COMMANDS;
pub use session::REDIS_VERSION;
pub use subscriptions::{PUBSUB_COMMANDS, Subscriptions};
pub use transaction::TRANSACTION_COMMANDS;

use transaction::Transaction;

/// How a client wants its replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Replies {
    #[default]
    On,
    Off,
    /// No reply to the next request.
    SkipNext,
    /// No reply to this one.
    Skip,
}

/// What the connections of a node have in common.
#[derive(Debug, Default)]
pub struct Common {
    /// Who listens to what.
    pub audience: Audience,
    /// The requests that took long.
    pub slow_log: SlowLog,
    /// What they can do to one another.
    pub(crate) controls: Controls,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its number, which no other connection of the node has.
    pub id: u64,
    /// Where the client is.
    pub address: Arc<str>,
    /// How replies are written.
    pub protocol: Protocol,
    /// Whether it is to be closed.
    pub is_closing: bool,
    pub(crate) watched: Vec<Premise>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) common: Arc<Common>,
    pub(crate) control: Arc<Control>,
    /// When it began, in nanoseconds since 1970.
    since: u64,
    /// Who has logged in, with the role that the user had then.
    user: Option<(Bytes, Role)>,
    /// What the client may do, for the requests that are taken now. The host is asked once for all of them; each job is
    /// checked again.
    role: OnceLock<Result<Role, String>>,
    space: Space,
    labels: Labels,
    replies: Replies,
    transaction: Option<Transaction>,
    /// The terms of the transaction that is being put together.
    running: Option<Terms>,
    /// The level of reads that the client has chosen, as it has named it.
    pub(crate) level: Option<Bytes>,
    /// What the connection was before the transaction that runs. It is again if that fails.
    before: Option<transaction::State>,
    last: Called,
}

/// A request to the connection itself.
pub(crate) struct Call<'a> {
    pub connection: &'a mut Connection,
    pub args: Args<'a>,
    /// The command that it is below, if it is.
    pub of: Option<&'static str>,
    pub host: &'a dyn Host,
}

/// How the connection answers a command by itself.
pub(crate) type Local = fn(&mut Call) -> Result<Step, Refusal>;

impl Connection {
    /// Returns a new connection that has begun now, in nanoseconds since 1970.
    pub fn new(id: u64, address: impl Into<Arc<str>>, now: u64, common: Arc<Common>) -> Self {
        Self {
            id,
            address: address.into(),
            protocol: Protocol::default(),
            is_closing: false,
            watched: Vec::new(),
            subscriptions: Subscriptions::new(Arc::clone(&common)),
            control: common.controls.of(id),
            common,
            since: now,
            user: None,
            role: OnceLock::new(),
            space: 0,
            labels: Default::default(),
            replies: Replies::On,
            transaction: None,
            running: None,
            level: None,
            before: None,
            last: Called::default(),
        }
    }

    /// Returns whether the client listens to events.
    pub fn is_listening(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Begins to take requests: what the host has said before may have changed.
    pub(crate) fn begin(&mut self) {
        self.role = OnceLock::new();
    }

    /// Returns what the client may do.
    ///
    /// # Errors
    ///
    /// The reply to a client that may do nothing.
    pub fn role(&self, host: &dyn Host) -> Result<Role, &str> {
        let ask = || self.user.as_ref().map_or_else(|| host.anonymous(), |(_, role)| host.renewed(*role));
        self.role.get_or_init(ask).as_ref().copied().map_err(String::as_str)
    }

    /// Returns whether a request waits until those before it were answered: it depends on their answers, or those after
    /// it depend on its own.
    pub(crate) fn is_alone(&self, words: &[Bytes]) -> bool {
        let spec = words.first().and_then(|name| find(name));
        let has_terms = || !self.watched.is_empty() || self.transaction.as_ref().is_some_and(Transaction::is_alone);
        spec.is_some_and(|spec| spec.is_alone || (spec.name == "exec" && has_terms()))
    }

    /// Returns the name that the client has given the connection.
    pub(crate) fn name(&self) -> &Bytes {
        &self.labels.name
    }

    /// Returns whether the client wants no reply to the request that ran last.
    pub(crate) fn mutes(&mut self) -> bool {
        let is_muted = matches!(self.replies, Replies::Off | Replies::Skip | Replies::SkipNext);
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            other => other,
        };
        is_muted
    }

    /// Runs a request.
    pub(crate) fn run(&mut self, words: &[Bytes], moment: &Moment, host: &dyn Host) -> Result<Step, Refusal> {
        let found = self.check(words, host).map_err(|refusal| self.refused(words, refusal))?;
        let spec = found.spec;
        self.last = Called::new(found.of, spec.name);
        match &mut self.transaction {
            Some(transaction) if !transaction::runs_at_once(found) => transaction.queue(words, spec),
            _ => self.call(found, moment, host),
        }
    }

    /// Finds the row of a request, and checks whether the client may send it now.
    fn check<'a>(&self, words: &'a [Bytes], host: &dyn Host) -> Result<Found<'a>, Refusal> {
        let found = row(words)?;
        let spec = found.spec;
        match self.role(host) {
            _ if spec.before_login => {}
            Err(why) => return Err(Refusal::NoRole(why.to_owned())),
            Ok(Role::Read) if spec.access == Access::Write => {
                return Err(Refusal::NoPermission { user: self.user_name(), command: found.name() });
            }
            Ok(Role::Read | Role::Write) => {}
        }
        if self.protocol == Protocol::Two && !self.subscriptions.is_empty() && !subscriptions::is_allowed(found) {
            return Err(Refusal::Subscribed(found.name()));
        }
        if self.transaction.is_some() && transaction::is_refused(found) {
            return Err(Refusal::InTransaction(found.name()));
        }
        if self.transaction.is_some() && own::is_query(found, host) {
            return Err(Refusal::Text("ERR in a transaction, Q.SQL is for statements that write; query before MULTI"));
        }
        Ok(found)
    }

    /// Has the transaction fail that has begun; EXEC ends it.
    fn refused(&mut self, words: &[Bytes], refusal: Refusal) -> Refusal {
        if let Some(transaction) = &mut self.transaction {
            transaction.fail();
        }
        if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"EXEC")) {
            (self.transaction, self.watched) = (None, Vec::new());
            return Refusal::ExecAborted(refusal.to_string());
        }
        refusal
    }

    fn user_name(&self) -> String {
        self.user.as_ref().map_or("default".into(), |(user, _)| String::from_utf8_lossy(user).into_owned())
    }

    /// Runs a request whose row is known.
    fn call(&mut self, found: Found<'_>, moment: &Moment, host: &dyn Host) -> Result<Step, Refusal> {
        let moment = Moment { space: self.space, ..moment.clone() };
        let Found { of, spec, word, arguments } = found;
        let mut args = Args::new(spec.name, word, arguments, &moment);
        let step = match spec.run {
            Run::Keys(plan) => {
                let mut plan = plan(&mut args)?;
                plan.is_write = spec.access == Access::Write;
                Step::Plan(plan)
            }
            Run::Local(run) | Run::Sub(_, Some(run)) => run(&mut Call { connection: self, args, of, host })?,
            Run::Sub(_, None) => return Err(Refusal::Syntax),
        };
        match step {
            // Whether a statement of SQL writes is not known before it was read.
            Step::Plan(Plan { is_write: true, .. })
                if spec.access != Access::Write && self.role(host) != Ok(Role::Write) =>
            {
                Err(Refusal::NoPermission { user: self.user_name(), command: found.name() })
            }
            step => Ok(step),
        }
    }

    /// Takes a login that is right if it has a role.
    pub(crate) fn log_in(&mut self, user: Bytes, role: Option<Role>, hello: Option<Hello>) -> Frame {
        let Some(role) = role else {
            return Frame::error("WRONGPASS invalid username-password pair or user is disabled.");
        };
        self.user = Some((user, role));
        match hello {
            Some(hello) => self.greet(hello),
            None => Frame::OK,
        }
    }
}
