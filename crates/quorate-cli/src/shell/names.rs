//! The names of tables and columns, for completion.
//!
//! Invariant: whoever asks waits a moment at most. What is not there by then is there the next time.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_env::lock;
use tokio::runtime::Handle;

use crate::client::Client;
use crate::error::{Error, Result};

/// How long a person waits at the prompt.
const WAIT_MAX: Duration = Duration::from_millis(300);

/// How long the node may take.
const FETCH_MAX: Duration = Duration::from_secs(2);

/// After how long names are asked for again: others may make tables too.
const FRESH: Duration = Duration::from_secs(10);

/// Columns of all tables together.
const COLUMNS_MAX: usize = 20_000;

const SQL: &str = r"SELECT t.name, c.name FROM pragma_table_list t, pragma_table_xinfo(t.name) c
    WHERE t.schema = 'main' AND t.type IN ('table', 'view', 'virtual') AND t.name NOT LIKE '\_quorate\_%' ESCAPE '\'";

/// Tables and views, each with its columns.
pub type Names = BTreeMap<String, Vec<String>>;

/// What is known of the names. Cheap to clone.
#[derive(Clone)]
pub struct KnownNames(Arc<Shared>);

struct Shared {
    client: Client,
    /// Where names are asked for, while the caller waits on a thread of its own.
    runtime: Handle,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    names: Arc<Names>,
    /// When they were last asked for, unless they are known to be old.
    asked: Option<Instant>,
    is_asking: bool,
}

impl KnownNames {
    /// None yet; they are asked for in the runtime of the caller.
    pub fn new(client: Client) -> Self {
        let shared = Shared { client, runtime: Handle::current(), state: Mutex::default(), bell: Condvar::new() };
        Self(Arc::new(shared))
    }

    /// The names, as far as they are known. Called from a thread that may wait.
    pub fn get(&self) -> Arc<Names> {
        let mut state = self.0.state();
        if state.asked.is_none_or(|asked| asked.elapsed() > FRESH) && !state.is_asking {
            state.is_asking = true;
            let known = self.clone();
            self.0.runtime.spawn(async move {
                let names = fetch(&known.0.client).await;
                known.0.learn(names);
            });
        }
        let waited = self.0.bell.wait_timeout_while(state, WAIT_MAX, |state| state.is_asking);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&state.names)
    }

    /// Says that they may have changed.
    pub fn forget(&self) {
        self.0.state().asked = None;
    }
}

impl Shared {
    /// What is not to be had leaves what was known.
    fn learn(&self, names: Result<Names>) {
        let mut state = self.state();
        if let Ok(names) = names {
            state.names = Arc::new(names);
        }
        state.asked = Some(Instant::now());
        state.is_asking = false;
        self.bell.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

async fn fetch(client: &Client) -> Result<Names> {
    let rows = client.look(&format!("{SQL} LIMIT {COLUMNS_MAX}"), FETCH_MAX).await?;
    let mut names = Names::new();
    for (table, column) in rows.all::<(String, String)>().map_err(|error| Error::new(error.to_string()))? {
        names.entry(table).or_default().push(column);
    }
    Ok(names)
}
