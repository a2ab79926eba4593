//! What the authorizer denies, and why.
//!
//! A command must do the same on every node. It may therefore use nothing that is specific to this node and nothing
//! that depends on where batches end: no files, connection settings, page numbers, shadow tables, or tables of the
//! store.

use rusqlite::ffi;

use super::{Mode, Seen};
use crate::events::{function as notify, schema as events};
use crate::ffi::hooks::Access;
use crate::keys::schema as keys;
use crate::locks::schema as locks;

/// The prefix of the names of the store's own tables.
pub(crate) const RESERVED: &str = "_quorate_";

/// Modules of the virtual tables that commands may create: those whose content is a function of the commands.
const MODULES: [&str; 3] = ["fts5", "rtree", "rtree_i32"];

/// Functions that have effects outside of the database, or whose results depend on this node.
const FUNCTIONS: [&str; 8] = [
    "load_extension",
    "fts3_tokenizer",
    "fts5_source_id",
    // Its value begins with bytes that each connection draws at random.
    "fts5_locale",
    "sqlite_version",
    "sqlite_source_id",
    "sqlite_compileoption_used",
    "sqlite_compileoption_get",
];

/// Virtual tables that show the state of this process, or pages.
const NODE_TABLES: [&str; 7] =
    ["dbstat", "sqlite_dbpage", "sqlite_stmt", "bytecode", "tables_used", "sqlite_memstat", "fts3tokenize"];

/// Tables that not even a query may read: that of users, and the one that shows the pages of every table.
const SECRET_TABLES: [&str; 2] = ["_quorate_users", "sqlite_dbpage"];

/// What to do instead.
const LIST_USERS: &str = "an administrator can list the users (`quorate users list`)";

/// Pragmas that describe the schema, also as table functions (`pragma_table_info`).
const SCHEMA_PRAGMAS: [&str; 6] =
    ["table_info", "table_xinfo", "index_list", "index_info", "index_xinfo", "foreign_key_list"];

/// Numbers in the file's header that belong to the application and change with the transaction.
const HEADER_PRAGMAS: [&str; 2] = ["user_version", "application_id"];

/// Pragmas that the statements inside of virtual tables need, in any mode.
const NESTED_PRAGMAS: [&str; 2] = ["data_version", "page_size"];

/// The pragma that `ALTER TABLE ... ADD COLUMN` runs, as a table function, if the column has a constraint that existing
/// rows must satisfy. No text of the user's runs together with it.
const CHECK_OF_ALTER: &str = "quick_check";

/// Further pragmas that a query may use, none of which changes anything. SQLAlchemy first asks for `read_uncommitted`,
/// which is never set.
const QUERY_PRAGMAS: [&str; 10] = [
    "table_list",
    "database_list",
    "collation_list",
    "function_list",
    "module_list",
    "compile_options",
    "page_count",
    "freelist_count",
    "schema_version",
    "read_uncommitted",
];

/// Pragmas that a query may use, with an argument or without.
const CHECKS: [&str; 3] = ["foreign_key_check", "integrity_check", "quick_check"];

/// Why a query that writes is refused.
pub(crate) const WRITE_IN_QUERY: &str = "a query can't write; use `execute`";

/// Why temporary tables, views and triggers are refused.
const TEMPORARY: &str = "temporary objects live on one node only; use an ordinary table, or WITH for one statement";

/// Why something is refused.
type Refusal = String;

/// Records the effects of a command.
pub(super) fn note(access: &Access<'_>, seen: &mut Seen) {
    let statistics = access.first.is_some_and(is_statistics);
    let effects = &mut seen.effects;
    seen.drops |= matches!(access.action, ffi::SQLITE_DROP_INDEX..=ffi::SQLITE_DROP_VIEW | ffi::SQLITE_DROP_VTABLE);
    seen.alters |= access.action == ffi::SQLITE_ALTER_TABLE;
    seen.drops |= seen.alters;
    match access.action {
        ffi::SQLITE_CREATE_INDEX
        | ffi::SQLITE_CREATE_TABLE
        | ffi::SQLITE_CREATE_TRIGGER
        | ffi::SQLITE_CREATE_VIEW
        | ffi::SQLITE_CREATE_VTABLE
        | ffi::SQLITE_DROP_INDEX
        | ffi::SQLITE_DROP_TABLE
        | ffi::SQLITE_DROP_TRIGGER
        | ffi::SQLITE_DROP_VIEW
        | ffi::SQLITE_DROP_VTABLE
        | ffi::SQLITE_ALTER_TABLE
        | ffi::SQLITE_REINDEX => {
            effects.schema = true;
            effects.nested = true;
            effects.statistics |= statistics;
        }
        ffi::SQLITE_ANALYZE => effects.statistics = true,
        ffi::SQLITE_INSERT if access.accessor.is_none() => {
            effects.writes = true;
            effects.inserts = true;
        }
        ffi::SQLITE_UPDATE if access.accessor.is_none() => effects.writes = true,
        ffi::SQLITE_DELETE => {
            effects.statistics |= statistics;
            effects.writes |= access.accessor.is_none();
        }
        ffi::SQLITE_FUNCTION => effects.notifies |= access.second.is_some_and(is_notify),
        ffi::SQLITE_READ => effects.nested |= access.first.is_some_and(|name| pragma_table(name).is_some()),
        _ => {}
    }
}

