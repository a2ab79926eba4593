//! Functions and collations that a program provides, for all connections of its nodes.
//!
//! # When an extension may be used
//!
//! A command must do the same on every node, so it may use an extension only once every voter has it. Voters announce
//! the names of their extensions. When all have announced a name, the leader proposes
//! [`SqlCommand::Extend`](quorate_model::SqlCommand::Extend) with it, and from that entry on the name is *enabled*: it
//! is in `_quorate_extensions`, is registered on the write connection of every node, and stays enabled for ever. A node
//! that lacks an enabled name applies no entries. Queries may use all extensions that their node has.
//!
//! # Invariants
//!
//! - Whether a command finds a name depends only on the entries before it.
//! - What a name does never changes, because programs of all versions apply the same log. The program must keep this
//!   rule; the running hash of outcomes detects most violations.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use quorate_env::mutant::Mutant;
use quorate_model::limits::{EXTENSION_NAME_BYTES_MAX, EXTENSIONS_MAX};
use quorate_model::{StoreFault, Value, ValueRef};
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::{Value as Own, ValueRef as Raw};
use rusqlite::{Connection, Error, OptionalExtension};

use crate::classify;
use crate::determinism::math;

/// Creates the table of enabled names.
pub(crate) const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS _quorate_extensions (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID";

/// Enables a name.
pub(crate) const ENABLE: &str = "INSERT OR IGNORE INTO _quorate_extensions (name) VALUES (?1)";

const IS_THERE: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_quorate_extensions'";
const ENABLED: &str = "SELECT name FROM _quorate_extensions ORDER BY name";
const OF_SQLITE: &str = "SELECT lower(name) FROM pragma_function_list UNION SELECT lower(name) FROM \
                         pragma_collation_list WHERE name <> ''";

/// The most arguments of a function.
pub const ARGUMENTS_MAX: usize = 100;

/// The prefix with which names of collations are announced.
const COLLATION: &str = "collation ";

/// A function may be used everywhere in a schema: it has no side effects and depends only on its arguments.
const FLAGS: FunctionFlags =
    FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_INNOCUOUS).union(FunctionFlags::SQLITE_DETERMINISTIC);

