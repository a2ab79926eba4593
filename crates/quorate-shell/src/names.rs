//! The names of tables, columns and functions, for completion.
//!
//! Invariant: a caller waits at most [`WAIT_MAX`]. Names that arrive later are there for the next call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use quorate_env::{lock, unpoisoned};
use tokio::runtime::Handle;

use crate::client::Connection;
use crate::error::{Error, Result};
use crate::format::visible;

/// How long a caller at the prompt waits for names.
const WAIT_MAX: Duration = Duration::from_millis(300);

/// How long the node may take to answer.
const FETCH_MAX: Duration = Duration::from_secs(2);

/// After how long names are fetched again, since other clients may create tables.
const FRESH: Duration = Duration::from_secs(10);

/// The most columns, of all tables together.
const COLUMNS_MAX: usize = 20_000;

/// The functions first, as columns of no table; without those that SQLite or a module keeps for itself.
const SQL: &str = r"SELECT DISTINCT NULL, name FROM pragma_function_list WHERE name GLOB '[a-z]*'
      AND name NOT GLOB 'fts*' AND name NOT GLOB 'rtree*' AND name NOT GLOB 'sqlite_*' AND name <> 'load_extension'
    UNION ALL SELECT t.name, c.name FROM pragma_table_list t, pragma_table_xinfo(t.name) c
      WHERE t.schema = 'main' AND t.type IN ('table', 'view', 'virtual') AND t.name NOT LIKE '\_quorate\_%' ESCAPE '\'";

/// The names in a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Tables and views, each with its columns.
    pub tables: BTreeMap<String, Vec<String>>,
    /// Functions that statements may call.
    pub functions: BTreeSet<String>,
}

/// The cached names. Cheap to clone.
#[derive(Clone)]
pub struct KnownNames(Arc<Shared>);

struct Shared {
    client: Connection,
    /// The runtime that fetches names while the caller blocks another thread.
    runtime: Handle,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    names: Arc<Names>,
    /// When they were last fetched; `None` if they may have changed since.
    fetched_at: Option<Instant>,
    is_fetching: bool,
}

impl KnownNames {
    /// An empty cache, which fetches names in the runtime of the caller.
    pub fn new(client: Connection) -> Self {
        let shared = Shared { client, runtime: Handle::current(), state: Mutex::default(), bell: Condvar::new() };
        Self(Arc::new(shared))
    }

    /// The names that are known. The caller's thread may block.
    pub fn get(&self) -> Arc<Names> {
        let mut state = self.0.state();
        if state.fetched_at.is_none_or(|fetched_at| fetched_at.elapsed() > FRESH) && !state.is_fetching {
            state.is_fetching = true;
            let known = self.clone();
            self.0.runtime.spawn(async move {
                let names = fetch(&known.0.client).await;
                known.0.learn(names);
            });
        }
        let waited = self.0.bell.wait_timeout_while(state, WAIT_MAX, |state| state.is_fetching);
        let (state, _) = unpoisoned(waited);
        Arc::clone(&state.names)
    }

    /// Marks the names as outdated.
    pub fn forget(&self) {
        self.0.state().fetched_at = None;
    }
}

impl Shared {
    /// Takes over the fetched names. After an error the old ones stay.
    fn learn(&self, names: Result<Names>) {
        let mut state = self.state();
        if let Ok(names) = names {
            state.names = Arc::new(names);
        }
        state.fetched_at = Some(Instant::now());
        state.is_fetching = false;
        self.bell.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

async fn fetch(client: &Connection) -> Result<Names> {
    let rows = client.look(&format!("{SQL} LIMIT {COLUMNS_MAX}"), FETCH_MAX).await?;
    Ok(gathered(rows.all::<(Option<String>, String)>().map_err(Error::of)?))
}

/// The names of these rows of [`SQL`]. The line editor would print a name as it is, so those that a terminal would
/// interpret are left out.
fn gathered(rows: Vec<(Option<String>, String)>) -> Names {
    let is_active = |name: &str| name.chars().any(visible::is_active);
    let mut names = Names::default();
    for (table, name) in rows {
        match table {
            _ if is_active(&name) => {}
            Some(table) if is_active(&table) => {}
            Some(table) => names.tables.entry(table).or_default().push(name),
            None => drop(names.functions.insert(name)),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_terminal_would_interpret_are_left_out() {
        let row = |table: Option<&str>, name: &str| (table.map(str::to_owned), name.to_owned());
        let names = gathered(vec![
            row(None, "upper"),
            row(Some("t"), "a"),
            row(Some("t"), "b\u{1b}[31m"),
            row(Some("u\u{202E}"), "c"),
        ]);
        assert_eq!(names.functions.into_iter().collect::<Vec<_>>(), ["upper"]);
        assert_eq!(names.tables.into_iter().collect::<Vec<_>>(), [("t".to_owned(), vec!["a".to_owned()])]);
    }
}
