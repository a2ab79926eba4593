//! The names of the output modes, for `--format` and `.mode` alike.

use std::fmt;

/// How the rows of a result are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Aligned columns, fitted to the terminal.
    #[default]
    Table,
    /// One value a line.
    Line,
    /// Values with bars between them.
    List,
    /// Comma-separated values.
    Csv,
    /// Values with tabs between them, escaped as PostgreSQL's COPY does.
    Tsv,
    /// One array of objects.
    Json,
    /// One object a line.
    Ndjson,
    /// A table for Markdown.
    Markdown,
    /// SQL literals.
    Quote,
    /// INSERT statements into this table.
    Insert(String),
}

/// The names of the modes, each with a description.
pub const MODES: &[(&str, &str)] = &[
    ("table", "aligned columns, fitted to the terminal; one value a line where that reads better"),
    ("line", "one value a line"),
    ("csv", "comma-separated values with a header; NULL is empty, an empty text is \"\""),
    ("tsv", "values with tabs between them; \\t, \\n, \\r, \\\\ as escapes, NULL is \\N"),
    ("json", "one array of objects"),
    ("ndjson", "one object a line"),
    ("markdown", "a table for Markdown"),
    ("list", "values with | between them"),
    ("quote", "values as SQL writes them"),
    ("insert TABLE", "INSERT statements"),
];

impl Mode {
    /// Parses the name of a mode.
    ///
    /// # Errors
    ///
    /// A message for the user, if there is no such mode.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, table) =
            text.trim().split_once(|c: char| c.is_whitespace() || c == '=').unwrap_or((text.trim(), ""));
        let table = table.trim();
        let mode = match name.to_ascii_lowercase().as_str() {
            // The names of sqlite3 for its tables.
            "table" | "column" | "box" => Self::Table,
            "line" => Self::Line,
            "list" => Self::List,
            "csv" => Self::Csv,
            "tsv" | "tabs" => Self::Tsv,
            "json" => Self::Json,
            "ndjson" | "jsonl" => Self::Ndjson,
            "markdown" => Self::Markdown,
            "quote" => Self::Quote,
            "insert" if table.is_empty() => return Err("insert needs the name of a table: insert TABLE".to_owned()),
            "insert" => return Ok(Self::Insert(table.to_owned())),
            _ => return Err(format!("there is no mode {name}; there are {}", names().join(", "))),
        };
        if table.is_empty() { Ok(mode) } else { Err(format!("{name} takes nothing after it, not {table}")) }
    }
}

/// The names alone.
fn names() -> Vec<&'static str> {
    MODES.iter().map(|(name, _)| *name).collect()
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Line => "line",
            Self::List => "list",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Markdown => "markdown",
            Self::Quote => "quote",
            Self::Insert(table) => return write!(f, "insert {table}"),
        })
    }
}