type Scalar = Arc<dyn Fn(&[ValueRef<'_>]) -> Result<Value, String> + Send + Sync>;
type Aggregation = Arc<dyn Fn() -> Box<dyn Aggregator> + Send + Sync>;
type Ailment = Arc<dyn Fn(&[ValueRef<'_>]) -> Option<i32> + Send + Sync>;
type Collation = Arc<dyn Fn(&str, &str) -> Ordering + Send + Sync>;

/// The state of an aggregate function for one group of rows.
pub trait Aggregator: Send {
    /// Adds the arguments of one row.
    ///
    /// # Errors
    ///
    /// The statement fails with the returned text.
    fn step(&mut self, arguments: &[ValueRef<'_>]) -> Result<(), String>;

    /// Returns the value of the group, which may have no rows.
    ///
    /// # Errors
    ///
    /// The statement fails with the returned text.
    fn finish(self: Box<Self>) -> Result<Value, String>;
}

/// Functions and collations of a program.
///
/// **The rule**: what a function returns, and how a collation orders, must depend only on the arguments, and must be
/// the same on every machine, in every version of the program, for ever. A function or collation must not use a clock,
/// randomness, settings, floating-point functions of the machine's C library, or Unicode tables that a later version
/// updates. To change what one does, register the new behaviour under a new name. If a function panics, its statement
/// fails; a collation must not panic.
///
/// ```
/// use quorate_model::{Value, ValueRef};
/// use quorate_sql::extensions::Extensions;
///
/// let extensions = Extensions::default()
///     .with_function("slug", 1, |arguments| match arguments {
///         [ValueRef::Text(text)] => Ok(Value::Text(text.to_ascii_lowercase().replace(' ', "-"))),
///         [_] => Ok(Value::Null),
///         _ => Err("slug() takes a text".to_owned()),
///     })
///     .with_collation("by_length", |a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
/// extensions.check()?;
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Default)]
pub struct Extensions(Arc<BTreeMap<String, Extension>>);

#[derive(Clone)]
struct Extension {
    name: String,
    arguments: usize,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Scalar(Scalar),
    Aggregate(Aggregation),
    Collation(Collation),
    Ailment(Ailment),
}

impl Extensions {
    /// Adds a scalar function with this number of arguments. If it fails, its text becomes the statement's error.
    #[must_use]
    pub fn with_function(
        self,
        name: &str,
        arguments: usize,
        function: impl Fn(&[ValueRef<'_>]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.with(name, arguments, Kind::Scalar(Arc::new(function)))
    }

    /// Adds an aggregate function with this number of arguments. `begin` returns the state of a new group.
    #[must_use]
    pub fn with_aggregate<A: Aggregator + 'static>(
        self,
        name: &str,
        arguments: usize,
        begin: impl Fn() -> A + Send + Sync + 'static,
    ) -> Self {
        self.with(name, arguments, Kind::Aggregate(Arc::new(move || Box::new(begin()))))
    }

    /// Adds a collation, to be used as `COLLATE name`.
    #[must_use]
    pub fn with_collation(self, name: &str, compare: impl Fn(&str, &str) -> Ordering + Send + Sync + 'static) -> Self {
        self.with(name, 0, Kind::Collation(Arc::new(compare)))
    }

    /// Adds a function that violates the rule, for simulations: it returns 1, or fails with a result code of SQLite
    /// that means a fault of this node.
    #[doc(hidden)]
    #[must_use]
    pub fn with_ailment(
        self,
        name: &str,
        arguments: usize,
        ails: impl Fn(&[ValueRef<'_>]) -> Option<i32> + Send + Sync + 'static,
    ) -> Self {
        self.with(name, arguments, Kind::Ailment(Arc::new(ails)))
    }

    fn with(mut self, name: &str, arguments: usize, kind: Kind) -> Self {
        let extension = Extension { name: name.to_ascii_lowercase(), arguments, kind };
        Arc::make_mut(&mut self.0).insert(extension.announced(), extension);
        self
    }

    /// Checks that all extensions can be registered: names must consist of letters, digits and underscores, and must
    /// not be those of SQLite's own functions and collations.
    ///
    /// # Errors
    ///
    /// Returns a text that says what to change.
    pub fn check(&self) -> Result<(), String> {
        if self.0.is_empty() {
            return Ok(());
        }
        if self.0.len() > EXTENSIONS_MAX {
            return Err(format!("{} functions and collations: the limit is {EXTENSIONS_MAX}", self.0.len()));
        }
        let own = names_of_sqlite().map_err(|error| error.to_string())?;
        self.0.values().try_for_each(|extension| extension.check(&own))
    }

    /// Returns the names under which the extensions are announced: `slug/1`, `collation by_length`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the names that are enabled in a database; none if it lacks the table.
    pub(crate) fn enabled(&self, conn: &Connection) -> Result<Vec<String>, StoreFault> {
        if Mutant::ExtensionsOfProcess.is_on() {
            return Ok(self.names().map(str::to_owned).collect());
        }
        let read = || -> rusqlite::Result<Vec<String>> {
            if conn.query_row(IS_THERE, [], |_| Ok(())).optional()?.is_none() {
                return Ok(Vec::new());
            }
            conn.prepare(ENABLED)?.query_map([], |row| row.get(0))?.collect()
        };
        read().map_err(|error| classify::own(&error))
    }

    /// Fails if the program does not provide one of the names.
    pub(crate) fn know(&self, names: &[String]) -> Result<(), StoreFault> {
        let unknown: Vec<&str> = names.iter().map(String::as_str).filter(|name| !self.0.contains_key(*name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let text = format!("it needs {}, which this program does not register", unknown.join(", "));
        Err(StoreFault::Unsupported(text))
    }

    /// Registers the extensions with these names on a connection; ignores names that the program does not provide.
    pub(crate) fn register<'a>(
        &self,
        conn: &Connection,
        names: impl IntoIterator<Item = &'a str>,
    ) -> rusqlite::Result<()> {
        names.into_iter().filter_map(|name| self.0.get(name)).try_for_each(|extension| extension.register(conn))
    }

    /// Registers all extensions on a connection.
    pub(crate) fn register_all(&self, conn: &Connection) -> rusqlite::Result<()> {
        self.0.values().try_for_each(|extension| extension.register(conn))
    }

    /// Returns the name of the extension that SQLite reports as missing, if the program provides it and it is not
    /// enabled.
    pub(crate) fn missed(&self, error: &Error, enabled: &[String]) -> Option<&str> {
        let (what, is_collation) = missing(error)?;
        let is_it = |extension: &Extension| {
            matches!(extension.kind, Kind::Collation(_)) == is_collation && extension.name.eq_ignore_ascii_case(what)
        };
        let mut found = self.0.iter().filter(|(name, extension)| is_it(extension) && !enabled.contains(name));
        found.next().map(|(name, _)| name.as_str())
    }
}

impl Extension {
    fn announced(&self) -> String {
        match self.kind {
            Kind::Scalar(_) | Kind::Aggregate(_) | Kind::Ailment(_) => format!("{}/{}", self.name, self.arguments),
            Kind::Collation(_) => format!("{COLLATION}{}", self.name),
        }
    }

    fn check(&self, own: &[String]) -> Result<(), String> {
        let name = &self.name;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_word) {
            let todo = "use letters, digits and underscores";
            return Err(format!("'{name}' can't be the name of a function or collation: {todo}"));
        }
        if self.announced().len() > EXTENSION_NAME_BYTES_MAX {
            return Err(format!("the name '{name}' is too long: the limit is {EXTENSION_NAME_BYTES_MAX} bytes"));
        }
        if self.arguments > ARGUMENTS_MAX {
            return Err(format!("{name}() has {} arguments: the limit is {ARGUMENTS_MAX}", self.arguments));
        }
        if own.contains(name) {
            return Err(format!("'{name}' is a function or collation of SQLite: choose another name"));
        }
        Ok(())
    }

    fn register(&self, conn: &Connection) -> rusqlite::Result<()> {
        let (name, arguments) = (self.name.as_str(), i32::try_from(self.arguments).unwrap_or(i32::MAX));
        match &self.kind {
            Kind::Scalar(function) => {
                let (function, own) = (Arc::clone(function), self.name.clone());
                conn.create_scalar_function(name, arguments, FLAGS, move |context| {
                    let arguments = arguments_of(context)?;
                    guarded(&own, || function(&arguments)).map(returned)
                })
            }
            Kind::Ailment(ails) => {
                let ails = Arc::clone(ails);
                conn.create_scalar_function(name, arguments, FLAGS, move |context| {
                    match ails(&arguments_of(context)?) {
                        None => Ok(1),
                        Some(code) => Err(Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)),
                    }
                })
            }
            Kind::Aggregate(begin) => {
                let groups = Groups { name: self.name.clone(), begin: Arc::clone(begin) };
                conn.create_aggregate_function(name, arguments, FLAGS, groups)
            }
            Kind::Collation(compare) => {
                let compare = Arc::clone(compare);
                conn.create_collation(name, move |a, b| compare(a, b))
            }
        }
    }
}

/// Adapts an [`Aggregator`] to rusqlite's interface of aggregates.
struct Groups {
    name: String,
    begin: Aggregation,
}

/// The state of a group. If its step panics, its statement fails and the state is dropped.
type Group = AssertUnwindSafe<Box<dyn Aggregator>>;

impl Aggregate<Group, Own> for Groups {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Group> {
        guarded(&self.name, || Ok(AssertUnwindSafe((self.begin)())))
    }

    fn step(&self, context: &mut Context<'_>, group: &mut Group) -> rusqlite::Result<()> {
        let arguments = arguments_of(context)?;
        guarded(&self.name, || group.0.step(&arguments))
    }

    fn finalize(&self, _: &mut Context<'_>, group: Option<Group>) -> rusqlite::Result<Own> {
        guarded(&self.name, || group.map_or_else(|| (self.begin)(), |group| group.0).finish()).map(returned)
    }
}

/// Converts what a function returns for SQLite.
fn returned(value: Value) -> Own {
    match value {
        Value::Null => Own::Null,
        Value::Integer(value) => Own::Integer(value),
        Value::Real(value) => Own::Real(value),
        Value::Text(text) => Own::Text(text),
        Value::Blob(bytes) => Own::Blob(bytes.into()),
    }
}

fn arguments_of<'a>(context: &'a Context<'_>) -> rusqlite::Result<Vec<ValueRef<'a>>> {
    let argument = |number| match context.get_raw(number) {
        Raw::Null => Ok(ValueRef::Null),
        Raw::Integer(value) => Ok(ValueRef::Integer(value)),
        Raw::Real(value) => Ok(ValueRef::Real(value)),
        Raw::Blob(bytes) => Ok(ValueRef::Blob(bytes)),
        Raw::Text(text) => {
            let text =
                std::str::from_utf8(text).map_err(|_| failed(format!("argument {} is not UTF-8", number + 1)))?;
            Ok(ValueRef::Text(text))
        }
    };
    (0..context.len()).map(argument).collect()
}

/// Runs a function of the program, and turns a panic into a failure of the statement, which is the same on every node.
fn guarded<T>(name: &str, run: impl FnOnce() -> Result<T, String>) -> rusqlite::Result<T> {
    let panicked = |_| Err(format!("{name}() of the program has panicked; its message is in the log"));
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked).map_err(failed)
}

fn failed(text: String) -> Error {
    Error::UserFunctionError(text.into())
}

/// Returns whether an error of SQLite says that a function or collation is missing.
pub(crate) fn is_missing(error: &Error) -> bool {
    missing(error).is_some()
}

/// Returns the name of the function or collation that an error of SQLite reports as missing, and whether it is a
/// collation.
fn missing(error: &Error) -> Option<(&str, bool)> {
    let (Error::SqlInputError { msg: message, .. } | Error::SqliteFailure(_, Some(message))) = error else {
        return None;
    };
    if let Some(name) = message.strip_prefix("no such collation sequence: ") {
        return Some((name, true));
    }
    let of_schema = || message.strip_prefix("unknown function: ")?.strip_suffix("()");
    let of_other_arguments = || message.strip_prefix("wrong number of arguments to function ")?.strip_suffix("()");
    let function = message.strip_prefix("no such function: ").or_else(of_schema).or_else(of_other_arguments);
    function.map(|name| (name, false))
}

fn names_of_sqlite() -> rusqlite::Result<Vec<String>> {
    let conn = Connection::open_in_memory()?;
    math::install(&conn)?;
    conn.prepare(OF_SQLITE)?.query_map([], |row| row.get(0))?.collect()
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Compares the names only: by the rule, equal names do the same.
impl PartialEq for Extensions {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys().eq(other.0.keys())
    }
}
