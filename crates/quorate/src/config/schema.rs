//! What a configuration can hold: its keys, each written once, from which everything else follows: reading files and
//! variables of the environment, refusing what is not known, printing, and the commented file of `quorate init`.
//!
//! Invariant: a key that can be read can be printed, and what is printed reads as the same; but for secrets, which are
//! never printed.

use std::path::PathBuf;

use toml::Value;

use super::value::Given;

/// What a program can be told by a file and the environment.
pub trait Schema: Default {
    /// Its keys, those of a table together.
    fn keys() -> Vec<Key<Self>>;

    /// Says why the parts do not fit together, if they don't.
    ///
    /// # Errors
    ///
    /// [`ConfigError`](super::ConfigError) says what to change.
    fn check(&self) -> Result<(), super::ConfigError>;
}

/// One key of a configuration.
pub struct Key<C> {
    pub(super) path: &'static str,
    pub(super) about: &'static str,
    pub(super) example: &'static str,
    pub(super) is_required: bool,
    /// Keys that say the same thing in different ways: at most one of them is given at a time.
    pub(super) instead_of: &'static [&'static str],
    pub(super) set: Setter<C>,
    pub(super) get: Getter<C>,
}

type Setter<C> = Box<dyn Fn(&mut C, Given<'_>) -> Result<(), Wrong>>;
type Getter<C> = Box<dyn Fn(&C) -> Shown>;

/// Why a value can't be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is no such thing.
    Kind(&'static str),
    /// It is one, but not a possible one.
    Invalid(String),
}

/// What is printed of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// It is this.
    Value(Value),
    /// There is none.
    Nothing,
    /// There is one that must not be shown.
    Secret,
}

impl<C: 'static> Key<C> {
    /// A key: where it stands (tables and name, with dots), what it means, how its value is set and shown.
    pub fn new(
        path: &'static str,
        about: &'static str,
        set: impl Fn(&mut C, Given<'_>) -> Result<(), Wrong> + 'static,
        get: impl Fn(&C) -> Shown + 'static,
    ) -> Self {
        let (set, get) = (Box::new(set), Box::new(get));
        Self { path, about, example: "", is_required: false, instead_of: &[], set, get }
    }

    /// The same key with a value that a commented file shows where there is none.
    #[must_use]
    pub fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    /// The same key, which must be given.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// The same key, given in place of others.
    #[must_use]
    pub fn instead_of(mut self, others: &'static [&'static str]) -> Self {
        self.instead_of = others;
        self
    }

    /// The same key of a larger configuration that this one is a part of.
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

    /// The variable of the environment that gives it.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.path.replace('.', "_").to_ascii_uppercase())
    }
}

/// What the names of variables begin with.
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

impl<T: Into<Shown>> From<Option<T>> for Shown {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}
