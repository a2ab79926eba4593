//! `.dump`: SQL from which `sqlite3` makes the same database.
//!
//! It is read from one snapshot, so it shows one position whatever is written in the meantime. It is read in pieces, so
//! that memory does not grow with the database. A dump that could not be read to its end has no COMMIT, and leaves
//! nothing behind where it is loaded.
//!
//! Invariants:
//! - Values are restored to the bit: texts and blobs are read as bytes with a mark before them, since a text need not
//!   be UTF-8. Rowids are restored even if no column shows them.
//! - Indexes, views and triggers come after the data.
//! - A virtual table is restored by inserting its rows again. Its shadow tables are dumped only if its rows can't be
//!   read: for an FTS5 table without content.

mod schema;

use quorate::{Snapshot, Value};

use crate::catalog::terminated;
use crate::error::Result;
use crate::format::literal;
use crate::output::Output;
use crate::shell::Shell;
use schema::{Content, Schema, Table};

/// Bytes that are buffered for one write.
const BUFFER_BYTES: usize = 64 << 10;

/// The marks of texts and blobs.
const TEXT: u8 = b't';
const BLOB: u8 = b'b';

impl Shell {
    /// Prints the database as SQL, or only the tables and views that match these LIKE patterns.
    pub(super) async fn dump(&mut self, patterns: &[String]) -> Result<()> {
        let mut snapshot = self.client.snapshot(self.level).await?;
        let schema = Schema::read(&mut snapshot, patterns).await?;
        let out = Out { output: &mut self.output, buffer: String::new() };
        let mut dump = Dump { snapshot: &mut snapshot, schema: &schema, out };
        match dump.all(patterns.is_empty()).await {
            Ok(()) => dump.out.flush(),
            Err(error) => {
                dump.out.put("ROLLBACK; -- this dump is not complete\n")?;
                dump.out.flush()?;
                let hint = "the dump is not complete; try again when less is written, or dump one table at a time";
                Err(error.within(hint))
            }
        }
    }
}

/// A running dump.
struct Dump<'a> {
    snapshot: &'a mut Snapshot,
    schema: &'a Schema,
    out: Out<'a>,
}

