//! What an error of `object_store` means.
//!
//! Its own text shows how often it tried and the whole answer of the server, but not why a connection failed. The type
//! with the status is not public, so the status is read from the text.
//!
//! Invariant: the text is one line of at most [`TEXT_CHARS_MAX`] characters.

use std::error::Error as _;

use object_store::Error;

/// The most characters of a text: what a server answers is not to be trusted.
const TEXT_CHARS_MAX: usize = 500;
/// What precedes a status of a server that will not change by itself.
const REFUSED: &str = "status code: 4";

/// Returns whether a request that failed, after all retries, may succeed later.
pub(super) fn is_retryable(error: &Error) -> bool {
    match error {
        Error::Generic { .. } => !error.to_string().contains(REFUSED),
        Error::JoinError { .. } => true,
        _ => false,
    }
}

/// Returns the code and the message that a server has answered, or else the innermost cause.
pub(super) fn text(error: &Error) -> String {
    let whole = error.to_string();
    let (code, message) = (between(&whole, "Code"), between(&whole, "Message"));
    let text = match (code, message) {
        (Some(code), Some(message)) => format!("{message} ({code})"),
        (Some(code), None) => code.to_owned(),
        _ if whole.contains("status code: ") => whole,
        _ => {
            let mut inner = error.source();
            while let Some(deeper) = inner.and_then(std::error::Error::source) {
                inner = Some(deeper);
            }
            inner.map_or(whole, ToString::to_string)
        }
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(TEXT_CHARS_MAX).collect()
}

/// Returns the content of an element of XML.
fn between<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(content, _)| content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn answers_of_servers_are_shown_without_their_xml() {
        let answer = "status code: 404 Not Found: <Error><Code>NoSuchBucket</Code>\n<Message>None.</Message></Error>";
        assert_eq!(text(&generic(answer)), "None. (NoSuchBucket)");
        assert!(!is_retryable(&generic(answer)));
    }

    #[test]
    fn other_errors_are_shown_by_their_cause_in_one_short_line() {
        assert_eq!(text(&generic("connection\n refused")), "connection refused");
        assert!(is_retryable(&generic("connection refused")));
        assert_eq!(text(&generic(&"x".repeat(10_000))).len(), TEXT_CHARS_MAX);
    }
}
