//! What only requests on keys ask for.

use std::time::Duration;

use bytes::Bytes;
use quorate::keys::limits::{READ_ROWS_MAX, SPACES, TIME_MAX};
use quorate::keys::{Expiry, Kind, Space};

use super::{ONE, encode};
use crate::asked::{Asked, time};
use crate::error::Problem;

/// The rows of a page, unless the request asks for another number.
const PAGE_ROWS: u64 = 1_000;

impl Asked<'_> {
    /// Returns the key that the path names.
    pub(super) fn key(&self) -> Result<Bytes, Problem> {
        self.rest_of_path(ONE)
    }

    pub(super) fn space(&self) -> Result<Space, Problem> {
        let space = self.number("space")?.unwrap_or(0);
        if space < SPACES { Ok(space) } else { Err(Problem::malformed(format!("'space' is below {SPACES}"))) }
    }

    /// Returns the most rows of a page.
    pub(super) fn limit(&self) -> Result<u64, Problem> {
        let limit = self.number("limit")?.unwrap_or(PAGE_ROWS);
        let help = || Problem::malformed(format!("'limit' is from 1 to {READ_ROWS_MAX}"));
        (1..=READ_ROWS_MAX).contains(&limit).then_some(limit).ok_or_else(help)
    }

    pub(super) fn kind(&self) -> Result<Option<Kind>, Problem> {
        let Some(name) = self.text("type")? else { return Ok(None) };
        let kind = encode::KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        let known = || encode::KINDS.map(|(name, _)| name).join(", ");
        kind.map(Some).ok_or_else(|| Problem::malformed(format!("'type' is one of: {}", known())))
    }

    /// Returns what becomes of the expiry of what is written.
    pub(super) fn expiry(&self) -> Result<Expiry, Problem> {
        self.expiry_of(self.text("ttl")?, self.number("expires")?, self.flag("keep_ttl")?)
    }

    /// Returns an expiry after a time such as `5m`, at a number of seconds since 1970, or as it was.
    pub(super) fn expiry_of(&self, ttl: Option<&str>, expires: Option<f64>, is_kept: bool) -> Result<Expiry, Problem> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match (ttl, expires, is_kept) {
            (None, None, false) => Ok(Expiry::Never),
            (None, None, true) => Ok(Expiry::Keep),
            (Some(ttl), None, false) => Ok(Expiry::In(nanos(time("ttl", ttl)?).min(TIME_MAX))),
            (None, Some(at), false) => {
                let help = || Problem::malformed("'expires' is a number of seconds since 1970");
                let since_1970 = Duration::try_from_secs_f64(at).map_err(|_| help())?;
                Ok(Expiry::At(nanos(since_1970).min(TIME_MAX)))
            }
            _ => Err(Problem::malformed("only one of 'ttl', 'expires' and 'keep_ttl' can hold")),
        }
    }
}
