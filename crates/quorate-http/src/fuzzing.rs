//! Access for fuzzing: the decoders of requests, and what is read from the text of SQL.

use crate::text;

/// Reads a body as the requests of Hrana do; returns whether it is one.
pub fn hrana(body: &[u8]) -> bool {
    crate::hrana::fuzz_pipeline(body)
}

/// Reads a text as a message of Hrana over WebSocket; returns whether it is one that can be served.
pub fn hrana_socket(text: &[u8]) -> bool {
    crate::hrana::socket::fuzz_message(text)
}

/// Reads a body as the requests of rqlite do; returns the number of statements with parameters that match.
pub fn rqlite(body: &[u8]) -> usize {
    crate::rqlite::fuzz_statements(body)
}

/// Returns the statements of a script.
pub fn statements(script: &str) -> Vec<&str> {
    text::split(script)
}

/// Returns the number of parameters of a statement, unless a parameter has a number that is too large. Also finds the
/// kind of the statement, and what it returns.
pub fn parameters(statement: &str) -> Option<usize> {
    let _ = (text::Kind::of(statement), text::returning_query(statement));
    text::names(statement).ok().map(|names| names.len())
}

/// Reads the level and the query of a request; returns the number of values in the query.
pub fn request(level: &str, query: &str) -> usize {
    crate::message::fuzz_request(level, query)
}
