//! `Range`: a part of a value.

use std::ops::Range;

use hyper::HeaderMap;
use hyper::header::{IF_RANGE, RANGE};
use quorate::keys::Version;

use super::conditions::is_tag_of;

/// What part of a value is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it: also if the header has another unit, several ranges, or what can't be read, as the RFC allows.
    All,
    /// These bytes, at least one.
    Bytes(Range<usize>),
    /// Bytes that it does not have.
    Outside,
}

/// Returns the part of a value with so many bytes that a request asks for.
pub(super) fn part(headers: &HeaderMap, version: Option<Version>, length: usize) -> Part {
    if headers.get(IF_RANGE).is_some_and(|value| !is_tag_of(value, version)) {
        return Part::All;
    }
    let text = headers.get(RANGE).and_then(|value| value.to_str().ok());
    text.and_then(|text| read(text, length)).unwrap_or(Part::All)
}

fn read(text: &str, length: usize) -> Option<Part> {
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim().split_once('-').filter(|_| unit.trim().eq_ignore_ascii_case("bytes"))?;
    let (first, last) = (first.trim_end(), last.trim_start());
    let number = |text: &str| match text.bytes().all(|digit| digit.is_ascii_digit()) && !text.is_empty() {
        true => Some(text.parse().unwrap_or(usize::MAX)),
        false => None,
    };
    let range = match (first, last) {
        ("", last) => length.saturating_sub(number(last)?)..length,
        (first, "") => number(first)?..length,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(length)
        }
    };
    Some(if range.is_empty() { Part::Outside } else { Part::Bytes(range) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_defines_them() {
        for (text, part) in [
            ("bytes=0-4", Some(Part::Bytes(0..5))),
            ("Bytes = 2-", Some(Part::Bytes(2..10))),
            ("bytes=-3", Some(Part::Bytes(7..10))),
            ("bytes=-99", Some(Part::Bytes(0..10))),
            ("bytes=9-99999999999999999999999", Some(Part::Bytes(9..10))),
            ("bytes=10-", Some(Part::Outside)),
            ("bytes=-0", Some(Part::Outside)),
            ("bytes=5-4", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("items=0-1", None),
            ("bytes", None),
        ] {
            assert_eq!(read(text, 10), part, "{text}");
        }
        assert_eq!(read("bytes=0-", 0), Some(Part::Outside));
    }

    proptest! {
        #[test]
        fn a_range_is_inside_of_the_value(text in "\\PC*|bytes=[0-9 -]{0,30}", length in 0_usize..1000) {
            if let Some(Part::Bytes(range)) = read(&text, length) {
                prop_assert!(range.start < range.end && range.end <= length);
            }
        }
    }
}
