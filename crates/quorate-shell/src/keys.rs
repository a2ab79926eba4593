//! `quorate keys` and `.keys`: keys for people.
//!
//! Invariant: each key is printed as what it holds.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::TryStreamExt as _;
use quorate::keys::{Condition, KeyEntry, KeyInfo, Kind, Put, Space};
use quorate::{Keys, Value};

use crate::error::{Context as _, Error, Result};
use crate::format::plural;
use crate::output::Stdout;
use crate::shell::Shell;
use crate::values::{seconds, shown, value};

/// The rows of a page of a sorted set or a list.
const PAGE_ROWS: u64 = 1_000;

/// What is done with keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Prints the keys that start with a prefix, in the order of their bytes.
    List {
        /// The prefix.
        prefix: Vec<u8>,
        /// Only keys that hold this.
        kind: Option<Kind>,
    },
    /// Prints what a key holds.
    Get(Vec<u8>),
    /// Writes the bytes of a string as they are to the standard output.
    Raw(Vec<u8>),
    /// Sets a key to a string.
    Set {
        /// The key.
        key: Vec<u8>,
        /// The string.
        value: Vec<u8>,
        /// After which time it expires.
        ttl: Option<Duration>,
        /// What has to hold.
        condition: Condition,
    },
    /// Removes keys.
    Delete(Vec<Vec<u8>>),
    /// Prints what there is to know of a key: its type, its version, and the seconds until it expires.
    Describe(Vec<u8>),
    /// Lets a key expire after a time; without one, no longer.
    Expire(Vec<u8>, Option<Duration>),
}

impl Shell {
    /// Does something with the keys of a space.
    ///
    /// # Errors
    ///
    /// If there is no such key, if a condition does not hold, and those of the cluster.
    pub async fn keys(&mut self, space: Space, action: Action) -> Result<()> {
        let keys = self.client.sql().at(self.level.into()).keys().space(space);
        match action {
            Action::List { prefix, kind } => self.list_keys(&keys, prefix, kind).await,
            Action::Get(key) => self.get_key(&keys, &key).await,
            Action::Raw(key) => {
                let value = keys.get(&key[..]).await?.ok_or_else(|| missing(&key))?;
                Stdout.write_all(&value).and_then(|()| Stdout.flush()).context(|| "cannot write to standard output")
            }
            Action::Set { key, value, ttl, condition } => {
                let put = with_condition(keys.set(&key[..], value), condition);
                let put = match ttl {
                    Some(ttl) => put.expires(ttl),
                    None => put,
                };
                if !self.sending(put.into_future()).await? {
                    return Err(Error::new(format!("'{}' was not set: the condition does not hold", shown(&key))));
                }
                self.remark("OK\n")
            }
            Action::Delete(names) => {
                let count = self.sending(keys.delete(names).into_future()).await?;
                self.remark(&format!("OK, {count} {} removed\n", plural(count, "key")))
            }
            Action::Describe(key) => {
                let info = keys.describe(&key[..]).await?.ok_or_else(|| missing(&key))?;
                self.print(&["type", "version", "ttl"], [described(&info).to_vec()])
            }
            Action::Expire(key, ttl) => {
                let found = match ttl {
                    Some(ttl) => self.sending(keys.expire(&key[..], ttl).into_future()).await?,
                    // It returns whether the key would have expired.
                    None => {
                        self.sending(keys.persist(&key[..]).into_future()).await?;
                        keys.describe(&key[..]).await?.is_some()
                    }
                };
                if found { self.remark("OK\n") } else { Err(missing(&key)) }
            }
        }
    }

    async fn list_keys(&mut self, keys: &Keys, prefix: Vec<u8>, kind: Option<Kind>) -> Result<()> {
        let scan = keys.scan().prefix(prefix);
        let scan = match kind {
            Some(kind) => scan.kind(kind),
            None => scan,
        };
        let row = |KeyEntry { key, info, .. }: KeyEntry| {
            let [kind, version, ttl] = described(&info);
            vec![value(&key), kind, version, ttl]
        };
        let pages = scan.pages().map_ok(|page| page.into_iter().map(row).collect());
        self.stream_rows(&["key", "type", "version", "ttl"], Box::pin(pages)).await
    }

