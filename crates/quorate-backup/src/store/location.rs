//! The name of a place in an object store: a URL, or a directory.
//!
//! Invariant: a location contains no credentials. A URL with some is refused, and errors do not repeat it.

use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::str::FromStr;

use object_store::path::Path;
use url::Url;

use crate::error::Error;

/// A place in an object store.
///
/// ```
/// # use quorate_backup::store::Location;
/// let location: Location = "s3://bucket/backups/?region=eu-central-1".parse()?;
/// assert_eq!(location.to_string(), "s3://bucket/backups?region=eu-central-1");
/// assert!("s3://key:secret@bucket/backups".parse::<Location>().is_err());
/// # Ok::<(), quorate_backup::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Location {
    pub(super) kind: Kind,
    /// The bucket or container; empty for a directory.
    pub(super) bucket: String,
    pub(super) prefix: Path,
    /// The directory; empty for the others.
    pub(super) dir: PathBuf,
    pub(super) settings: Vec<(&'static str, String)>,
}

/// The kinds of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    S3,
    Google,
    Azure,
    Dir,
}

impl Kind {
    fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" => Some(Self::S3),
            "gs" => Some(Self::Google),
            "az" => Some(Self::Azure),
            "file" => Some(Self::Dir),
            _ => None,
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
            Self::Dir => "file",
        }
    }

    /// Returns the settings that may follow the path of a URL.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &["endpoint", "region"],
            Self::Azure => &["account", "endpoint"],
            Self::Google | Self::Dir => &[],
        }
    }
}

impl Location {
    /// Returns whether a text is a URL, and not the path of a file.
    pub fn is_url(text: &str) -> bool {
        text.contains("://")
    }

    /// Returns the location of a directory.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Location`] if the working directory of a relative path is not known.
    pub fn dir(path: impl AsRef<FilePath>) -> Result<Self, Error> {
        let path = path.as_ref();
        let dir = std::path::absolute(path)
            .map_err(|error| Error::Location(format!("'{}' is not a directory: {error}", path.display())))?;
        Ok(Self { kind: Kind::Dir, bucket: String::new(), prefix: Path::default(), dir, settings: Vec::new() })
    }

    /// Returns the location, if it is a directory.
    pub fn as_dir(&self) -> Option<&FilePath> {
        (self.kind == Kind::Dir).then_some(self.dir.as_path())
    }

    /// Splits the location of an object into that of its place, and its name there.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Location`] if it names no object.
    pub fn split(&self) -> Result<(Self, String), Error> {
        let none = || Error::Location(format!("'{self}' names no object; name one, or use --latest"));
        if self.kind == Kind::Dir {
            let name = self.dir.file_name().and_then(|name| name.to_str()).ok_or_else(none)?;
            let dir = self.dir.parent().ok_or_else(none)?.to_owned();
            return Ok((Self { dir, ..self.clone() }, name.to_owned()));
        }
        let name = self.prefix.filename().ok_or_else(none)?.to_owned();
        let mut parts: Vec<_> = self.prefix.parts().collect();
        parts.pop();
        Ok((Self { prefix: parts.into_iter().collect(), ..self.clone() }, name))
    }

    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| *name == key).map(|(_, value)| value.as_str())
    }

    fn of_url(url: &Url) -> Result<Self, Error> {
        let wrong = |what: &str| Err(Error::Location(format!("{}://...: {what}", url.scheme())));
        let Some(kind) = Kind::of(url.scheme()) else {
            return wrong("write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory");
        };
        if !url.username().is_empty() || url.password().is_some() {
            return wrong("a URL must not contain credentials; docs/backups.md says where they come from");
        }
        if url.fragment().is_some() || url.port().is_some() {
            return wrong(
                "a URL has neither a port nor a '#'; give the server of a store as ?endpoint=http://host:port",
            );
        }
        let mut settings = Vec::new();
        for (key, value) in url.query_pairs() {
            let Some(key) = kind.settings().iter().find(|known| **known == key) else {
                return wrong(&match kind.settings() {
                    [] => "such a URL has no settings: remove what follows '?'".to_owned(),
                    known => format!("the settings after '?' are {}", known.join(" and ")),
                });
            };
            settings.push((*key, value.into_owned()));
        }
        if kind == Kind::Dir {
            let Ok(dir) = url.to_file_path() else { return wrong("write file:///directory, with an absolute path") };
            return Self::dir(dir);
        }
        let Some(bucket) = url.host_str().filter(|host| !host.is_empty()).map(str::to_owned) else {
            return wrong("the name of the bucket is missing");
        };
        let Ok(prefix) = Path::from_url_path(url.path()) else { return wrong("the path can't be used as a prefix") };
        Ok(Self { kind, bucket, prefix, dir: PathBuf::new(), settings })
    }
}

impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if !Self::is_url(text) {
            return Self::dir(text);
        }
        // The text is not repeated: it may contain a password.
        let url =
            Url::parse(text).map_err(|error| Error::Location(format!("this is not a URL of a store: {error}")))?;
        Self::of_url(&url)
    }
}

impl Location {
    /// Returns the location of a place below this one; see [`Store::below`](super::Store::below).
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let parts = || name.split('/').filter(|part| !part.is_empty());
        match self.kind {
            Kind::Dir => Self { dir: parts().fold(self.dir.clone(), |dir, part| dir.join(part)), ..self.clone() },
            _ => Self { prefix: parts().fold(self.prefix.clone(), |path, part| path.join(part)), ..self.clone() },
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == Kind::Dir {
            return write!(f, "{}", self.dir.display());
        }
        write!(f, "{}://{}", self.kind.scheme(), self.bucket)?;
        if !self.prefix.as_ref().is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        for (at, (key, value)) in self.settings.iter().enumerate() {
            write!(f, "{}{key}={value}", if at == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn urls_are_read_and_printed() {
        for url in [
            "s3://bucket",
            "s3://bucket/a/b",
            "s3://bucket/a?endpoint=http://127.0.0.1:5055&region=us-east-1",
            "gs://bucket/a",
            "az://container/a?account=name",
        ] {
            let location: Location = url.parse().unwrap();
            assert_eq!(location.to_string(), url);
            assert_eq!(location.to_string().parse::<Location>().unwrap(), location);
        }
        assert_eq!("file:///var/backups".parse::<Location>().unwrap().to_string(), "/var/backups");
        assert_eq!("/var/backups/".parse::<Location>().unwrap().as_dir().unwrap(), FilePath::new("/var/backups"));
    }

    #[test]
    fn objects_are_split_from_their_place() {
        for (url, place, name) in [
            ("s3://bucket/a/b.db.zst?region=x", "s3://bucket/a?region=x", "b.db.zst"),
            ("s3://bucket/b", "s3://bucket", "b"),
            ("file:///a/b", "/a", "b"),
        ] {
            let (found, object) = url.parse::<Location>().unwrap().split().unwrap();
            assert_eq!((found.to_string().as_str(), object.as_str()), (place, name));
        }
        assert!("s3://bucket".parse::<Location>().unwrap().split().is_err());
    }

    #[test]
    fn wrong_urls_are_refused_without_repeating_secrets() {
        for url in [
            "s3://key:hush@bucket/a",
            "s3://hush@bucket",
            "s3://bucket/a?secret_access_key=hush",
            "s3://bucket/a?hush=1",
            "gs://bucket?endpoint=hush",
            "http://hush/",
            "s3:///hush",
            "s3://bucket:99999/hush",
            "file://hush/a",
        ] {
            let error = url.parse::<Location>().unwrap_err();
            assert!(!error.to_string().contains("hush") && !format!("{error:?}").contains("hush"), "{error:?}");
        }
    }
}
