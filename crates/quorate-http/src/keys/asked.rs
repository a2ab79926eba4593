//! What a request on keys asks for, beside its body.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use quorate::keys::limits::{READ_ROWS_MAX, SPACES, TIME_MAX};
use quorate::keys::{Expiry, Kind, Space};

use super::bytes::{decoded, encoded};
use super::{ONE, encode};
use crate::error::Problem;
use crate::message::{Request, duration};

/// The rows of a page, unless the request asks for another number.
const PAGE_ROWS: u64 = 1_000;

/// What a request asks for.
pub(super) struct Asked<'a> {
    /// The path, without the query.
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    parameters: Vec<(String, Bytes)>,
}

impl<'a> Asked<'a> {
    pub(super) fn of(request: &'a Request) -> Result<Self, Problem> {
        let parameters: Vec<_> = request.byte_parameters().map(|(name, value)| (name, value.into())).collect();
        let mut names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some((twice, _)) = names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b) {
            return Err(Problem::malformed(format!("the parameter '{twice}' is given twice")));
        }
        Ok(Self { path: &request.path, headers: &request.headers, parameters })
    }

    /// Returns the key that the path names.
    pub(super) fn key(&self) -> Result<Bytes, Problem> {
        decoded(self.path.strip_prefix(ONE).unwrap_or_default())
    }

    /// Fails if there is a parameter that is not one of these: a misspelt one must not be left out in silence.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.parameters.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                let known = known.join(", ");
                Err(Problem::malformed(format!("the parameter '{name}' is not known here; there are: {known}")))
            }
        }
    }

    pub(super) fn bytes(&self, name: &str) -> Option<&Bytes> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Problem::malformed(format!("'{name}' is no text")));
        self.bytes(name).map(|bytes| text(bytes)).transpose()
    }

    /// Returns whether a parameter is there, without a value or with `true`.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name)? {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(_) => Err(Problem::malformed(format!("'{name}' has no value, or is true or false"))),
        }
    }

    /// Returns a parameter that is a number.
    pub(super) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, Problem> {
        let wrong = |_| Problem::malformed(format!("'{name}' is a number"));
        self.text(name)?.map(|text| text.parse().map_err(wrong)).transpose()
    }

    /// Returns the URL with another value, which is encoded, of one parameter.
    pub(super) fn url_with(&self, name: &str, value: &str) -> String {
        let others = self.parameters.iter().filter(|(known, _)| known != name);
        let others = others.map(|(name, value)| format!("{name}={}&", encoded(value)));
        format!("{}?{}{name}={value}", self.path, others.collect::<String>())
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
            (Some(ttl), None, false) => {
                let time = duration(ttl).filter(|time| !time.is_zero());
                let time = time.ok_or_else(|| Problem::malformed("'ttl' is a time above 0, such as 5m or 1.5s"))?;
                Ok(Expiry::In(nanos(time).min(TIME_MAX)))
            }
            (None, Some(at), false) => {
                let help = || Problem::malformed("'expires' is a number of seconds since 1970");
                let since_1970 = Duration::try_from_secs_f64(at).map_err(|_| help())?;
                Ok(Expiry::At(nanos(since_1970).min(TIME_MAX)))
            }
            _ => Err(Problem::malformed("only one of 'ttl', 'expires' and 'keep_ttl' can hold")),
        }
    }
}
