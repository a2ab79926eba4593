//! The cause of an error, for errors that can be cloned.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The error that caused another one, or, if no error did, a text. Errors hold it as their `source()`.
///
/// It can be cloned, because all clones share the error. Two causes are equal if their texts are. It does not implement
/// [`Error`] but dereferences to the error, so that a `source()` can be downcast to that error's own type.
pub struct Cause<E: ?Sized = dyn Error + Send + Sync>(Arc<E>);

impl<E> Cause<E> {
    /// Creates a cause that keeps the type of the error.
    pub fn of(error: E) -> Self {
        Self(Arc::new(error))
    }
}

impl Cause {
    /// Creates a cause with this text, which contains that of `error`. Its own cause is `error`.
    pub fn context(text: impl Into<String>, error: impl Into<Self>) -> Self {
        Self(Arc::new(Context { text: text.into(), source: error.into() }))
    }
}

impl<E: ?Sized> Deref for Cause<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.0
    }
}

impl<E: ?Sized> Clone for Cause<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// From an error or a text.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Cause {
    fn from(error: E) -> Self {
        Self(error.into().into())
    }
}

impl<E: ?Sized + fmt::Display> PartialEq for Cause<E> {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl<E: ?Sized + fmt::Display> Eq for Cause<E> {}

impl<E: ?Sized + fmt::Debug> fmt::Debug for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<E: ?Sized + fmt::Display> fmt::Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// An error with a text around that of its cause.
#[derive(Debug)]
struct Context {
    text: String,
    source: Cause,
}

impl Error for Context {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_cause_gives_the_error_itself() {
        let cause = Cause::from(io::Error::from(io::ErrorKind::NotFound));
        assert!(cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound));
        assert!(cause.source().is_none());
        assert_eq!(cause, Cause::from(cause.to_string()));
    }

    #[test]
    fn a_context_has_the_error_as_its_source() {
        let cause = Cause::context("file: it is missing", io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(cause.to_string(), "file: it is missing");
        assert!(cause.source().is_some_and(|error| error.is::<io::Error>()));
    }
}
