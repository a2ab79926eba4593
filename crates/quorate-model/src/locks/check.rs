//! Checks of limits, before a command is proposed or answered, and when its bytes arrive.

use std::time::Duration;

use bytes::Bytes;

use super::LocksCommand;
use super::limits::{HOLDER_BYTES_MAX, LIST_MAX, NAME_BYTES_MAX, NOTE_BYTES_MAX, PERMITS_MAX, TTL_MAX, TTL_MIN};
use crate::limits::limit;
use crate::{Failure, FailureKind};

impl LocksCommand {
    /// Checks every limit except the encoded size.
    pub(crate) fn check_limits(&self) -> Result<(), Failure> {
        self.name().map_or(Ok(()), |name| check_bytes("name of a lock", name, NAME_BYTES_MAX))?;
        match self {
            Self::Acquire { holder, ttl, permits, wait, note, .. } => {
                check_bytes("holder of a lock", holder, HOLDER_BYTES_MAX)?;
                check_time("lease", *ttl)?;
                wait.map_or(Ok(()), |wait| check_time("wait", wait))?;
                check_number("permits of a lock", *permits, PERMITS_MAX)?;
                limit("bytes of a note", note.len(), NOTE_BYTES_MAX, "write it elsewhere, and name the place")
            }
            Self::Renew { holder, ttl, .. } => {
                check_bytes("holder of a lock", holder, HOLDER_BYTES_MAX)?;
                check_time("lease", *ttl)
            }
            Self::Release { holder, .. } | Self::Withdraw { holder, .. } => {
                check_bytes("holder of a lock", holder, HOLDER_BYTES_MAX)
            }
            Self::List { names, limit } => {
                check_number("locks of a page", *limit, LIST_MAX)?;
                let bounds = [Some(&names.from), names.to.as_ref()];
                let longest = bounds.into_iter().flatten().map(Bytes::len).max().unwrap_or(0);
                crate::limits::limit("bytes of a bound of names", longest, NAME_BYTES_MAX, "no name is longer")
            }
            Self::Force { .. } | Self::Expect { .. } | Self::Inspect { .. } => Ok(()),
        }
    }

    /// Checks them for a read.
    pub(crate) fn check_read(&self) -> Result<(), Failure> {
        if self.only_reads() {
            return self.check_limits();
        }
        Err(Failure::new(FailureKind::Refused, "this command on locks may write, so it can't be answered as a read"))
    }
}

fn check_bytes(what: &str, bytes: &Bytes, max: usize) -> Result<(), Failure> {
    if bytes.is_empty() {
        return Err(Failure::new(FailureKind::InvalidValue, format!("the {what} is empty; give it at least a byte")));
    }
    limit(&format!("bytes of the {what}"), bytes.len(), max, "choose a shorter one")
}

fn check_time(what: &str, nanos: u64) -> Result<(), Failure> {
    let time = Duration::from_nanos(nanos);
    if (TTL_MIN..=TTL_MAX).contains(&time) {
        return Ok(());
    }
    let text = format!("the {what} of {time:?} is not from {TTL_MIN:?} to {TTL_MAX:?}; choose one that is");
    Err(Failure::new(FailureKind::InvalidValue, text))
}

fn check_number(what: &str, number: u64, max: u64) -> Result<(), Failure> {
    if (1..=max).contains(&number) {
        return Ok(());
    }
    let text = format!("{number} {what}: choose a number from 1 to {max}");
    Err(Failure::new(FailureKind::InvalidValue, text))
}
