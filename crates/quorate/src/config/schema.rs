//! The schema of a configuration: its keys, each defined once. Everything else is derived from them: reading files and
//! environment variables, refusing unknown keys, printing, and the commented file of `quorate init`.
//!
//! Invariant: every key that can be read can be printed, and reading the printed text gives the same value; except for
//! secrets, which are never printed.

use std::path::PathBuf;

use quorate_env::Cause;
use toml::Value;

use super::value::Given;

/// A configuration that can be read from a file and the environment.
pub trait Schema: Default {
    /// Returns its keys, with those of a table next to each other.
    fn keys() -> Vec<Key<Self>>;

    /// Checks that the settings are valid and do not contradict each other.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`](super::ConfigError) says what to change.
    fn check(&self) -> Result<(), super::ConfigError>;
}

/// One key of a configuration.
pub struct Key<C> {
    pub(super) path: &'static str,
    pub(super) about: &'static str,
    pub(super) example: &'static str,
    pub(super) is_required: bool,
    /// Alternative keys for the same setting: at most one of them may be given.
    pub(super) instead_of: &'static [&'static str],
    pub(super) set: Setter<C>,
    pub(super) get: Getter<C>,
}

type Setter<C> = Box<dyn Fn(&mut C, Given<'_>) -> Result<(), Wrong>>;
type Getter<C> = Box<dyn Fn(&C) -> Shown>;

/// Why a value is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It has the wrong kind; the text names the expected one.
    Kind(&'static str),
    /// It has the right kind, but is not valid; the text follows the key's name.
    Invalid(String),
    /// It has the right kind, but an error follows from it.
    Failed(Cause),
}

/// The printed form of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// This value.
    Value(Value),
    /// It is not set.
    Nothing,
    /// It is set, but must not be shown.
    Secret,
}

impl<C: 'static> Key<C> {
    /// Creates a key from its path (tables and name, with dots), its description, and functions that set and show its
    /// value.
    pub fn new(
        path: &'static str,
        about: &'static str,
        set: impl Fn(&mut C, Given<'_>) -> Result<(), Wrong> + 'static,
        get: impl Fn(&C) -> Shown + 'static,
    ) -> Self {
        let (set, get) = (Box::new(set), Box::new(get));
        Self { path, about, example: "", is_required: false, instead_of: &[], set, get }
    }

    /// Returns the same key with an example, which a commented file shows if the key is not set.
    #[must_use]
    pub fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    /// Returns the same key as a required one.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Returns the same key as an alternative to others.
    #[must_use]
    pub fn instead_of(mut self, others: &'static [&'static str]) -> Self {
        self.instead_of = others;
        self
    }

    /// Returns the same key for a larger configuration that contains this one.
    pub fn within<D: 'static>(self, part: fn(&D) -> &C, part_mut: fn(&mut D) -> &mut C) -> Key<D> {
        let Self { path, about, example, is_required, instead_of, set, get } = self;
        Key {
            path,
            about,
            example,
            is_required,
            instead_of,
            set: Box::new(move |whole, given| set(part_mut(whole), given)),
            get: Box::new(move |whole| get(part(whole))),
        }
    }

    /// Returns the name of its environment variable.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.path.replace('.', "_").to_ascii_uppercase())
    }
}

/// The prefix of the names of variables.
pub(super) const PREFIX: &str = "QUORATE_";

impl From<String> for Shown {
    fn from(text: String) -> Self {
        Self::Value(Value::String(text))
    }
}

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&PathBuf> for Shown {
    fn from(path: &PathBuf) -> Self {
        path.display().to_string().into()
    }
}

impl From<bool> for Shown {
    fn from(flag: bool) -> Self {
        Self::Value(Value::Boolean(flag))
    }
}

impl From<u64> for Shown {
    fn from(count: u64) -> Self {
        Self::Value(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)))
    }
}

/// No texts are like none set.
impl From<Vec<String>> for Shown {
    fn from(texts: Vec<String>) -> Self {
        if texts.is_empty() {
            Self::Nothing
        } else {
            Self::Value(Value::Array(texts.into_iter().map(Value::String).collect()))
        }
    }
}

impl<T: Into<Shown>> From<Option<T>> for Shown {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}
