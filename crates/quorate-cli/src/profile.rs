//! Profiles: names for clusters, and for how to reach them, in a file of the user.
//!
//! The file is `quorate/profiles.toml` in `$XDG_CONFIG_HOME`, or in `~/.config`. Each table of it is a profile. Paths
//! in it are relative to its directory. What the command line says overrides the profile.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Context as _, Error, Result};
use crate::options::AccessArgs;

/// The environment variable that may name the profile.
pub const VARIABLE: &str = "QUORATE_PROFILE";

/// The most bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How to reach a cluster, as a profile says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// `host:port` of nodes; one that answers is enough.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// As `--ca`.
    pub ca: Option<PathBuf>,
    /// As `--user`.
    pub user: Option<String>,
    /// As `--token-file`.
    pub token_file: Option<PathBuf>,
    /// As `--secret-file`.
    pub secret_file: Option<PathBuf>,
}

impl Profile {
    /// Returns the profile that the options or the environment name; `None` if they name none, or the options name the
    /// cluster in another way.
    pub fn find(args: &AccessArgs) -> Result<Option<Self>> {
        let variable = || std::env::var(VARIABLE).ok().filter(|_| args.node.is_none() && args.config.is_none());
        let Some(name) = args.login.profile.clone().or_else(variable) else { return Ok(None) };
        let file =
            file().ok_or_else(|| Error::new("no profile can be found: neither XDG_CONFIG_HOME nor HOME is set"))?;
        Self::read(&file, &name).map(Some)
    }

    fn read(file: &Path, name: &str) -> Result<Self> {
        let said = || format!("the profiles in {}", file.display());
        let size = std::fs::metadata(file).context(said)?.len();
        if size > FILE_BYTES_MAX {
            return Err(Error::new(format!("{} has more than {FILE_BYTES_MAX} bytes", said())));
        }
        let text = std::fs::read_to_string(file).context(said)?;
        let mut table: toml::Table =
            text.parse().map_err(|error| Error::caused(format!("{}: {error}", said()), error))?;
        let names = || table.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let missing = Error::new(format!("{} have none called '{name}'; there are: {}", said(), names()));
        let found = table.remove(name).ok_or(missing)?;
        let profile: Self =
            found.try_into().map_err(|error| Error::caused(format!("{}, '{name}': {error}", said()), error))?;
        if profile.nodes.is_empty() {
            return Err(Error::new(format!("{}, '{name}': give 'nodes', such as [\"10.0.0.1:7001\"]", said())));
        }
        Ok(profile.beside(file.parent().unwrap_or(Path::new(""))))
    }

    /// Returns the same with paths that don't depend on the working directory.
    fn beside(self, dir: &Path) -> Self {
        let beside = |path: Option<PathBuf>| path.map(|path| dir.join(path));
        // The name of the system's CAs is no path.
        let ca = self.ca.map(|ca| if ca == Path::new("system") { ca } else { dir.join(ca) });
        Self { ca, token_file: beside(self.token_file), secret_file: beside(self.secret_file), ..self }
    }
}

fn file() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home)?;
    Some(folder.join("quorate").join("profiles.toml"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn a_profile_is_read_and_its_mistakes_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("profiles.toml");
        let read = |text: &str, name: &str| {
            std::fs::write(&file, text).unwrap();
            Profile::read(&file, name).map_err(|error| error.to_string())
        };
        let prod = "[prod]\nnodes = [\"a:1\"]\nca = \"ca.crt\"\nuser = \"ann\"\ntoken_file = \"/t\"\n";
        let text = &format!("{prod}[test]\nca = \"system\"\n");
        let prod = read(text, "prod").unwrap();
        assert_eq!((prod.nodes, prod.user.as_deref()), (vec!["a:1".to_owned()], Some("ann")));
        assert_eq!((prod.ca, prod.token_file), (Some(dir.path().join("ca.crt")), Some("/t".into())));
        assert!(read(text, "test").unwrap_err().contains("give 'nodes'"));
        assert!(read(text, "other").unwrap_err().contains("there are: prod, test"));
        assert!(read("[p]\nnode = \"a:1\"", "p").unwrap_err().contains("unknown field `node`"));
        assert!(read("[p", "p").is_err());
    }
}