impl Dump<'_> {
    async fn all(&mut self, is_whole: bool) -> Result<()> {
        let (schema, position) = (self.schema, self.snapshot.position());
        self.out
            .put(&format!("-- quorate dump, position {position}\nPRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n"))?;
        for table in schema.tables() {
            self.out.put(&terminated(&table.sql))?;
            self.rows(table).await?;
        }
        self.sequences().await?;
        for table in schema.virtual_tables() {
            self.virtual_table(table).await?;
        }
        self.made_by("index")?;
        self.made_by("view")?;
        for table in schema.virtual_tables().filter(|table| table.content == Content::Elsewhere) {
            let name = literal::name(&table.name);
            self.out.put(&format!("INSERT INTO {name}({name}) VALUES('rebuild');\n"))?;
        }
        self.made_by("trigger")?;
        self.statistics().await?;
        if is_whole {
            self.header().await?;
        }
        self.out.put("COMMIT;\n")
    }

    fn made_by(&mut self, kind: &str) -> Result<()> {
        let schema = self.schema;
        schema.made_by(kind).try_for_each(|sql| self.out.put(&terminated(sql)))
    }

    /// INSERTs for all rows of a table.
    async fn rows(&mut self, table: &Table) -> Result<()> {
        let head = table.insert();
        let mut rows = self.snapshot.stream(table.select(), ()).await?;
        while let Some(piece) = rows.next().await? {
            for row in &piece {
                let values: Vec<String> = row.values().iter().map(marked).collect();
                self.out.put(&format!("{head}{});\n", values.join(",")))?;
            }
            if self.out.output.drain().await?.is_break() {
                return Ok(());
            }
            // Yields, so that Ctrl-C works even if the next rows are always there.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn virtual_table(&mut self, table: &Table) -> Result<()> {
        self.out.put(&terminated(&table.sql))?;
        if table.content == Content::Nowhere {
            let schema = self.schema;
            for shadow in schema.shadows_of(table) {
                self.out.put(&format!("DELETE FROM {};\n", literal::name(&shadow.name)))?;
                self.rows(shadow).await?;
            }
            return Ok(());
        }
        self.options(table).await?;
        if table.content == Content::Own { self.rows(table).await } else { Ok(()) }
    }

    /// The configuration of an FTS5 table.
    async fn options(&mut self, table: &Table) -> Result<()> {
        let Some(config) = self.schema.shadows_of(table).find(|shadow| shadow.name.ends_with("_config")) else {
            return Ok(());
        };
        let name = literal::name(&table.name);
        let sql = format!("SELECT k, v FROM {} WHERE k <> 'version' ORDER BY k", literal::name(&config.name));
        for row in &self.snapshot.query(sql, ()).await? {
            let values: Vec<String> = row.values().iter().map(literal::value).collect();
            self.out.put(&format!("INSERT INTO {name}({name},rank) VALUES({});\n", values.join(",")))?;
        }
        Ok(())
    }

    /// The counters of AUTOINCREMENT.
    async fn sequences(&mut self) -> Result<()> {
        if !self.schema.has("sqlite_sequence") {
            return Ok(());
        }
        for row in &self.snapshot.query("SELECT name, seq FROM sqlite_sequence", ()).await? {
            let [Value::Text(name), sequence] = row.values() else { continue };
            if self.schema.tables().any(|table| table.name == *name) {
                let (name, sequence) = (literal::quoted(name), literal::value(sequence));
                self.out.put(&format!(
                    "DELETE FROM sqlite_sequence WHERE name={name};\n\
                     INSERT INTO sqlite_sequence VALUES({name},{sequence});\n"
                ))?;
            }
        }
        Ok(())
    }

    /// Has the statistics computed again, since a cluster lets only ANALYZE write them.
    async fn statistics(&mut self) -> Result<()> {
        if !self.schema.has("sqlite_stat1") {
            return Ok(());
        }
        for row in &self.snapshot.query("SELECT DISTINCT tbl FROM sqlite_stat1 ORDER BY 1", ()).await? {
            let [Value::Text(name)] = row.values() else { continue };
            if self.schema.tables().any(|table| table.name == *name) {
                self.out.put(&format!("ANALYZE {};\n", literal::name(name)))?;
            }
        }
        Ok(())
    }

    /// The fields of the database header that belong to the application.
    async fn header(&mut self) -> Result<()> {
        for pragma in ["user_version", "application_id"] {
            let rows = self.snapshot.query(format!("PRAGMA {pragma}"), ()).await?;
            if let Ok(number) = rows.one::<i64>()
                && number != 0
            {
                self.out.put(&format!("PRAGMA {pragma}={number};\n"))?;
            }
        }
        Ok(())
    }
}

/// The expression of a column in a SELECT: texts and blobs as bytes with a mark before them.
fn marking(column: &str) -> String {
    format!(
        "CASE typeof({column}) WHEN 'text' THEN CAST('{}'||{column} AS BLOB) \
         WHEN 'blob' THEN CAST('{}'||{column} AS BLOB) ELSE {column} END",
        char::from(TEXT),
        char::from(BLOB),
    )
}

/// The literal of a value that was read by [`marking`].
fn marked(value: &Value) -> String {
    match value {
        Value::Blob(bytes) => match bytes.split_first() {
            Some((&TEXT, text)) => literal::text(text),
            Some((_, blob)) => literal::blob(blob),
            None => literal::blob(bytes),
        },
        other => literal::value(other),
    }
}

/// The output, written in larger pieces.
struct Out<'a> {
    output: &'a mut Output,
    buffer: String,
}

impl Out<'_> {
    fn put(&mut self, text: &str) -> Result<()> {
        self.buffer.push_str(text);
        if self.buffer.len() < BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        self.output.write(&std::mem::take(&mut self.buffer))
    }
}
