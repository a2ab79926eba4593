//! What the query of a request asks for. Names that are not known are ignored, as rqlite does.

use std::time::Duration;

use quorate::Level;

use super::decode::Statement;
use crate::error::Problem;
use crate::message::{LEVEL, Request, duration};
use crate::work::Work;

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the API")]
pub(super) struct Asked {
    pub(super) transaction: bool,
    pub(super) timings: bool,
    pub(super) associative: bool,
    pub(super) blob_array: bool,
    pub(super) pretty: bool,
    pub(super) queue: bool,
    pub(super) raft_index: bool,
    pub(super) noleader: bool,
    pub(super) compress: bool,
    pub(super) format: Option<String>,
    pub(super) version: Option<String>,
    pub(super) key: Option<String>,
    q: Option<String>,
    level: Option<Level>,
    timeout: Option<Duration>,
    db_timeout: Option<Duration>,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Result<Self, Problem> {
        let mut asked = Self::default();
        let (mut level, mut freshness) = (None, None);
        for (name, value) in request.parameters() {
            match name.as_str() {
                "transaction" => asked.transaction = true,
                "timings" => asked.timings = true,
                "associative" => asked.associative = true,
                "blob_array" => asked.blob_array = true,
                "pretty" => asked.pretty = true,
                "queue" => asked.queue = true,
                "raft_index" => asked.raft_index = true,
                "noleader" => asked.noleader = true,
                "compress" => asked.compress = true,
                "fmt" => asked.format = Some(value),
                "ver" => asked.version = Some(value),
                "key" => asked.key = Some(value),
                "q" => asked.q = Some(value),
                "level" => level = Some(value),
                "freshness" => freshness = Some(time(&name, &value)?),
                "timeout" => asked.timeout = Some(time(&name, &value)?),
                "db_timeout" => asked.db_timeout = Some(time(&name, &value)?),
                _ => {}
            }
        }
        // Our own header says it more precisely.
        if !request.headers.contains_key(LEVEL) {
            asked.level = read_level(level.as_deref(), freshness)?;
        }
        Ok(asked)
    }

    /// Returns the statement in the query.
    pub(super) fn query(&self) -> Result<Vec<Statement>, Problem> {
        let q = self.q.clone().filter(|q| !q.trim().is_empty());
        Ok(vec![Statement::plain(q.ok_or_else(|| Problem::malformed("give the statement as ?q=..."))?)])
    }

    /// Returns the work with the level and the time limits that are asked for.
    pub(super) fn limits(&self, work: Work) -> Work {
        work.with(|mut sql| {
            if let Some(level) = self.level {
                sql = sql.at(level);
            }
            if let Some(timeout) = self.timeout {
                sql = sql.with_deadline(timeout);
            }
            if let Some(timeout) = self.db_timeout {
                sql = sql.with_query_timeout(timeout);
            }
            sql
        })
    }
}

/// Returns the level at which rqlite's level holds. `weak` and `auto` are served by the leader there, which may have
/// been deposed; the level here that never returns less is the linearizable one. `strong` does the same at a higher
/// price.
fn read_level(level: Option<&str>, freshness: Option<Duration>) -> Result<Option<Level>, Problem> {
    Ok(match level {
        None | Some("") => None,
        Some("none") => Some(freshness.map_or(Level::Local, Level::Bounded)),
        Some("weak" | "auto" | "linearizable" | "strong") => Some(Level::Linearizable),
        Some(other) => {
            let text = format!("the level {other:?}: use one of none, weak, linearizable, strong, auto");
            return Err(Problem::malformed(text));
        }
    })
}

fn time(name: &str, value: &str) -> Result<Duration, Problem> {
    duration(value).ok_or_else(|| Problem::malformed(format!("{name}={value} is no time; write one such as 5s")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    fn asked(query: &str) -> Result<Asked, Problem> {
        Asked::of(&Request { query: query.to_owned(), ..Request::default() })
    }

    #[test]
    fn levels_of_rqlite_are_served_by_levels_that_are_as_strong() {
        for (query, level) in [
            ("", None),
            ("level=none", Some(Level::Local)),
            ("level=none&freshness=2s", Some(Level::Bounded(Duration::from_secs(2)))),
            ("level=weak", Some(Level::Linearizable)),
            ("level=auto&freshness=1s", Some(Level::Linearizable)),
            ("level=linearizable", Some(Level::Linearizable)),
            ("level=strong", Some(Level::Linearizable)),
        ] {
            assert_eq!(asked(query).unwrap().level, level, "{query}");
        }
        assert!(asked("level=eventual").is_err() && asked("freshness=soon").is_err() && asked("timeout=x").is_err());
    }

    #[test]
    fn flags_need_no_value() {
        let found = asked("pretty&timings=true&transaction&redirect&unknown=1&wait").unwrap();
        assert!(found.pretty && found.timings && found.transaction && !found.queue && !found.associative);
    }
}
