//! The schema of a dump: tables, the source of their rows, indexes, views and triggers.

use std::collections::{BTreeMap, BTreeSet};

use quorate::{Rows, Snapshot};

use super::marking;
use crate::error::{Error, Result};
use crate::format::literal;
use crate::statements::words;

/// The prefix of the store's own tables.
const RESERVED: &str = "_quorate_";

/// Names of the rowid; a column may hide one of them.
const ROWID_NAMES: [&str; 3] = ["rowid", "_rowid_", "oid"];

const OBJECTS: &str = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
const KINDS: &str = "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main'";
const COLUMNS: &str = "SELECT name, hidden FROM pragma_table_xinfo(?1)";
/// Whether no column shows the rowid: a primary key that has an index is not the rowid.
const HIDES_ROWID: &str = "SELECT NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(?1) WHERE pk > 0)
    OR EXISTS (SELECT 1 FROM pragma_index_list(?1) WHERE origin = 'pk')";
const LIKE: &str = r"SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name LIKE ?1 ESCAPE '\'";

/// Where the rows of a table are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// In the table itself.
    Own,
    /// In another table, which this FTS5 table indexes.
    Elsewhere,
    /// Nowhere: this FTS5 table keeps only an index.
    Nowhere,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    pub name: String,
    pub sql: String,
    pub content: Content,
    is_virtual: bool,
    /// The columns that store values, the rowid included if no column shows it.
    columns: Vec<String>,
    /// Whether an INSERT must name the columns.
    names_columns: bool,
}

/// The objects to dump.
#[derive(Debug)]
pub struct Schema {
    tables: Vec<Table>,
    shadows: Vec<Table>,
    /// Indexes, views and triggers: the type of each, and the statement that creates it.
    others: Vec<(String, String)>,
    names: BTreeSet<String>,
}

impl Schema {
    /// Reads the objects that the LIKE patterns name; all objects if there are no patterns.
    pub async fn read(snapshot: &mut Snapshot, patterns: &[String]) -> Result<Self> {
        let chosen = chosen(snapshot, patterns).await?;
        let kinds: Vec<(String, String, i64)> = all(&snapshot.query(KINDS, ()).await?)?;
        let kinds: BTreeMap<String, (String, i64)> =
            kinds.into_iter().map(|(name, kind, wr)| (name.to_ascii_lowercase(), (kind, wr))).collect();
        let names = kinds.keys().cloned().collect();
        let mut schema = Self { tables: Vec::new(), shadows: Vec::new(), others: Vec::new(), names };
        let objects: Vec<(String, String, String, String)> = all(&snapshot.query(OBJECTS, ()).await?)?;
        for (kind, name, table, sql) in objects {
            // Only the store's own views can name its tables.
            if is_internal(&name) || is_internal(&table) || sql.contains(RESERVED) {
                continue;
            }
            let of = kinds.get(&name.to_ascii_lowercase()).filter(|_| kind == "table");
            let is_shadow = of.is_some_and(|(kind, _)| kind == "shadow");
            let is_chosen = chosen.as_ref().is_none_or(|chosen| chosen.contains(&table.to_ascii_lowercase()));
            match of {
                Some((kind, wr)) if is_shadow || is_chosen => {
                    let table = Table::read(snapshot, name, sql, kind == "virtual", *wr != 0).await?;
                    if is_shadow { schema.shadows.push(table) } else { schema.tables.push(table) }
                }
                None if is_chosen => schema.others.push((kind, sql)),
                _ => {}
            }
        }
        Ok(schema)
    }

    /// Ordinary tables.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(|table| !table.is_virtual)
    }

    /// Virtual tables.
    pub fn virtual_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(|table| table.is_virtual)
    }

    /// The shadow tables of a virtual table.
    pub fn shadows_of(&self, table: &Table) -> impl Iterator<Item = &Table> {
        let prefix = format!("{}_", table.name.to_ascii_lowercase());
        self.shadows.iter().filter(move |shadow| {
            let rest = shadow.name.to_ascii_lowercase().strip_prefix(&prefix).map(str::to_owned);
            rest.is_some_and(|rest| matches!(rest.as_str(), "data" | "idx" | "content" | "docsize" | "config"))
        })
    }

    /// The statements that create the objects of a type.
    pub fn made_by(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.others.iter().filter(move |(other, _)| other == kind).map(|(_, sql)| sql.as_str())
    }

    /// Whether the database has a table of this name, chosen or not.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

