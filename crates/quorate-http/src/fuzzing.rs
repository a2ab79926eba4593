//! Access for fuzzing: the decoders of requests.

/// Reads a body as the requests of Hrana do; returns whether it is one.
pub fn hrana(body: &[u8]) -> bool {
    crate::hrana::fuzz_pipeline(body)
}

/// Reads a body as the requests of rqlite do; returns the number of statements with parameters that match.
pub fn rqlite(body: &[u8]) -> usize {
    crate::rqlite::fuzz_statements(body)
}
