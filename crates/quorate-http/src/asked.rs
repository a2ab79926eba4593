//! What a request asks for, beside its body: the parameters of its query.
//!
//! Invariant: a parameter is there once, and what is not known is refused.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;

use crate::error::Problem;
use crate::json::Json;
use crate::message::{Request, duration};
use crate::octets::{decoded, encoded};

/// What a request asks for.
pub(crate) struct Asked<'a> {
    /// The path, without the query.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    parameters: Vec<(String, Bytes)>,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(request: &'a Request) -> Result<Self, Problem> {
        Self::with(request, request.byte_parameters().map(|(name, value)| (name, value.into())).collect())
    }

    /// Reads a query in which `+` means itself, as in a path.
    pub(crate) fn literal(request: &'a Request) -> Result<Self, Problem> {
        let read = |(name, value)| Ok((String::from_utf8_lossy(&decoded(name)?).into_owned(), decoded(value)?));
        Self::with(request, request.raw_parameters().map(read).collect::<Result<_, Problem>>()?)
    }

    fn with(request: &'a Request, parameters: Vec<(String, Bytes)>) -> Result<Self, Problem> {
        let mut names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some((twice, _)) = names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b) {
            return Err(Problem::malformed(format!("the parameter '{twice}' is given twice")));
        }
        Ok(Self { path: &request.path, headers: &request.headers, parameters })
    }

    /// Returns what follows this in the path, decoded.
    pub(crate) fn rest_of_path(&self, prefix: &str) -> Result<Bytes, Problem> {
        decoded(self.path.strip_prefix(prefix).unwrap_or_default())
    }

    /// Fails if there is a parameter that is not one of these: a misspelt one must not be left out in silence.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.parameters.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                let known = known.join(", ");
                Err(Problem::malformed(format!("the parameter '{name}' is not known here; there are: {known}")))
            }
        }
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<&Bytes> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Problem::malformed(format!("'{name}' is no text")));
        self.bytes(name).map(|bytes| text(bytes)).transpose()
    }

    /// Returns whether a parameter is there, without a value or with `true`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name)? {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(_) => Err(Problem::malformed(format!("'{name}' has no value, or is true or false"))),
        }
    }

    /// Returns a parameter that is a number.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, Problem> {
        let wrong = |_| Problem::malformed(format!("'{name}' is a number"));
        self.text(name)?.map(|text| text.parse().map_err(wrong)).transpose()
    }

    /// Ends the object of a page: with the URL of the next one, which has the same parameters but one.
    pub(crate) fn write_next(&self, json: &mut Json, next: Option<(&str, &str)>) {
        json.raw(",\"next\":");
        match next {
            None => json.raw("null}"),
            Some((name, value)) => json.string(&self.url_with(name, value)).raw("}"),
        };
    }

    /// Returns the URL with another value, which is encoded, of one parameter.
    fn url_with(&self, name: &str, value: &str) -> String {
        let others = self.parameters.iter().filter(|(known, _)| known != name);
        let others = others.map(|(name, value)| format!("{name}={}&", encoded(value)));
        format!("{}?{}{name}={value}", self.path, others.collect::<String>())
    }

    /// Returns a parameter that is a time above 0, such as `5m`.
    pub(crate) fn time(&self, name: &str) -> Result<Option<Duration>, Problem> {
        self.text(name)?.map(|text| time(name, text)).transpose()
    }
}

/// Reads a time above 0.
pub(crate) fn time(name: &str, text: &str) -> Result<Duration, Problem> {
    let time = duration(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| Problem::malformed(format!("'{name}' is a time above 0, such as 5m or 1.5s")))
}
