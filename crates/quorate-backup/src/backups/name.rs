//! The names of backups: `20261127T020000Z-CLUSTER-EPOCH.GROUP.INDEX.db.zst`, and `.age` after it if encrypted.
//!
//! Invariant: names sort by time, and each name is written in one way only.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDateTime};
use quorate::Position;
use quorate::types::{ClusterId, Epoch, GroupId};

use crate::error::Error;

/// The form of the time, in UTC.
const TIME: &str = "%Y%m%dT%H%M%SZ";
/// The characters of a time.
const TIME_CHARACTERS: usize = 16;
/// The last second of the year 9999: later ones would not sort.
const TIME_MAX: u64 = 253_402_300_799;
/// The suffix of a backup that is compressed.
const COMPRESSED: &str = ".db.zst";
/// What follows if it is encrypted too.
const ENCRYPTED: &str = ".age";
/// The suffix of a claim.
const CLAIM: &str = ".claim";

/// The name of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    time: u64,
    /// The cluster that it comes from.
    pub cluster: ClusterId,
    /// The position of the last write that it contains.
    pub position: Position,
    /// Whether it is encrypted.
    pub is_encrypted: bool,
}

impl Name {
    /// Returns the name of a backup that is made at `time`, in seconds since 1970-01-01 UTC.
    pub fn new(time: u64, cluster: ClusterId, position: Position, is_encrypted: bool) -> Self {
        Self { time: time.min(TIME_MAX), cluster, position, is_encrypted }
    }

    /// Returns its time, in seconds since 1970-01-01 UTC.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Returns its time as text, as in RFC 3339.
    pub fn time_text(&self) -> String {
        time_text(self.time)
    }
}

/// Formats a time in seconds since 1970-01-01 UTC.
pub(crate) fn time_text(time: u64) -> String {
    written(time, "%Y-%m-%dT%H:%M:%SZ")
}

/// The name of a claim: the object by which a node claims to make the backup of a time, so that no other makes it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The time, in seconds since 1970-01-01 UTC.
    pub time: u64,
    /// The cluster.
    pub cluster: ClusterId,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, cluster, position, is_encrypted } = self;
        let encrypted = if *is_encrypted { ENCRYPTED } else { "" };
        write!(f, "{}-{cluster}-{position}{COMPRESSED}{encrypted}", written(*time, TIME))
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || {
            let (rest, is_encrypted) = text.strip_suffix(ENCRYPTED).map_or((text, false), |rest| (rest, true));
            let (time, rest) = read_time(rest.strip_suffix(COMPRESSED)?)?;
            let (cluster, position) = rest.split_once('-')?;
            let mut numbers = position.split('.');
            let position = Position {
                epoch: Epoch(numbers.next()?.parse().ok()?),
                group: GroupId(numbers.next()?.parse().ok()?),
                index: numbers.next()?.parse().ok()?,
            };
            Some(Self { time, cluster: read_cluster(cluster)?, position, is_encrypted })
        };
        // What is written in another way, such as +1 or 01, is not a name.
        read().filter(|name| name.to_string() == text).ok_or_else(|| Error::Name(text.to_owned()))
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}{CLAIM}", written(self.time.min(TIME_MAX), TIME), self.cluster)
    }
}

impl FromStr for Claim {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || {
            let (time, cluster) = read_time(text.strip_suffix(CLAIM)?)?;
            Some(Self { time, cluster: read_cluster(cluster)? })
        };
        read().filter(|claim| claim.to_string() == text).ok_or_else(|| Error::Name(text.to_owned()))
    }
}

fn written(time: u64, form: &str) -> String {
    let date = i64::try_from(time).ok().and_then(|time| DateTime::from_timestamp(time, 0));
    date.unwrap_or_default().format(form).to_string()
}

/// Splits a text into the time at its beginning and what follows the hyphen after it.
fn read_time(text: &str) -> Option<(u64, &str)> {
    let (time, rest) = text.split_at_checked(TIME_CHARACTERS)?;
    let time = NaiveDateTime::parse_from_str(time, TIME).ok()?.and_utc().timestamp();
    Some((u64::try_from(time).ok()?, rest.strip_prefix('-')?))
}

fn read_cluster(text: &str) -> Option<ClusterId> {
    u128::from_str_radix(text, 16).ok().map(ClusterId)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    fn any_name() -> impl Strategy<Value = Name> {
        let numbers = (0..=TIME_MAX, any::<u128>(), any::<(u64, u32, u64)>(), any::<bool>());
        numbers.prop_map(|(time, cluster, (epoch, group, index), is_encrypted)| {
            let position = Position { epoch: Epoch(epoch), group: GroupId(group), index };
            Name::new(time, ClusterId(cluster), position, is_encrypted)
        })
    }

    #[test]
    fn a_name_is_readable() {
        let position = Position { epoch: Epoch(1), group: GroupId(1), index: 57 };
        let name = Name::new(1_795_744_800, ClusterId(0xc0ffee), position, true);
        assert_eq!(name.to_string(), "20261127T020000Z-00000000000000000000000000c0ffee-1.1.57.db.zst.age");
        assert_eq!(name.time_text(), "2026-11-27T02:00:00Z");
        let claim = Claim { time: name.time(), cluster: name.cluster };
        assert_eq!(claim.to_string(), "20261127T020000Z-00000000000000000000000000c0ffee.claim");
        assert_eq!(claim.to_string().parse::<Claim>().unwrap(), claim);
    }

    proptest! {
        #[test]
        fn names_are_read_as_they_were_written(name in any_name()) {
            prop_assert_eq!(name.to_string().parse::<Name>().unwrap(), name);
            prop_assert!(name.to_string().parse::<Claim>().is_err());
        }

        #[test]
        fn names_sort_by_time(a in any_name(), b in any_name()) {
            if a.time() != b.time() {
                prop_assert_eq!(a.to_string() < b.to_string(), a.time() < b.time());
            }
        }

        #[test]
        fn a_changed_name_is_another_one_or_none(
            name in any_name(),
            at in any::<prop::sample::Index>(),
            with in "[-+.0-9A-Za-z]",
        ) {
            let mut text = name.to_string();
            let at = at.index(text.len());
            text.replace_range(at..=at, &with);
            if let Ok(read) = text.parse::<Name>() {
                prop_assert_eq!(read.to_string(), text);
            }
        }

        #[test]
        fn no_text_is_read_wrongly(text in "\\PC*") {
            prop_assert!(text.parse::<Name>().is_err() && text.parse::<Claim>().is_err());
        }
    }
}
