//! Functions and collations that a program brings along, for all connections of its nodes.
//!
//! # Which may be used when
//!
//! A command must do the same on every node, so it may use an extension only once every voter has it. Voters announce
//! what they have; when all have announced a name, the leader proposes
//! [`SqlCommand::Extend`](quorate_model::SqlCommand::Extend) with it, and from that entry on the name is *enabled*: it
//! stands in `_quorate_extensions`, is registered on the write connection of every node, and stays so for ever. A node
//! that lacks an enabled name applies nothing. Queries may use whatever their node has.
//!
//! # Invariants
//!
//! - Whether a command finds a name depends on the entries before it alone.
//! - What a name does never changes: what a log holds is applied by programs of all ages. The rule is the program's to
//!   keep; the running hash of outcomes shows most breaches.

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

/// The table of enabled names.
pub(crate) const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS _quorate_extensions (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID";

/// Enables a name.
pub(crate) const ENABLE: &str = "INSERT OR IGNORE INTO _quorate_extensions (name) VALUES (?1)";

const IS_THERE: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_quorate_extensions'";
const ENABLED: &str = "SELECT name FROM _quorate_extensions ORDER BY name";
const OF_SQLITE: &str = "SELECT lower(name) FROM pragma_function_list UNION SELECT lower(name) FROM \
                         pragma_collation_list WHERE name <> ''";

/// Arguments that a function may have.
pub const ARGUMENTS_MAX: usize = 100;

/// What names of collations are announced with.
const COLLATION: &str = "collation ";

/// What a function may be used in beside statements: everything. It has no effects and reads nothing but its arguments.
const FLAGS: FunctionFlags =
    FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_INNOCUOUS).union(FunctionFlags::SQLITE_DETERMINISTIC);

type Scalar = Arc<dyn Fn(&[ValueRef<'_>]) -> Result<Value, String> + Send + Sync>;
type Aggregation = Arc<dyn Fn() -> Box<dyn Aggregator> + Send + Sync>;
type Ailment = Arc<dyn Fn(&[ValueRef<'_>]) -> Option<i32> + Send + Sync>;
type Collation = Arc<dyn Fn(&str, &str) -> Ordering + Send + Sync>;

/// A group of rows on its way to one value.
pub trait Aggregator: Send {
    /// Takes the arguments of one row.
    ///
    /// # Errors
    ///
    /// The statement fails with this text.
    fn step(&mut self, arguments: &[ValueRef<'_>]) -> Result<(), String>;

    /// The value of the group; of no rows too.
    ///
    /// # Errors
    ///
    /// The statement fails with this text.
    fn finish(self: Box<Self>) -> Result<Value, String>;
}

/// Functions and collations of a program.
///
/// **The rule**: what a function returns, or how a collation orders, depends on the arguments alone, and is the same on
/// every machine, in every version of the program, for ever: no clock, no randomness, no settings, no floating-point
/// functions of the machine's C library, no tables of Unicode that a later version updates. Give what is to do
/// something else another name. A function that panics lets its statement fail; a collation must not panic.
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
    /// The same with a function of so many arguments. A text that it fails with is the statement's error.
    #[must_use]
    pub fn with_function(
        self,
        name: &str,
        arguments: usize,
        function: impl Fn(&[ValueRef<'_>]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.with(name, arguments, Kind::Scalar(Arc::new(function)))
    }

    /// The same with a function of so many arguments over groups of rows, each of which `begin` begins.
    #[must_use]
    pub fn with_aggregate<A: Aggregator + 'static>(
        self,
        name: &str,
        arguments: usize,
        begin: impl Fn() -> A + Send + Sync + 'static,
    ) -> Self {
        self.with(name, arguments, Kind::Aggregate(Arc::new(move || Box::new(begin()))))
    }

    /// The same with a collation: `COLLATE name`.
    #[must_use]
    pub fn with_collation(self, name: &str, compare: impl Fn(&str, &str) -> Ordering + Send + Sync + 'static) -> Self {
        self.with(name, 0, Kind::Collation(Arc::new(compare)))
    }

    /// The same with a function that breaks the rule: it returns 1, or fails with a result code of SQLite that stands
    /// for trouble of this node. For simulations.
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

    /// Fails, with a text that says what to change, if these can't be registered: names are letters, digits and
    /// underscores, and none of SQLite's own.
    ///
    /// # Errors
    ///
    /// The text.
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

    /// The names under which these are announced: `slug/1`, `collation by_length`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The names that are enabled in a database; none where it has no such table.
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

    /// Fails if a name is not among these.
    pub(crate) fn know(&self, names: &[String]) -> Result<(), StoreFault> {
        let unknown: Vec<&str> = names.iter().map(String::as_str).filter(|name| !self.0.contains_key(*name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let text = format!("it needs {}, which this program does not register", unknown.join(", "));
        Err(StoreFault::Unsupported(text))
    }

    /// Registers those of such names on a connection; passes over names that are not among these.
    pub(crate) fn register<'a>(
        &self,
        conn: &Connection,
        names: impl IntoIterator<Item = &'a str>,
    ) -> rusqlite::Result<()> {
        names.into_iter().filter_map(|name| self.0.get(name)).try_for_each(|extension| extension.register(conn))
    }

    /// Registers all on a connection.
    pub(crate) fn register_all(&self, conn: &Connection) -> rusqlite::Result<()> {
        self.0.values().try_for_each(|extension| extension.register(conn))
    }

    /// The name among these, but not among the enabled ones, that SQLite misses in a statement.
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
            return Err(format!("'{name}' is no name of a function or collation: use letters, digits and underscores"));
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

/// Makes SQLite's aggregates of ours.
struct Groups {
    name: String,
    begin: Aggregation,
}

/// A group. One whose step has panicked fails its statement and is dropped.
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

/// What a function returns, for SQLite.
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

/// Runs a function of the program, whose panic is a failure of the statement, on every node alike.
fn guarded<T>(name: &str, run: impl FnOnce() -> Result<T, String>) -> rusqlite::Result<T> {
    let panicked = |_| Err(format!("{name}() of the program has panicked; mend it, its message is in the log"));
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked).map_err(failed)
}

fn failed(text: String) -> Error {
    Error::UserFunctionError(text.into())
}

/// Whether an error of SQLite says that a function or collation is not there.
pub(crate) fn is_missing(error: &Error) -> bool {
    missing(error).is_some()
}

/// The function that an error of SQLite says is not there, or the collation, of which the second value says so.
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

/// By their names: what has one name does one thing.
impl PartialEq for Extensions {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys().eq(other.0.keys())
    }
}
