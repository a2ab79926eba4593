//! Text from the database, made safe for terminals: characters that would move the cursor, change colours or hide text
//! are escaped.

use quorate::Value;

use super::literal;

/// The most bytes of a blob that is shown whole.
const BLOB_BYTES_MAX: usize = 16;

/// Whether a terminal would interpret the character instead of showing it: control characters, and those that change
/// the direction of text.
pub(crate) fn is_active(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The text on one line, active characters as escapes.
pub fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// The text with its line breaks and tabs, other active characters as escapes.
pub fn lines(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_active(c) && !is_kept(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// A value for people. A long blob is shortened, and a text that looks like NULL is quoted, so that the two differ.
pub(crate) fn value(value: &Value, null: &str) -> String {
    match value {
        Value::Null => null.to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) => real(*value),
        Value::Text(text) if looks_like(text, null) => literal::quoted(text),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => blob(bytes),
    }
}

/// The shortest decimal that reads as this number.
pub(crate) fn real(value: f64) -> String {
    if value.is_infinite() { if value > 0.0 { "Inf" } else { "-Inf" }.to_owned() } else { format!("{value:?}") }
}

/// Whether a text is the one for NULL, or that in any number of quotes.
fn looks_like(text: &str, null: &str) -> bool {
    if text != null && !text.ends_with('\'') {
        return false;
    }
    let mut inner = text.to_owned();
    while inner != null {
        let quoted = inner.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        match quoted.map(|quoted| quoted.replace("''", "'")) {
            Some(unquoted) if literal::quoted(&unquoted) == inner => inner = unquoted,
            _ => return false,
        }
    }
    true
}

fn blob(bytes: &[u8]) -> String {
    match bytes.get(..BLOB_BYTES_MAX) {
        Some(start) if bytes.len() > BLOB_BYTES_MAX => {
            format!("X'{}…' ({} bytes)", literal::hex(start), bytes.len())
        }
        _ => format!("X'{}'", literal::hex(bytes)),
    }
}