impl Table {
    async fn read(
        snapshot: &mut Snapshot,
        name: String,
        sql: String,
        is_virtual: bool,
        is_without_rowid: bool,
    ) -> Result<Self> {
        let all_columns: Vec<(String, i64)> = all(&snapshot.query(COLUMNS, (name.as_str(),)).await?)?;
        let is_taken = |rowid: &&str| all_columns.iter().any(|(column, _)| column.eq_ignore_ascii_case(rowid));
        let is_fts = is_virtual && is_module(&sql, "fts5");
        let hides_rowid = if is_virtual {
            is_fts
        } else {
            !is_without_rowid && one(&snapshot.query(HIDES_ROWID, (name.as_str(),)).await?)?
        };
        let rowid = ROWID_NAMES.iter().find(|rowid| hides_rowid && !is_taken(rowid));
        let stored = all_columns.iter().filter(|(_, hidden)| *hidden == 0).map(|(column, _)| literal::name(column));
        let columns: Vec<String> = rowid.map(|rowid| (*rowid).to_owned()).into_iter().chain(stored).collect();
        let names_columns = rowid.is_some() || columns.len() < all_columns.len();
        let content = match fts_option(&sql, "content").filter(|_| is_fts) {
            None => Content::Own,
            Some(content) if content.is_empty() => Content::Nowhere,
            Some(_) => Content::Elsewhere,
        };
        Ok(Self { name, sql, content, is_virtual, columns, names_columns })
    }

    /// The query for its rows, in the order of their rowids.
    pub fn select(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(|column| marking(column)).collect();
        let order = if self.is_virtual { "" } else { " NOT INDEXED" };
        format!("SELECT {} FROM {}{order}", columns.join(", "), literal::name(&self.name))
    }

    /// An INSERT, up to the parenthesis of its values.
    pub fn insert(&self) -> String {
        let columns = if self.names_columns { format!("({})", self.columns.join(",")) } else { String::new() };
        format!("INSERT INTO {}{columns} VALUES(", literal::name(&self.name))
    }
}

fn is_internal(name: &str) -> bool {
    let starts = |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    starts("sqlite_") || starts(RESERVED)
}

/// The names that match the patterns, in lower case; `None` for all.
async fn chosen(snapshot: &mut Snapshot, patterns: &[String]) -> Result<Option<BTreeSet<String>>> {
    let mut chosen = BTreeSet::new();
    for pattern in patterns {
        let names: Vec<String> = all(&snapshot.query(LIKE, (pattern.as_str(),)).await?)?;
        if names.is_empty() {
            return Err(Error::new(format!("there is no table or view like {pattern}; .tables lists them")));
        }
        chosen.extend(names.iter().map(|name| name.to_ascii_lowercase()));
    }
    Ok((!patterns.is_empty()).then_some(chosen))
}

fn is_module(sql: &str, module: &str) -> bool {
    let mut words = words(sql).map(|(word, _)| word).skip_while(|word| !word.eq_ignore_ascii_case("USING"));
    words.nth(1).is_some_and(|word| word.eq_ignore_ascii_case(module))
}

/// The value of an option of a virtual table.
fn fts_option(sql: &str, name: &str) -> Option<String> {
    let arguments = sql.split_once('(')?.1.rsplit_once(')')?.0;
    arguments_of(arguments).into_iter().find_map(|argument| {
        let (key, value) = argument.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| unquoted(value.trim()))
    })
}

/// Splits at the commas outside quotes and parentheses.
fn arguments_of(text: &str) -> Vec<&str> {
    let (mut arguments, mut start, mut depth, mut quote) = (Vec::new(), 0, 0_usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '[') => quote = Some(']'),
            (None, '(') => depth = depth.saturating_add(1),
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                arguments.extend(text.get(start..at));
                start = at.saturating_add(1);
            }
            _ => {}
        }
    }
    arguments.extend(text.get(start..));
    arguments
}

fn unquoted(value: &str) -> String {
    let Some(quote) = value.chars().next().filter(|c| matches!(c, '\'' | '"' | '`' | '[')) else {
        return value.to_owned();
    };
    let end = if quote == '[' { ']' } else { quote };
    let inside = value.get(1..).and_then(|rest| rest.rsplit_once(end)).map_or("", |(inside, _)| inside);
    inside.replace(&format!("{end}{end}"), &end.to_string())
}

fn all<T: quorate::sql::FromRowOwned>(rows: &Rows) -> Result<Vec<T>> {
    rows.all().map_err(Error::of)
}

fn one<T: quorate::sql::FromRowOwned>(rows: &Rows) -> Result<T> {
    rows.one().map_err(Error::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_among_columns() {
        let option =
            |arguments: &str| fts_option(&format!("CREATE VIRTUAL TABLE a USING fts5({arguments})"), "content");
        for (arguments, expected) in [
            ("a, b", None),
            ("a, content=''", Some("")),
            ("a, b, CONTENT = \"my table\"", Some("my table")),
            ("a, content=t, content_rowid=id", Some("t")),
            ("a, tokenize=\"unicode61 separators ',content=x,'\"", None),
            ("a, content='it''s'", Some("it's")),
            ("a, content=[x y]", Some("x y")),
        ] {
            assert_eq!(option(arguments).as_deref(), expected, "{arguments}");
        }
    }

    #[test]
    fn the_module_is_the_word_after_using() {
        assert!(is_module("CREATE VIRTUAL TABLE \"using fts5\" using FTS5(a)", "fts5"));
        assert!(!is_module("CREATE VIRTUAL TABLE fts5 USING rtree(id, a, b)", "fts5"));
    }
}
