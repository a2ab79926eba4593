//! Paths of things that have names: all of a kind, or one of them.

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// All things of the kind.
    All,
    /// One of them. The rest of its path is its name, percent-encoded; it may contain slashes as they are.
    One,
}

impl Resource {
    /// Returns what a path names of the kind whose path is `all`, such as `/keys`.
    pub(crate) fn of(path: &str, all: &str) -> Option<Self> {
        match path.strip_prefix(all)? {
            "" => Some(Self::All),
            rest => rest.starts_with('/').then_some(Self::One),
        }
    }
}
