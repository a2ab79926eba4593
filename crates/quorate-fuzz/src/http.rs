//! The requests of HTTP clients, and the SQL in them.

use quorate_http::fuzzing;

/// Checks that a body is a request of Hrana, or not, whatever space stands around it.
pub fn hrana(data: &[u8]) {
    let found = fuzzing::hrana(data);
    assert_eq!(fuzzing::hrana(&spaced(data)), found, "with space around it");
}

/// Checks the same for a message over WebSocket.
pub fn socket(data: &[u8]) {
    let found = fuzzing::hrana_socket(data);
    assert_eq!(fuzzing::hrana_socket(&spaced(data)), found, "with space around it");
}

/// Checks the same for the statements of rqlite's API, and that no body has more statements than bytes.
pub fn rqlite(data: &[u8]) {
    let count = fuzzing::rqlite(data);
    assert_eq!(fuzzing::rqlite(&spaced(data)), count, "with space around it");
    assert!(count <= data.len(), "{count} statements in {} bytes", data.len());
}

fn spaced(data: &[u8]) -> Vec<u8> {
    [b" \n".as_slice(), data, b"\t "].concat()
}

/// Checks that the statements of a script are disjoint parts of it, and that each is one statement by itself; that a
/// statement has at most as many parameters as SQLite allows; and that no level or query causes a panic.
pub fn sql(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let statements = fuzzing::statements(text);
    let mut rest = text;
    for statement in &statements {
        let at = rest.find(statement);
        assert!(at.is_some(), "{statement:?} does not occur in the rest of the text");
        rest = at.and_then(|at| rest.get(at + statement.len()..)).unwrap_or_default();
        assert_eq!(fuzzing::statements(statement), [*statement], "a part of {text:?}");
        assert!(fuzzing::parameters(statement).is_none_or(|count| count <= quorate::limits::PARAMETERS_MAX));
    }
    let values = fuzzing::request(text, text);
    assert!(values <= text.len(), "{values} values in {} bytes", text.len());
}
