//! How a state of an archive is written: in configurations and on command lines.

use chrono::DateTime;
use quorate::archive::Target;
use quorate::types::ClusterId;

use crate::Error;

/// Parses which state is wanted: `latest`, a position, the number of an entry, or a time in RFC 3339.
///
/// # Errors
///
/// Returns [`Error::State`] for anything else.
pub fn target(text: &str) -> Result<Target, Error> {
    if text == "latest" {
        return Ok(Target::Latest);
    }
    // Of a position, the last number is that of the entry.
    let last = text.rsplit('.').next().unwrap_or(text);
    if text.split('.').all(|part| part.parse::<u64>().is_ok())
        && let Ok(entry) = last.parse()
    {
        return Ok(Target::Entry(entry));
    }
    let time = DateTime::parse_from_rfc3339(text).map_err(|_| Error::State(text.to_owned()))?;
    Ok(Target::Time(time.timestamp_millis()))
}

/// Parses the id of a cluster.
///
/// # Errors
///
/// Returns [`Error::Cluster`] for anything but 32 hexadecimal digits.
pub fn cluster(text: &str) -> Result<ClusterId, Error> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u128::from_str_radix(text, 16).ok().filter(|_| is_id);
    id.map(ClusterId).ok_or_else(|| Error::Cluster(text.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn states_are_parsed() {
        assert_eq!(target("latest").unwrap(), Target::Latest);
        assert_eq!(target("4711").unwrap(), Target::Entry(4711));
        assert_eq!(target("3.1.17").unwrap(), Target::Entry(17));
        assert_eq!(target("1970-01-01T00:00:01.5Z").unwrap(), Target::Time(1500));
        assert_eq!(target("1970-01-01T01:00:00+01:00").unwrap(), Target::Time(0));
        for wrong in ["", "soon", "1..2", "2026-11-27", "-5"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_of_clusters_are_parsed() {
        assert_eq!(cluster("00000000000000000000000000c0ffee").unwrap(), ClusterId(0xc0_ffee));
        for wrong in ["", "c0ffee", "+0000000000000000000000000c0ffee", "0000000000000000000000000000000g"] {
            assert!(cluster(wrong).is_err(), "{wrong}");
        }
    }
}
