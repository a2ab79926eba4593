//! The check of credentials on one node.
//!
//! # Invariants
//!
//! - At most [`HASHES_AT_ONCE`] passwords are hashed at a time, on other threads, and at most [`HASHES_WAITING_MAX`]
//!   wait for that.
//! - A password that was found right is not hashed again for [`PROVEN_FOR`], unless the user has changed since. What is
//!   kept for that is keyed: it can't be tested against guesses without this process' memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use quorate_apply::Users as Present;
use quorate_env::{Env, Instant, lock, sleep};
use quorate_model::{TokenHash, User, Verifier};
use sha2::Sha256;
use tokio::sync::Semaphore;

use super::failures::{Failures, Place};
use super::secrets::{PASSWORD_BYTES_MAX, is_password, token_hash};
use super::{Credentials, Denied, Identity};
use crate::metrics::LoginMetrics;
use crate::node::Gateway;

/// How many passwords a node hashes at a time; each takes 19 MiB and a core for some tens of milliseconds.
pub const HASHES_AT_ONCE: usize = 2;

/// How many more may wait for that.
pub const HASHES_WAITING_MAX: usize = 64;

/// For how long a password that was found right is not hashed again, so that a client that sends it with each request
/// does not wait for that each time.
pub const PROVEN_FOR: Duration = Duration::from_secs(60);

/// The most passwords for which that is remembered.
pub const PROVEN_MAX: usize = 1_024;

/// A keyed hash.
type Keyed = [u8; 32];

/// The state of the check; see the module.
pub(crate) struct Logins {
    /// A keyed hash that has taken nothing in yet.
    mac: Hmac<Sha256>,
    failures: Failures,
    proven: Mutex<BTreeMap<Keyed, Proven>>,
    /// Permits to hash, and those to wait for one of them too.
    hashing: Semaphore,
    waiting: Semaphore,
}

/// A password that was found right.
struct Proven {
    name: String,
    verifier: Verifier,
    until: Instant,
}

impl Logins {
    pub(crate) fn new(env: &Env) -> Self {
        Self {
            mac: keyed_hash(env),
            failures: Failures::default(),
            proven: Mutex::default(),
            hashing: Semaphore::new(HASHES_AT_ONCE),
            waiting: Semaphore::new(HASHES_AT_ONCE.saturating_add(HASHES_WAITING_MAX)),
        }
    }

    /// Returns who shows these credentials, among the users that the node has applied.
    pub(crate) async fn check(
        &self,
        gateway: &Gateway,
        credentials: &Credentials,
        from: &str,
    ) -> Result<Identity, Denied> {
        let checked = match credentials {
            Credentials::Token(token) => self.token(gateway, token, from).await,
            Credentials::Password { name, password } => self.password(gateway, name, password, from).await,
        };
        let LoginMetrics { succeeded, failed, delayed } = &gateway.metrics.logins;
        match &checked {
            Ok(_) => succeeded.inc(),
            Err(Denied::TooMany(_) | Denied::Busy) => delayed.inc(),
            Err(_) => failed.inc(),
        }
        checked
    }

    /// A right token never waits: nobody can guess one.
    async fn token(&self, gateway: &Gateway, token: &str, from: &str) -> Result<Identity, Denied> {
        let places = [Place::of(from)];
        if let Some(identity) = self.of_token(&gateway.store.users(), token) {
            return Ok(identity);
        }
        let wait = self.failures.turn(&places, Instant::now()).map_err(Denied::TooMany)?;
        self.failures.failed(&places, Instant::now());
        sleep(wait).await;
        Err(Denied::Wrong)
    }

    fn of_token(&self, users: &Present, token: &str) -> Option<Identity> {
        let hash = token_hash(token);
        let user = users.of_token(hash.id())?;
        let is_it = |known: &TokenHash| self.keyed(&[known.bytes()]) == self.keyed(&[hash.bytes()]);
        user.tokens.iter().any(|token| is_it(&token.hash)).then(|| Identity::of_token(user, hash))
    }

    async fn password(&self, gateway: &Gateway, name: &str, password: &str, from: &str) -> Result<Identity, Denied> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(Denied::Wrong);
        }
        let shown = self.keyed(&[name.as_bytes(), password.as_bytes()]);
        if let Some(identity) = self.proven(&gateway.store.users(), name, shown) {
            return Ok(identity);
        }
        let places = [Place::name(name), Place::of(from)];
        let wait = self.failures.turn(&places, Instant::now()).map_err(Denied::TooMany)?;
        if !wait.is_zero() {
            sleep(wait).await;
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| Denied::Busy)?;
        // The semaphore is never closed.
        let _hashing = self.hashing.acquire().await.map_err(|_| Denied::Closed)?;
        // Another login of the same user may have been checked meanwhile.
        if let Some(identity) = self.proven(&gateway.store.users(), name, shown) {
            return Ok(identity);
        }
        let verifier = gateway.store.users().get(name).and_then(|user| user.verifier.clone());
        let (known, text) = (verifier.clone(), password.to_owned());
        let is_right = gateway.env.blocking(move || is_password(known.as_ref(), &text)).await.ok_or(Denied::Closed)?;
        // The password may have been changed meanwhile, and the user removed.
        let present = gateway.store.users();
        let verifier = verifier.filter(|_| is_right);
        let user = verifier.as_ref().and_then(|verifier| with_verifier(&present, name, verifier));
        let (Some(user), Some(verifier)) = (user, verifier.clone()) else {
            self.failures.failed(&places, Instant::now());
            return Err(Denied::Wrong);
        };
        self.failures.succeeded(&places);
        self.prove(shown, Proven { name: name.to_owned(), verifier, until: Instant::now() + PROVEN_FOR });
        Ok(Identity::of_password(user))
    }

    fn proven(&self, users: &Present, name: &str, shown: Keyed) -> Option<Identity> {
        let mut all = lock(&self.proven);
        let proven = all.get(&shown)?;
        let user = with_verifier(users, name, &proven.verifier);
        if let Some(user) = user.filter(|_| proven.until > Instant::now() && proven.name == name) {
            return Some(Identity::of_password(user));
        }
        all.remove(&shown);
        None
    }

    fn prove(&self, shown: Keyed, proven: Proven) {
        let (mut all, now) = (lock(&self.proven), Instant::now());
        if all.len() >= PROVEN_MAX {
            all.retain(|_, proven| proven.until > now);
        }
        if all.len() >= PROVEN_MAX {
            all.clear();
        }
        all.insert(shown, proven);
    }

    /// Returns a keyed hash of parts. Comparing two of them shows nothing about the parts, however long it takes.
    fn keyed(&self, parts: &[&[u8]]) -> Keyed {
        let mut mac = self.mac.clone();
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// Returns a keyed hash under a random key.
#[expect(clippy::expect_used, reason = "an HMAC takes a key of any length")]
fn keyed_hash(env: &Env) -> Hmac<Sha256> {
    let mut key = Keyed::default();
    env.rng().fill(&mut key);
    Hmac::new_from_slice(&key).expect("a key of any length")
}

/// Returns the user with this name as it is now, if the password is still the one that `verifier` belongs to.
fn with_verifier<'a>(users: &'a Present, name: &str, verifier: &Verifier) -> Option<&'a Arc<User>> {
    users.get(name).filter(|user| user.verifier.as_ref() == Some(verifier))
}
