//! `quorate locks` and `.locks`: locks for people.
//!
//! Invariant: the shell renews no lease. What it acquires ends with its time, or is given back by the name of its
//! holder.

use std::time::Duration;

use futures_util::stream::try_unfold;
use quorate::locks::{Claim, LockInfo, LocksCommand, LocksReply, Token};
use quorate::{Locks, Value};

use crate::error::{Error, Result};
use crate::format::plural;
use crate::shell::Shell;
use crate::values::{seconds, shown, value};

/// What is done with locks.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Prints who holds the locks whose names start with a prefix, and who waits for them.
    List {
        /// The prefix.
        prefix: Vec<u8>,
    },
    /// Acquires a lock, and prints its holder, its token, and how long the lease lasts.
    Acquire {
        /// The lock.
        name: Vec<u8>,
        /// Who is to hold it; a random name if nothing is given.
        holder: Option<Vec<u8>>,
        /// How long the lease lasts.
        ttl: Duration,
        /// How long to wait for it.
        wait: Duration,
        /// How many may hold it at a time.
        permits: u64,
        /// What others may read.
        note: Vec<u8>,
    },
    /// Gives a lock back, or ends a wait.
    Release {
        /// The lock.
        name: Vec<u8>,
        /// Who holds it or waits for it.
        holder: Vec<u8>,
    },
    /// Takes a lock from those who hold it, or only from the one with a token.
    Force {
        /// The lock.
        name: Vec<u8>,
        /// The token.
        token: Option<Token>,
    },
}

impl Shell {
    /// Does something with locks.
    ///
    /// # Errors
    ///
    /// If the lock is not free, or nobody holds it, and those of the cluster.
    pub async fn locks(&mut self, action: Action) -> Result<()> {
        let locks = self.client.sql().at(self.level.into()).locks();
        match action {
            Action::List { prefix } => self.list_locks(locks, prefix).await,
            Action::Acquire { name, holder, ttl, wait, permits, note } => {
                let acquire = locks.acquire(&name[..]).ttl(ttl).permits(permits).note(note);
                let acquire = match holder {
                    Some(holder) => acquire.holder(holder),
                    None => acquire,
                };
                let busy = || Error::new(format!("others hold '{0}': see who by `quorate locks ls {0}`", shown(&name)));
                let grant = self.sending(acquire.grant(wait)).await?.ok_or_else(busy)?;
                let row = vec![value(&grant.holder), number(grant.token), seconds(grant.left)];
                self.print(&["holder", "token", "left"], [row])
            }
            Action::Release { name, holder } => {
                let release = LocksCommand::Release { name: name.clone().into(), holder: holder.clone().into() };
                match self.sending(locks.run(release).into_future()).await? {
                    LocksReply::Missing => {
                        let (name, holder) = (shown(&name), shown(&holder));
                        Err(Error::new(format!("'{holder}' neither holds '{name}' nor waits for it")))
                    }
                    _ => self.remark("OK\n"),
                }
            }
            Action::Force { name, token } => {
                let ended = self.sending(locks.force(&name[..], token).into_future()).await?.len();
                let count = u64::try_from(ended).unwrap_or(u64::MAX);
                self.remark(&format!("OK, {count} {} ended\n", plural(count, "lease")))
            }
        }
    }

    async fn list_locks(&mut self, locks: Locks, prefix: Vec<u8>) -> Result<()> {
        let pages = try_unfold(Some(prefix.clone()), move |from: Option<Vec<u8>>| {
            let (locks, prefix) = (locks.clone(), prefix.clone());
            async move {
                let Some(from) = from else { return Ok(None) };
                let page = locks.list_from(prefix, from).await?;
                let next = page.next.map(|next| next.to_vec());
                Ok(Some((page.rows.iter().flat_map(rows).collect(), next)))
            }
        });
        let columns = ["name", "permits", "state", "holder", "token", "left", "note"];
        self.stream_rows(&columns, Box::pin(pages)).await
    }
}

/// Returns a row for each lease of a lock, and for each wait.
fn rows(lock: &LockInfo) -> Vec<Vec<Value>> {
    let row = |state: &str, claim: &Claim| {
        vec![
            value(&lock.name),
            Value::Integer(lock.permits.cast_signed()),
            Value::Text(state.to_owned()),
            value(&claim.holder),
            number(claim.token),
            seconds(Duration::from_nanos(claim.left)),
            value(&claim.note),
        ]
    };
    let held = lock.holders.iter().map(|claim| row("held", claim));
    held.chain(lock.waiters.iter().map(|claim| row("waiting", claim))).collect()
}

fn number(token: Token) -> Value {
    Value::Integer(token.0.cast_signed())
}
