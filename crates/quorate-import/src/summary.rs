//! The summary of an import.

use std::fmt;
use std::path::PathBuf;

use crate::bar::grouped;
use crate::load::Written;
use crate::options::Options;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The table.
    pub table: String,
    /// Rows of the file that are in the table.
    pub rows: u64,
    /// Those of them that an earlier run wrote.
    pub earlier: u64,
    /// Those of them that this run left unchanged, because [`OnConflict::Ignore`](crate::OnConflict::Ignore) found an
    /// existing row.
    pub unchanged: u64,
    /// Lines of the file that are not in the table.
    pub bad: u64,
    /// The file that they are reported in.
    pub bad_file: PathBuf,
    /// How long this run took.
    pub seconds: f64,
}

impl Summary {
    /// The summary of an import that has not begun.
    pub(crate) fn of(options: &Options) -> Self {
        Self { table: options.table.clone(), bad_file: options.bad_file(), ..Self::default() }
    }

    /// Adds a chunk.
    pub(crate) fn add(&mut self, chunk: &Written) {
        self.rows = self.rows.saturating_add(chunk.rows);
        self.unchanged = self.unchanged.saturating_add(chunk.unchanged);
        self.bad = self.bad.saturating_add(chunk.bad.len() as u64);
        if chunk.earlier {
            self.earlier = self.earlier.saturating_add(chunk.rows);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, rows, earlier, unchanged, bad, bad_file, seconds } = self;
        let rate = rows.saturating_sub(*earlier) as f64 / seconds.max(0.001);
        write!(f, "{} rows into {table} in {seconds:.2} s ({} rows/s)", grouped(*rows), grouped(rate as u64))?;
        if *earlier > 0 {
            write!(f, ", {} of them by an earlier run", grouped(*earlier))?;
        }
        if *unchanged > 0 {
            write!(f, ", {} of which were there already", grouped(*unchanged))?;
        }
        match bad {
            0 => writeln!(f),
            1 => writeln!(f, "; 1 bad line, listed in {}", bad_file.display()),
            bad => writeln!(f, "; {} bad lines, listed in {}", grouped(*bad), bad_file.display()),
        }
    }
}