    /// Prints what a key holds.
    async fn get_key(&mut self, keys: &Keys, key: &[u8]) -> Result<()> {
        let info = keys.describe(key).await?.ok_or_else(|| missing(key))?;
        match info.kind {
            Kind::String => {
                let text = keys.get(key).await?.ok_or_else(|| missing(key))?;
                self.print(&["value"], [vec![value(&text)]])
            }
            Kind::Hash => {
                let pages =
                    keys.hash(key).scan().pages().map_ok(|page| {
                        page.into_iter().map(|(field, held)| vec![value(&field), value(&held)]).collect()
                    });
                self.stream_rows(&["field", "value"], Box::pin(pages)).await
            }
            Kind::Set => {
                let pages = keys.set_of(key).scan().pages();
                let pages = pages.map_ok(|page| page.into_iter().map(|(member, _)| vec![value(&member)]).collect());
                self.stream_rows(&["member"], Box::pin(pages)).await
            }
            Kind::SortedSet => {
                let set = keys.sorted_set(key);
                let pages = numbered(move |start, stop| set.by_rank(start, stop).into_future());
                let pages = pages.map_ok(|page| {
                    page.into_iter().map(|(_, (member, score))| vec![value(&member), Value::Real(score)]).collect()
                });
                self.stream_rows(&["member", "score"], Box::pin(pages)).await
            }
            Kind::List => {
                let list = keys.list(key);
                let pages = numbered(move |start, stop| list.range(start, stop).into_future());
                let pages = pages.map_ok(|page| {
                    page.into_iter().map(|(index, item)| vec![Value::Integer(index), value(&item)]).collect()
                });
                self.stream_rows(&["index", "item"], Box::pin(pages)).await
            }
        }
    }
}

fn with_condition(put: Put<bool>, condition: Condition) -> Put<bool> {
    match condition {
        Condition::Always => put,
        Condition::Missing => put.if_missing(),
        Condition::Exists => put.if_exists(),
        Condition::Version(version) => put.if_version(version),
        Condition::Value(value) => put.if_value(value),
    }
}

/// Returns the pages of what has places from 0, with the places.
fn numbered<T, F>(
    page: impl Fn(i64, i64) -> F + Clone,
) -> impl futures_util::Stream<Item = Result<Vec<(i64, T)>, quorate::Error>>
where
    F: Future<Output = Result<Vec<T>, quorate::Error>>,
{
    futures_util::stream::try_unfold(Some(0_i64), move |start| {
        let page = page.clone();
        async move {
            let Some(start) = start else { return Ok(None) };
            let next = start.saturating_add_unsigned(PAGE_ROWS);
            let rows = page(start, next.saturating_sub(1)).await?;
            let is_last = u64::try_from(rows.len()).is_ok_and(|rows| rows < PAGE_ROWS);
            Ok(Some(((start..).zip(rows).collect(), (!is_last).then_some(next))))
        }
    })
}

/// Returns what there is to know of a key: its type, its version, and the seconds until it expires by the clock of this
/// machine.
fn described(info: &KeyInfo) -> [Value; 3] {
    let kind = match info.kind {
        Kind::String => "string",
        Kind::Hash => "hash",
        Kind::Set => "set",
        Kind::SortedSet => "sorted set",
        Kind::List => "list",
    };
    let ttl = info.expires_at.map_or(Value::Null, |at| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left = Duration::from_nanos(at).saturating_sub(now);
        seconds(left)
    });
    [Value::Text(kind.to_owned()), Value::Integer(info.version.0.cast_signed()), ttl]
}

fn missing(key: &[u8]) -> Error {
    Error::new(format!("there is no key '{}'", shown(key)))
}
