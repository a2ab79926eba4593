//! Who sends a request: the header `Authorization`, checked against the users of the cluster.
//!
//! Invariant: what the header holds is never logged, and no answer repeats it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use quorate::users::{Credentials, Denied, UserRole, Users};

use crate::error::Problem;
use crate::message::{Answer, refusal};

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name of the user; `None` if there are no users.
    pub(crate) name: Option<String>,
    pub(crate) role: UserRole,
}

impl Caller {
    /// Someone who may do everything, because there are no users.
    pub(crate) fn anyone() -> Self {
        Self { name: None, role: UserRole::Admin }
    }

    /// Returns who sends a request with these headers from this address, if the role permits it.
    pub(crate) async fn of(
        users: Option<&Users>,
        headers: &HeaderMap,
        from: &str,
        needs: UserRole,
    ) -> Result<Self, Problem> {
        if users.is_none() {
            return Ok(Self::anyone());
        }
        Self::by(users, credentials(headers)?.as_ref(), from, needs).await
    }

    /// Returns who shows these credentials, or nothing, from this address, if the role permits it.
    pub(crate) async fn by(
        users: Option<&Users>,
        shown: Option<&Credentials>,
        from: &str,
        needs: UserRole,
    ) -> Result<Self, Problem> {
        let Some(users) = users else { return Ok(Self::anyone()) };
        let identity = users.check(shown, from).await?;
        identity.needs(needs)?;
        Ok(Self { name: identity.name().map(str::to_owned), role: identity.role() })
    }
}

/// Checks that a request with these headers comes from a user with this role, for the pages of a node beside the doors.
/// A node that does not know its users, because it can't join its cluster or has ended, must still be able to say so;
/// such a node lets everyone in.
///
/// # Errors
///
/// Returns the answer that refuses the request.
pub async fn require(users: &Users, headers: &HeaderMap, from: &str, role: UserRole) -> Result<(), Answer> {
    match Caller::of(Some(users), headers, from, role).await {
        Ok(_) | Err(Problem::Denied(Denied::NotYet | Denied::Closed)) => Ok(()),
        Err(problem) => Err(refusal(&problem)),
    }
}

/// Returns the credentials in the headers, if there are some. Clients that know no other way may send a token as a
/// password.
pub(crate) fn credentials(headers: &HeaderMap) -> Result<Option<Credentials>, Problem> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Denied::Wrong)?;
    let (scheme, value) = text.split_once(' ').unwrap_or((text, ""));
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        // Clients that were given no token send an empty one.
        return Ok((!value.is_empty()).then(|| Credentials::token(value)));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(Denied::Wrong.into());
    }
    let decoded = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let (name, password) = decoded.as_deref().and_then(|text| text.split_once(':')).ok_or(Denied::Wrong)?;
    Ok(Some(Credentials::password_or_token(name, password)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use hyper::header::HeaderValue;

    use super::*;

    fn shown(value: &str) -> Result<Option<Credentials>, Problem> {
        credentials(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]))
    }

    #[test]
    fn both_schemes_are_read() {
        assert_eq!(credentials(&HeaderMap::new()).unwrap(), None);
        assert_eq!(shown("bearer  quorate_1").unwrap(), Some(Credentials::token("quorate_1")));
        let basic = |text: &str| shown(&format!("Basic {}", STANDARD.encode(text)));
        assert_eq!(basic("ann:a:b").unwrap(), Some(Credentials::password("ann", "a:b")));
        assert_eq!(basic("ann:quorate_1").unwrap(), Some(Credentials::token("quorate_1")));
        for wrong in ["", "Basic", "Basic ???", "Digest x=1"] {
            assert!(matches!(shown(wrong), Err(Problem::Denied(Denied::Wrong))), "{wrong}");
        }
        assert!(basic("no colon").is_err());
    }

    #[test]
    fn an_empty_token_shows_nothing() {
        for empty in ["Bearer", "Bearer ", "bearer  "] {
            assert_eq!(shown(empty).unwrap(), None, "{empty:?}");
        }
    }
}
