//! The sources of a configuration: a file of TOML, and environment variables, which override the file.
//!
//! Invariant: nothing that is given is ignored. An unknown key or variable is an error that names the nearest known
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use quorate_env::disk::read_file;
use quorate_env::{Cause, Env};
use toml::de::DeTable;
use toml::{Table, Value};

use super::ConfigError;
use super::nearest::nearest;
use super::schema::{Key, PREFIX, Schema, Wrong};
use super::value::Given;

/// The most bytes of a configuration file.
const CONFIG_FILE_MAX: u64 = 1 << 20;

/// The sources of one configuration.
#[derive(Clone, Default)]
pub struct Sources {
    table: Table,
    /// The file of the table, and the lines of its keys; `None` if the table was given as a text.
    file: Option<(PathBuf, BTreeMap<String, usize>)>,
    /// The directory to which relative paths in the table are relative.
    base: PathBuf,
    variables: Vec<(String, String)>,
    /// The name of a variable that is not text.
    unreadable: Option<String>,
}

impl Sources {
    /// Creates sources without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a text of TOML. Relative paths in it are relative to the working directory.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Syntax`] if the text is not TOML.
    pub fn text(mut self, text: &str) -> Result<Self, ConfigError> {
        self.table = text.parse::<Table>().map_err(|mut error| {
            let line = line_at(text, error.span().map_or(0, |span| span.start));
            // With its input, the error would quote the line, which may hold the secret.
            error.set_input(None);
            ConfigError::Syntax { line, message: error.message().to_owned(), source: Cause::from(error) }
        })?;
        Ok(self)
    }

    /// Sets a file of TOML. Relative paths in it are relative to its directory.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::File`] or [`ConfigError::Syntax`].
    pub fn file(mut self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let failed = |source: Cause| ConfigError::File { path: path.to_owned(), source };
        let bytes = read_file(Env::real().disk().as_ref(), path, CONFIG_FILE_MAX);
        let bytes = bytes.map_err(|error| failed(Cause::from(error)))?;
        let text = String::from_utf8(bytes).map_err(|_| failed("it is not text".into()))?;
        path.parent().unwrap_or(Path::new("")).clone_into(&mut self.base);
        self.file = Some((path.to_owned(), lines(&text)));
        self.text(&text).map_err(|error| {
            let line = if let ConfigError::Syntax { line, .. } = error { Some(line) } else { None };
            error.in_file(path, line)
        })
    }

    /// Sets the variables whose names begin with `QUORATE_`, except for those that Kubernetes creates for services.
    #[must_use]
    pub fn variables<T: Into<OsString>>(mut self, variables: impl IntoIterator<Item = (T, T)>) -> Self {
        (self.variables, self.unreadable) = (Vec::new(), None);
        for (name, value) in variables {
            let name = name.into();
            let shown = name.to_string_lossy();
            if !shown.starts_with(PREFIX) || is_service_link(&shown) {
                continue;
            }
            let shown = shown.into_owned();
            match (name.into_string(), value.into().into_string()) {
                (Ok(name), Ok(value)) => self.variables.push((name, value)),
                _ => self.unreadable = Some(shown),
            }
        }
        self
    }

