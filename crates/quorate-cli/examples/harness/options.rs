//! Options of the form `--name value`.

use std::path::PathBuf;

use super::Result;

/// What was typed, taken out one by one.
pub struct Options(Vec<(String, String)>);

impl Options {
    /// Of this process.
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

    /// These.
    pub fn of<const N: usize>(options: [(&str, &str); N]) -> Self {
        Self(options.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    /// A number.
    pub fn number(&mut self, name: &str, or: u64) -> Result<u64> {
        self.take(name)
            .map_or(Ok(or), |value| value.parse().map_err(|error| format!("--{name} {value}: {error}").into()))
    }

    /// A text, if it was typed.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.take(name)
    }

    /// A path, if it was typed.
    pub fn path(&mut self, name: &str) -> Option<PathBuf> {
        self.take(name).map(PathBuf::from)
    }

    /// Fails if something is left that nobody asked for.
    pub fn finish(self) -> Result<()> {
        self.0.first().map_or(Ok(()), |(name, _)| Err(format!("--{name}: not known").into()))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }
}
