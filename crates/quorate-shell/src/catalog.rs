//! `.tables`, `.indexes` and `.schema`: the names of tables, views and indexes, and the statements that created them.

use quorate::Error as SqlError;

use crate::error::{Error, Result};
use crate::format::side_by_side;
use crate::shell::Shell;

/// Excludes the tables that SQLite and Quorate keep for themselves.
const NOT_INTERNAL: &str = r"name NOT LIKE 'sqlite\_%' ESCAPE '\' AND tbl_name NOT LIKE '\_quorate\_%' ESCAPE '\'
    AND sql NOT LIKE '%\_quorate\_%' ESCAPE '\'";

/// Tables that belong to virtual tables.
const SHADOWS: &str = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'";

impl Shell {
    /// Prints the names of tables and views.
    pub(super) async fn tables(&mut self, pattern: Option<&str>) -> Result<()> {
        let sql = format!(
            r"SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND {NOT_INTERNAL}
                AND name NOT IN ({SHADOWS}) AND name LIKE ?1 ESCAPE '\' ORDER BY 1"
        );
        self.names(&sql, pattern).await
    }

    /// Prints the names of indexes.
    pub(super) async fn indexes(&mut self, table: Option<&str>) -> Result<()> {
        let sql = r"SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name NOT LIKE '\_quorate\_%' ESCAPE '\'
                    AND tbl_name LIKE ?1 ESCAPE '\' ORDER BY 1";
        self.names(sql, table).await
    }

    async fn names(&mut self, sql: &str, pattern: Option<&str>) -> Result<()> {
        let names = self.texts(sql, pattern.unwrap_or("%")).await?;
        self.output.write(&side_by_side(&names, self.output.width()))
    }

    /// Prints the statements that created all objects, or one table, view, index or trigger and what belongs to it.
    pub(super) async fn schema(&mut self, name: Option<&str>) -> Result<()> {
        let which = match name {
            Some(_) => r"(name LIKE ?1 ESCAPE '\' OR tbl_name LIKE ?1 ESCAPE '\')".to_owned(),
            None => format!("tbl_name LIKE ?1 AND tbl_name NOT IN ({SHADOWS})"),
        };
        let sql = format!(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND {NOT_INTERNAL} AND {which} ORDER BY rowid"
        );
        let made = self.texts(&sql, name.unwrap_or("%")).await?;
        if let Some(name) = name.filter(|_| made.is_empty()) {
            return Err(Error::new(format!("there is nothing like {name}; .tables lists the tables and views")));
        }
        let text: String = made.iter().map(|sql| terminated(sql)).collect();
        self.output.write(&text)
    }

    async fn texts(&self, sql: &str, pattern: &str) -> Result<Vec<String>> {
        let rows = match self.client.query(self.level, sql, (pattern,)).await {
            Err(SqlError::TooLarge(_)) => {
                self.client.snapshot(self.level).await?.query(sql.to_owned(), (pattern,)).await?
            }
            rows => rows?,
        };
        rows.all().map_err(Error::of)
    }
}

/// A statement with a semicolon, on a line of its own if the last line may end in a comment.
pub(super) fn terminated(sql: &str) -> String {
    let last = sql.lines().last().unwrap_or_default();
    if last.contains("--") { format!("{sql}\n;\n") } else { format!("{sql};\n") }
}