    /// Reads the configuration from all sources.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] says what to change.
    pub fn read<C: Schema + 'static>(&self) -> Result<C, ConfigError> {
        let keys = C::keys();
        let mut config = C::default();
        let in_file = self.apply_file(&keys, &mut config)?;
        let in_variables = self.apply_variables(&keys, &mut config)?;
        let is_given = |key: &Key<C>| in_file.contains(key.path) || in_variables.contains(key.path);
        if let Some(key) = keys.iter().find(|key| key.is_required && !is_given(key)) {
            return Err(self.in_file(ConfigError::Missing(key.path), None));
        }
        // If there are variables, they may be the cause, so the file is not named.
        config.check().map_err(|error| if in_variables.is_empty() { self.in_file(error, None) } else { error })?;
        Ok(config)
    }

    /// Returns the source of a key's value, if the key is set.
    pub fn origin<C: 'static>(&self, key: &Key<C>) -> Option<String> {
        let variable = key.variable();
        if self.variables.iter().any(|(name, _)| *name == variable) {
            return Some(variable);
        }
        take(&mut self.table.clone(), key.path).ok().flatten().map(|_| "file".to_owned())
    }

    /// Adds the file, if there is one, and the line of a key to an error.
    fn in_file(&self, error: ConfigError, key: Option<&str>) -> ConfigError {
        let Some((path, lines)) = &self.file else { return error };
        // If a table is given where a value is expected, only the keys inside the table have lines.
        error.in_file(path, key.and_then(|key| lines.get(key)).copied())
    }

    fn apply_file<C: 'static>(&self, keys: &[Key<C>], config: &mut C) -> Result<BTreeSet<&'static str>, ConfigError> {
        let mut table = self.table.clone();
        let mut given = BTreeSet::new();
        for key in keys {
            let at = |error| self.in_file(error, Some(key.path));
            let outer = |error| self.in_file(error, key.path.split_once('.').map(|(outer, _)| outer));
            let Some(value) = take(&mut table, key.path).map_err(outer)? else { continue };
            alone(key, &given).map_err(at)?;
            given.insert(key.path);
            set(key, config, key.path, Given::File(&value, &self.base)).map_err(at)?;
        }
        match first_path(&table) {
            None => Ok(given),
            Some(path) => {
                let known = nearest(&path, keys.iter().map(|key| key.path));
                let nearest = known.unwrap_or_default().to_owned();
                Err(self.in_file(ConfigError::UnknownKey { key: path.clone(), nearest }, Some(&path)))
            }
        }
    }

    fn apply_variables<C: 'static>(
        &self,
        keys: &[Key<C>],
        config: &mut C,
    ) -> Result<BTreeSet<&'static str>, ConfigError> {
        if let Some(name) = &self.unreadable {
            return Err(ConfigError::NotText(name.clone()));
        }
        let mut given = BTreeSet::new();
        let mut left = self.variables.clone();
        for key in keys {
            let name = key.variable();
            let Some(at) = left.iter().position(|(variable, _)| *variable == name) else { continue };
            let (_, text) = left.swap_remove(at);
            alone(key, &given)?;
            given.insert(key.path);
            set(key, config, &name, Given::Variable(&text))?;
        }
        match left.into_iter().next() {
            None => Ok(given),
            Some((name, _)) => {
                let known: Vec<String> = keys.iter().map(Key::variable).collect();
                let nearest = nearest(&name, known.iter().map(String::as_str)).unwrap_or_default().to_owned();
                Err(ConfigError::UnknownVariable { name, nearest })
            }
        }
    }
}

/// Returns the line, from 1, of an offset in a text.
fn line_at(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count().saturating_add(1)
}

/// Returns the lines of all keys of a text, by their full paths; empty if the text can't be parsed.
fn lines(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    let Ok(root) = DeTable::parse(text) else { return lines };
    let mut open = vec![(String::new(), root.get_ref())];
    while let Some((before, table)) = open.pop() {
        for (key, value) in table {
            let path = format!("{before}{}", key.get_ref());
            if let Some(inside) = value.get_ref().as_table() {
                open.push((format!("{path}."), inside));
            }
            lines.insert(path, line_at(text, key.span().start));
        }
    }
    lines
}

/// Returns whether Kubernetes sets a variable of this name in each pod for a service whose name begins with `quorate`.
fn is_service_link(name: &str) -> bool {
    let is_port = |rest: &str| rest.is_empty() || rest.starts_with('_');
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.match_indices("_PORT").any(|(at, found)| is_port(name.get(at + found.len()..).unwrap_or_default()))
}

fn alone<C>(key: &Key<C>, given: &BTreeSet<&'static str>) -> Result<(), ConfigError> {
    match key.instead_of.iter().find(|other| given.contains(**other)) {
        None => Ok(()),
        Some(other) => Err(ConfigError::Invalid(format!("set one of '{other}' and '{}'", key.path).into())),
    }
}

fn set<C>(key: &Key<C>, config: &mut C, name: &str, given: Given<'_>) -> Result<(), ConfigError> {
    (key.set)(config, given).map_err(|wrong| match wrong {
        Wrong::Kind(expected) => ConfigError::Value { key: name.to_owned(), expected, found: given.kind() },
        Wrong::Invalid(text) => ConfigError::Invalid(format!("'{name}' {text}").into()),
        Wrong::Failed(error) => ConfigError::Invalid(Cause::context(format!("'{name}' {error}"), error)),
    })
}

/// Removes the value at a path from a table and returns it.
fn take(table: &mut Table, path: &'static str) -> Result<Option<Value>, ConfigError> {
    let Some((outer, inner)) = path.split_once('.') else { return Ok(table.remove(path)) };
    match table.get_mut(outer) {
        None => Ok(None),
        Some(Value::Table(inside)) => {
            let value = inside.remove(inner);
            if inside.is_empty() {
                table.remove(outer);
            }
            Ok(value)
        }
        Some(other) => {
            let found = other.type_str();
            Err(ConfigError::Value { key: outer.to_owned(), expected: "a table", found })
        }
    }
}

/// Returns the path of the first value in a table.
fn first_path(table: &Table) -> Option<String> {
    let (key, value) = table.iter().next()?;
    match value.as_table().and_then(first_path) {
        Some(inner) => Some(format!("{key}.{inner}")),
        None => Some(key.clone()),
    }
}