/// Returns whether SQLite shall skip this access: ANALYZE must not count rows of tables whose rows depend on where
/// batches end, and nothing may change how SQLite runs the store's own statements. REINDEX concerns no index of the
/// store.
pub(super) fn is_left_out(access: &Access<'_>, seen: &Seen) -> bool {
    let name = access.first.unwrap_or_default();
    match access.action {
        ffi::SQLITE_ANALYZE => is_reserved(name) || seen.is_shadow(name),
        ffi::SQLITE_REINDEX => is_reserved(name),
        _ => false,
    }
}

/// Allows or refuses an access.
pub(super) fn decide(access: &Access<'_>, mode: Mode, seen: &Seen) -> Result<(), Refusal> {
    if matches!(access.action, ffi::SQLITE_CREATE_TEMP_INDEX..=ffi::SQLITE_CREATE_TEMP_VIEW)
        || matches!(access.action, ffi::SQLITE_DROP_TEMP_INDEX..=ffi::SQLITE_DROP_TEMP_VIEW)
    {
        return refuse(TEMPORARY);
    }
    match access.action {
        ffi::SQLITE_ATTACH | ffi::SQLITE_DETACH if matches!(mode, Mode::Running { .. }) => {
            refuse("VACUUM can't be combined with other statements; send it alone")
        }
        ffi::SQLITE_ATTACH | ffi::SQLITE_DETACH => refuse(
            "ATTACH and DETACH are not allowed: other files are not replicated; copy what you need into this database",
        ),
        ffi::SQLITE_TRANSACTION | ffi::SQLITE_SAVEPOINT => refuse(
            "BEGIN, COMMIT, ROLLBACK and SAVEPOINT are not allowed: send statements that belong together as a batch",
        ),
        ffi::SQLITE_PRAGMA => pragma(access, mode),
        ffi::SQLITE_FUNCTION => function(access, mode),
        ffi::SQLITE_SELECT | ffi::SQLITE_RECURSIVE => Ok(()),
        ffi::SQLITE_READ => read(access, mode, seen),
        // A virtual table prepares its writes when it is connected, and `EXPLAIN` may be applied to a write. None of
        // these can run: the reader refuses a statement that is not read-only, and its connection can't write.
        ffi::SQLITE_INSERT | ffi::SQLITE_UPDATE | ffi::SQLITE_DELETE if mode == Mode::Query => Ok(()),
        _ if mode == Mode::Query => refuse(WRITE_IN_QUERY),
        _ => write(access, mode, seen),
    }
}

fn function(access: &Access<'_>, mode: Mode) -> Result<(), Refusal> {
    let name = access.second.unwrap_or_default();
    if mode == Mode::Query && is_notify(name) {
        return refuse(notify::IN_QUERY);
    }
    let forbidden = if mode == Mode::Query { FUNCTIONS.get(..2).unwrap_or_default() } else { &FUNCTIONS };
    if among(name, forbidden) {
        let todo = if mode == Mode::Query { "leave it out" } else { "call it in a query, and pass the result" };
        return refuse(format!("{name}() is not allowed: what it does or returns depends on the node; {todo}"));
    }
    Ok(())
}

fn pragma(access: &Access<'_>, mode: Mode) -> Result<(), Refusal> {
    let name = access.first.unwrap_or_default();
    if among(name, &SCHEMA_PRAGMAS) || among(name, &NESTED_PRAGMAS) && access.second.is_none() && mode != Mode::Command
    {
        return Ok(());
    }
    if among(name, &HEADER_PRAGMAS) && (mode != Mode::Query || access.second.is_none()) {
        return Ok(());
    }
    if mode == Mode::Query && (among(name, &CHECKS) || among(name, &QUERY_PRAGMAS) && access.second.is_none()) {
        return Ok(());
    }
    if mode == (Mode::Running { schema: true }) && name.eq_ignore_ascii_case(CHECK_OF_ALTER) {
        return Ok(());
    }
    if name.eq_ignore_ascii_case("page_size") && access.second.is_none() {
        return Ok(());
    }
    if among(name, &CHECKS) || among(name, &QUERY_PRAGMAS) && access.second.is_none() {
        return refuse(format!("PRAGMA {name} describes only one node; use it in a query"));
    }
    if among(name, &HEADER_PRAGMAS) {
        return refuse(format!("PRAGMA {name} is not allowed in a query with a value; use `execute`"));
    }
    let text = "settings belong to the store and must be equal on all nodes; leave it out";
    refuse(format!("PRAGMA {name} is not allowed here: {text}"))
}

