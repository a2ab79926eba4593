//! Options of the form `--name value`.

use std::path::PathBuf;

use super::Result;

/// The options of the command line; each is removed when it is read.
pub struct Options(Vec<(String, String)>);

impl Options {
    /// Reads the options of this process.
    pub fn typed() -> Result<Self> {
        let mut words = std::env::args().skip(1);
        let mut options = Vec::new();
        while let Some(name) = words.next() {
            let name =
                name.strip_prefix("--").ok_or_else(|| format!("{name}: options look like --name value"))?.to_owned();
            let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
            options.push((name, value));
        }
        Ok(Self(options))
    }

    /// Creates options with these values.
    pub fn of<const N: usize>(options: [(&str, &str); N]) -> Self {
        Self(options.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    /// Returns a number, or `or` if the option was not given.
    pub fn number(&mut self, name: &str, or: u64) -> Result<u64> {
        self.take(name)
            .map_or(Ok(or), |value| value.parse().map_err(|error| format!("--{name} {value}: {error}").into()))
    }

    /// Returns a text, if the option was given.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.take(name)
    }

    /// Returns a path, if the option was given.
    pub fn path(&mut self, name: &str) -> Option<PathBuf> {
        self.take(name).map(PathBuf::from)
    }

    /// Fails if an option was given that no one has read.
    pub fn finish(self) -> Result<()> {
        self.0.first().map_or(Ok(()), |(name, _)| Err(format!("--{name}: not known").into()))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }
}
