//! Conditions of requests, as RFC 9110 defines them, on entity tags that are versions.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use quorate::keys::{Condition, Version};

use crate::error::Problem;

/// The tags of a header.
enum Tags {
    /// Any that there is: `*`.
    Any,
    /// One of these.
    Each(Vec<Tag>),
}

/// An entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    /// Its version; none if no key ever has this tag.
    version: Option<Version>,
    is_weak: bool,
}

/// Returns the entity tag of a version.
pub(crate) fn tag(version: Version) -> HeaderValue {
    // It has visible letters only, so there is always a value.
    HeaderValue::from_str(&format!("\"{}\"", version.0)).unwrap_or(HeaderValue::from_static("\"0\""))
}

/// What a request that reads depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is answered.
    Answer,
    /// The client has it already.
    NotModified,
}

/// Decides whether a request that reads what has a version is answered. `None` if it is missing, or if the version is
/// not known.
pub(super) fn of_read(headers: &HeaderMap, version: Option<Version>) -> Result<Found, Problem> {
    if let Some(tags) = tags(headers, IF_MATCH)? {
        let holds = match &tags {
            Tags::Any => version.is_some(),
            Tags::Each(tags) => tags.iter().any(|tag| !tag.is_weak && tag.version.is_some() && tag.version == version),
        };
        if !holds {
            return Err(Problem::Precondition(version));
        }
    }
    let matches = match tags(headers, IF_NONE_MATCH)? {
        None => false,
        Some(Tags::Any) => version.is_some(),
        Some(Tags::Each(tags)) => tags.iter().any(|tag| tag.version.is_some() && tag.version == version),
    };
    Ok(if matches { Found::NotModified } else { Found::Answer })
}

/// Returns what a request that writes depends on, as one condition that the store judges.
pub(super) fn of_write(headers: &HeaderMap) -> Result<Condition, Problem> {
    match (tags(headers, IF_MATCH)?, tags(headers, IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::Always),
        (Some(Tags::Any), None) => Ok(Condition::Exists),
        (None, Some(Tags::Any)) => Ok(Condition::Missing),
        (Some(Tags::Each(tags)), None) => match tags.as_slice() {
            // Versions begin above 0, so nothing has that.
            [tag] => Ok(Condition::Version(tag.version.filter(|_| !tag.is_weak).unwrap_or_default())),
            _ => Err(Problem::NotOffered("If-Match of a request that writes has one entity tag, or is *")),
        },
        (None, Some(Tags::Each(_))) => Err(Problem::NotOffered("If-None-Match of a request that writes is *")),
        (Some(_), Some(_)) => Err(Problem::NotOffered("a request that writes has If-Match or If-None-Match, not both")),
    }
}

/// Fails if a request that can't depend on anything does.
pub(super) fn none(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(IF_MATCH) || headers.contains_key(IF_NONE_MATCH) {
        return Err(Problem::NotOffered(
            "If-Match and If-None-Match are for GET, PUT and DELETE of a key; POST /keys has the command 'expect'",
        ));
    }
    Ok(())
}

/// Returns whether the value of `If-Range` is the tag of a version.
pub(super) fn is_tag_of(value: &HeaderValue, version: Option<Version>) -> bool {
    let found = value.to_str().ok().and_then(list).filter(|tags| tags.len() == 1);
    let strong = |tag: &Tag| !tag.is_weak && tag.version.is_some() && tag.version == version;
    found.is_some_and(|tags| tags.first().is_some_and(strong))
}

/// Reads the tags of a header; its lines are one list.
fn tags(headers: &HeaderMap, name: HeaderName) -> Result<Option<Tags>, Problem> {
    let lines: Vec<&HeaderValue> = headers.get_all(&name).iter().collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let texts: Option<Vec<&str>> = lines.iter().map(|line| line.to_str().ok()).collect();
    let text = texts.map(|texts| texts.join(","));
    let read = text.as_deref().and_then(|text| match text.trim() {
        "*" => Some(Tags::Any),
        text => list(text).map(Tags::Each),
    });
    let help = || Problem::malformed(format!("{name} is a list of entity tags such as \"123\", or *"));
    read.map(Some).ok_or_else(help)
}

/// Reads a list of entity tags. A tag may contain commas; empty items don't count.
fn list(text: &str) -> Option<Vec<Tag>> {
    let (mut tags, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix(',') {
            rest = tail.trim_start();
            continue;
        }
        let is_weak = rest.starts_with("W/");
        let quoted = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"')?;
        let (inside, tail) = quoted.split_once('"')?;
        // A leading zero or a sign would make another tag of the same number.
        let version = inside.parse().ok().map(Version).filter(|version| version.0.to_string() == inside);
        tags.push(Tag { version, is_weak });
        rest = tail.trim_start();
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
    Some(tags).filter(|tags| !tags.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<Vec<(Option<u64>, bool)>> {
        Some(list(text)?.into_iter().map(|tag| (tag.version.map(|version| version.0), tag.is_weak)).collect())
    }

    #[test]
    fn lists_of_tags_are_read_as_the_rfc_defines_them() {
        assert_eq!(read("\"7\""), Some(vec![(Some(7), false)]));
        assert_eq!(read(" W/\"7\" ,, \"a,b\",\"\" "), Some(vec![(Some(7), true), (None, false), (None, false)]));
        assert_eq!(read("\"07\",\"+7\""), Some(vec![(None, false), (None, false)]));
        for wrong in ["", ",", "7", "\"7", "\"7\"x", "\"7\" \"8\"", "w/\"7\"", "*"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_of_tags_or_none(text in "\\PC*|[W/\", 0-9*]{0,20}") {
            let _ = list(&text);
        }

        #[test]
        fn a_version_has_its_tag(version: u64, other: u64) {
            prop_assert!(is_tag_of(&tag(Version(version)), Some(Version(version))));
            prop_assert_eq!(is_tag_of(&tag(Version(version)), Some(Version(other))), version == other);
        }
    }
}
