//! The operator who changes users: adds them, gives them tokens, and takes tokens and users away; and the check that
//! each node that has applied a change follows it.
//!
//! The operator waits for one change before the next, so it knows which tokens must be accepted and which refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate::admin::{AdminError, Login};
use quorate::users::{Credentials, Denied, NewToken, UserRole};
use quorate::{Admin, Level};
use quorate_env::{Rng, sleep};
use quorate_model::users::USERS_LEVEL;

use super::WRITE_LIMIT;
use crate::cluster::Cluster;
use crate::coverage::{TOKEN_ACCEPTED, TOKEN_REFUSED};
use crate::ledger::Ledger;

/// The longest pause between two steps, in milliseconds.
const PAUSE_MILLIS: u64 = 1_000;

/// The most tokens that the operator gives a user, which leaves room for those of which it is not certain.
const TOKENS_MAX: usize = 6;

/// The administrator, who is never changed.
const ROOT: &str = "root";

/// Where logins come from.
const FROM: &str = "10.0.0.9:5000";

/// The operator.
pub(super) struct UsersOperator {
    cluster: Cluster,
    ledger: Ledger,
    rng: Rng,
    stop: Arc<AtomicBool>,
    calm: u64,
    /// Whether there is an administrator.
    has_root: bool,
    /// The number of the next user.
    next: u64,
    /// The users that are certainly there, each with the tokens that it certainly has.
    held: BTreeMap<String, Vec<NewToken>>,
    /// Tokens that are certainly gone.
    gone: Vec<NewToken>,
}

impl UsersOperator {
    pub(super) fn new(cluster: &Cluster, ledger: &Ledger, stop: &Arc<AtomicBool>, calm: u32) -> Self {
        Self {
            cluster: cluster.clone(),
            ledger: ledger.clone(),
            rng: cluster.world().rng().fork(),
            stop: Arc::clone(stop),
            calm: calm.into(),
            has_root: false,
            next: 0,
            held: BTreeMap::new(),
            gone: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS * self.calm))).await;
            let Some(name) = self.pick_name() else { continue };
            let Some((status, admin)) = self.cluster.admin(name) else { continue };
            if status.format_level < USERS_LEVEL {
                continue;
            }
            let admin = admin.with_deadline(WRITE_LIMIT);
            match self.rng.below(8) {
                _ if !self.has_root => self.add_root(&admin).await,
                0 => self.add_user(&admin).await,
                1 => self.add_token(&admin).await,
                2 => self.remove_token(&admin).await,
                3 => self.remove_user(&admin).await,
                _ => self.check(name).await,
            }
        }
    }

    fn pick_name(&self) -> Option<&'static str> {
        let names = self.cluster.names();
        names.get(usize::try_from(self.rng.below(names.len() as u64)).ok()?).copied()
    }

    /// Returns a user that is certainly there.
    fn pick_user(&self) -> Option<String> {
        let at = usize::try_from(self.rng.below(self.held.len().max(1) as u64)).ok()?;
        self.held.keys().nth(at).cloned()
    }

    async fn add_root(&mut self, admin: &Admin) {
        // An earlier attempt may have been made; whether it was, does not matter.
        let added = admin.add_user(ROOT, UserRole::Admin, Login::Token).await;
        self.has_root = matches!(added, Ok(_) | Err(AdminError::Refused(_)));
    }

    async fn add_user(&mut self, admin: &Admin) {
        self.next += 1;
        let name = format!("user-{}", self.next);
        if let Some(token) = self.ended("add", admin.add_user(&name, UserRole::Write, Login::Token).await) {
            self.held.insert(name, token.into_iter().collect());
        }
    }

    async fn add_token(&mut self, admin: &Admin) {
        let Some(name) =
            self.pick_user().filter(|name| self.held.get(name).is_some_and(|tokens| tokens.len() < TOKENS_MAX))
        else {
            return;
        };
        if let Some(token) = self.ended("token", admin.add_token(&name).await) {
            self.held.entry(name).or_default().push(token);
        }
    }

    /// Removes a token. While that is in doubt, nothing is known about it.
    async fn remove_token(&mut self, admin: &Admin) {
        let Some(name) = self.pick_user() else { return };
        let Some(token) = self.held.get_mut(&name).and_then(Vec::pop) else { return };
        if self.ended("remove token", admin.remove_token(&name, token.hash().id()).await).is_some() {
            self.gone.push(token);
        }
    }

    async fn remove_user(&mut self, admin: &Admin) {
        let Some(name) = self.pick_user() else { return };
        let tokens = self.held.remove(&name).unwrap_or_default();
        if self.ended("remove", admin.remove_user(&name).await).is_some() {
            self.gone.extend(tokens);
        }
    }

    /// Returns the result of a change if it was made. All changes are such that they can't fail.
    fn ended<T>(&self, what: &str, changed: Result<T, AdminError>) -> Option<T> {
        self.cluster.world().trace().add("users", format_args!("{what} {:?}", changed.as_ref().err()));
        match changed {
            Ok(done) => Some(done),
            Err(AdminError::Refused(_)) if self.cluster.may_reject() => None,
            Err(error @ (AdminError::Refused(_) | AdminError::Forbidden(_))) => {
                self.cluster.history().violation(format!("a change of users ({what}) failed: {error}"));
                None
            }
            Err(_) => None,
        }
    }

    /// Checks a token that a user has, and one that is gone, on a node that has applied every change.
    async fn check(&self, name: &'static str) {
        let (Some(sql), Some(users)) = (self.cluster.sql(name), self.cluster.users(name)) else { return };
        let read = sql.at(Level::Linearizable).with_deadline(WRITE_LIMIT);
        if read.query("SELECT 1", ()).await.is_err() {
            return;
        }
        let held: Vec<&NewToken> = self.held.values().flatten().collect();
        let gone: Vec<&NewToken> = self.gone.iter().collect();
        for (tokens, is_held) in [(held, true), (gone, false)] {
            let at = usize::try_from(self.rng.below(tokens.len().max(1) as u64)).unwrap_or(0);
            let Some(token) = tokens.get(at) else { continue };
            match (users.check(Some(&Credentials::token(token.text())), FROM).await, is_held) {
                (Ok(_), true) => self.ledger.happened(TOKEN_ACCEPTED),
                (Err(Denied::Wrong), false) => self.ledger.happened(TOKEN_REFUSED),
                (Ok(_), false) => self.violation(name, token, "accepts a token that was removed"),
                (Err(Denied::Wrong), true) => self.violation(name, token, "refuses a token of a user"),
                // The node has ended, or too many wrong tokens were tried.
                (Err(_), _) => {}
            }
        }
    }

    fn violation(&self, name: &str, token: &NewToken, what: &str) {
        self.cluster.history().violation(format!("{name} {what}: {token:?}"));
    }
}