fn read(access: &Access<'_>, mode: Mode, seen: &Seen) -> Result<(), Refusal> {
    let table = access.first.unwrap_or_default();
    if among(table, &SECRET_TABLES) {
        return refuse(format!("{table} may not be read: it holds the hashes of passwords and tokens; {LIST_USERS}"));
    }
    if mode == Mode::Query {
        return Ok(());
    }
    if is_reserved(table) && !is_of_view(access) {
        return reserved(table, "read it in a query");
    }
    if is_schema(table) && access.second.is_some_and(|column| column.eq_ignore_ascii_case("rootpage")) {
        // SQLite itself reads this column while it drops something, and after it has changed the schema. No SELECT of
        // the user's runs together with that, except through an FTS5 table over the schema, which the schema check
        // refuses.
        if !seen.drops && !matches!(mode, Mode::Running { schema: true }) {
            return refuse(format!("{table}.rootpage differs between nodes; name the columns that you need"));
        }
    }
    if mode != Mode::Command {
        return Ok(());
    }
    if among(table, &NODE_TABLES) {
        return refuse(format!("{table} describes only one node; read it in a query"));
    }
    let is_asked_by_alter = |pragma: &str| seen.alters && pragma.eq_ignore_ascii_case(CHECK_OF_ALTER);
    if pragma_table(table).is_some_and(|pragma| !among(pragma, &SCHEMA_PRAGMAS) && !is_asked_by_alter(pragma)) {
        return refuse(format!("{table} describes only one node; read it in a query"));
    }
    if seen.is_shadow(table) {
        return refuse(format!(
            "{table} is a shadow table of a virtual table and differs between nodes; read it in a query"
        ));
    }
    Ok(())
}

fn write(access: &Access<'_>, mode: Mode, seen: &Seen) -> Result<(), Refusal> {
    // ALTER also updates the temporary schema when it renames something.
    let renames = seen.drops && access.first.is_some_and(is_schema);
    if access.database.is_some_and(|name| name.eq_ignore_ascii_case("temp")) && !renames {
        return refuse(TEMPORARY);
    }
    for name in [access.first, access.second].into_iter().flatten() {
        if is_reserved(name) {
            return reserved(name, "choose another");
        }
        if mode == Mode::Command && seen.is_shadow(name) {
            return refuse(format!(
                "{name} is a shadow table, which only its virtual table may change; write to the virtual table"
            ));
        }
    }
    let table = access.first.unwrap_or_default();
    if matches!(access.action, ffi::SQLITE_INSERT | ffi::SQLITE_UPDATE) && is_statistics(table) {
        return refuse(format!(
            "only ANALYZE may write to {table}, so that plans are equal on all nodes; run it instead"
        ));
    }
    if matches!(access.action, ffi::SQLITE_CREATE_VTABLE) {
        let module = access.second.unwrap_or_default();
        if !among(module, &MODULES) {
            return refuse(format!("the module {module} is not allowed; use one of {}", MODULES.join(", ")));
        }
    }
    Ok(())
}

/// Returns whether a view of the store is read, or the data under it. A common table expression with the name of a view
/// may read these too, which does no harm: they are equal on all nodes. If no column is needed, for instance to count
/// rows, SQLite does not say through which view.
pub(super) fn is_of_view(access: &Access<'_>) -> bool {
    let is_data = |table: &str| is_reserved(table) && !is_bookkeeping(table);
    let is_through_view = access.accessor.is_some_and(is_view) || access.second == Some("");
    access.first.is_some_and(is_view) || is_through_view && access.first.is_some_and(is_data)
}

fn reserved(name: &str, todo: &str) -> Result<(), Refusal> {
    if is_view(name) {
        return refuse(format!(
            "{name} is a view of the store, and can only be read; change what it shows by commands"
        ));
    }
    refuse(format!("{name}: names that begin with {RESERVED} belong to the store; {todo}"))
}

fn refuse(text: impl Into<String>) -> Result<(), Refusal> {
    Err(text.into())
}

/// Returns whether a name is reserved for the store.
pub(crate) fn is_reserved(name: &str) -> bool {
    starts_with(name, RESERVED) || is_view(name)
}

/// Returns whether a name is that of a table in which the store keeps records of its own, and not data: it may differ
/// between versions for a while.
pub fn is_bookkeeping(name: &str) -> bool {
    let of_data = [keys::PREFIX, locks::PREFIX, events::PREFIX];
    starts_with(name, RESERVED) && !of_data.iter().any(|prefix| starts_with(name, prefix))
}

/// Returns whether a name is that of one of the store's views, which commands may read.
fn is_view(name: &str) -> bool {
    among(name, &keys::VIEW_NAMES) || among(name, &[locks::VIEW_NAME, events::VIEW_NAME])
}

fn is_notify(function: &str) -> bool {
    function.eq_ignore_ascii_case(notify::NAME)
}

fn is_statistics(name: &str) -> bool {
    starts_with(name, "sqlite_stat")
}

fn is_schema(name: &str) -> bool {
    among(name, &["sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"])
}

fn pragma_table(name: &str) -> Option<&str> {
    if starts_with(name, "pragma_") { name.get("pragma_".len()..) } else { None }
}

fn starts_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn among(name: &str, names: &[&str]) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}
