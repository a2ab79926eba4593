//! The connections that send hostile statements, and the check of each answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quorate::sql::Param;
use quorate::{Client, Error, Level, Sql};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::books::{Books, shown};
use super::fleet::{Fleet, NODES};
use super::schema::SCHEMA;
use super::statements::{Door, Hostile, parameters, quote};
use super::{Settings, Source};
use crate::harness::Result;

/// The deadline of a statement.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// How long after the deadline the answer may arrive.
const GRACE: Duration = Duration::from_secs(3);
/// How long a reset of the schema may take.
const RESET_MAX: Duration = Duration::from_secs(60);
/// How long a connection waits before it tries a node that is down again.
const AGAIN: Duration = Duration::from_millis(200);
/// Texts that a user should not have to read in the answer to a statement.
const DOUBTFUL: [&str; 10] = [
    "disk image is malformed",
    "out of memory",
    "disk I/O error",
    "panicked",
    "internal error",
    "can't serve",
    "disk is full",
    "unable to open",
    "not an error",
    "database is locked",
];

/// What the connections share.
pub struct Sending {
    pub settings: Arc<Settings>,
    pub source: Source,
    /// The number of the next statement.
    next: AtomicU64,
    /// Limits the writes in flight.
    writes: Semaphore,
}

impl Sending {
    pub fn new(settings: Arc<Settings>, source: Source) -> Self {
        let next = AtomicU64::new(settings.from);
        let writes = Semaphore::new(settings.writes);
        Self { settings, source, next, writes }
    }

    /// Returns how many statements were taken.
    pub fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.settings.to) - self.settings.from
    }

    fn take(&self) -> Option<Hostile> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.settings.to).then(|| self.source.statement(number)).flatten()
    }
}

/// Starts the connections to a cluster.
pub fn start(fleet: &Fleet, books: &Arc<Books>, sending: &Arc<Sending>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for sender in 0..sending.settings.senders {
        let (config, books, sending) = (fleet.pinned(sender % NODES), Arc::clone(books), Arc::clone(sending));
        tasks.spawn(async move {
            let handle = loop {
                match Client::connect(config.clone()).await {
                    Ok(client) => break client.sql(),
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            };
            let sql = handle.with_deadline(DEADLINE);
            while let Some(hostile) = sending.take() {
                if hostile.number % sending.settings.reset_every == 0 {
                    reset(&handle).await;
                }
                // The semaphore is never closed.
                let _turn = if hostile.door.writes() { sending.writes.acquire().await.ok() } else { None };
                one(&sql, sender, hostile, &books).await;
            }
        });
    }
    tasks
}

/// Sends a statement and checks the answer.
async fn one(sql: &Sql, sender: usize, hostile: Hostile, books: &Books) {
    let before = books.open().trouble;
    books.sends(sender, &hostile);
    let begun = Instant::now();
    let answer = tokio::time::timeout(DEADLINE + GRACE, call(sql, &hostile)).await;
    let troubled = books.was_troubled(before);
    let kind = match &answer {
        Ok(Ok(())) => "done",
        Ok(Err(error)) => judge(error, &hostile, books),
        Err(_) => "no answer",
    };
    let lost = matches!(kind, "no answer" | "unknown" | "unavailable" | "fault" | "odd");
    if lost && !troubled {
        let said =
            answer.map_or_else(|_| String::new(), |answer| answer.err().map(|e| e.to_string()).unwrap_or_default());
        let took = begun.elapsed().as_millis();
        books.fails(&format!("{kind} after {took} ms: {said}\n  for {}", shown(&hostile)), Some(begun));
    }
    books.answered(sender, if lost && troubled { "lost with a node" } else { kind });
    if lost {
        tokio::time::sleep(AGAIN).await;
    }
}

async fn call(sql: &Sql, hostile: &Hostile) -> Result<(), Error> {
    let values = parameters(hostile.parameters);
    let given = || values.iter().cloned().map(Param::Value).collect::<Vec<Param>>();
    let text = hostile.sql.clone();
    match hostile.door {
        Door::Local => sql.at(Level::Local).query(text, given()).await.map(drop),
        Door::Linearizable => sql.query(text, given()).await.map(drop),
        Door::Execute => sql.execute(text, given()).await.map(drop),
        Door::Returning => sql.execute_returning(text, given()).await.map(drop),
        Door::Batch => {
            let plain = || ("INSERT INTO pad (b) VALUES (1)".to_owned(), Vec::<Param>::new());
            sql.batch([plain(), (text, given()), plain()]).await.map(drop)
        }
        Door::Interactive => {
            let mut tx = sql.begin().await?;
            if let Err(error) = tx.execute(text, given()).await {
                // A failed statement leaves the transaction open.
                tx.rollback();
                return Err(error);
            }
            tx.commit().await.map(drop)
        }
    }
}

/// Returns the name of the kind of an error.
fn judge(error: &Error, hostile: &Hostile, books: &Books) -> &'static str {
    let text = error.to_string();
    if DOUBTFUL.iter().any(|word| text.contains(word)) {
        books.doubts(&text, hostile);
    }
    match error {
        Error::Failed(_) => "failed",
        Error::TooLarge(_) => "too large",
        Error::TimedOut(_) | Error::SnapshotEnded => "timed out",
        Error::Overloaded(_) => "overloaded",
        Error::Conflict(_) | Error::TransactionAborted(_) => "aborted",
        Error::Unknown(_) => "unknown",
        Error::Unavailable(_) => "unavailable",
        Error::Store(_) => "fault",
        _ => "odd",
    }
}

/// Drops what statements created, and creates the tables that they use again. A failure is ignored: another connection
/// did the same, or the next reset does.
pub async fn reset(sql: &Sql) {
    let all = async {
        let sql = sql.with_deadline(RESET_MAX);
        // Some objects can be dropped only after others, because of foreign keys and views of views.
        for _ in 0..2 {
            let ask = "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view', 'trigger') \
                       AND tbl_name NOT LIKE 'sqlite!_%' ESCAPE '!' AND tbl_name NOT LIKE '!_quorate!_%' ESCAPE '!' \
                       AND tbl_name <> 'written' ORDER BY type DESC, sql NOT LIKE '%VIRTUAL%', rowid DESC";
            for (kind, name) in sql.query_as::<(String, String)>(ask, ()).await.unwrap_or_default() {
                let _ = sql.execute(format!("DROP {kind} IF EXISTS {}", quote(&name)), ()).await;
            }
        }
        for statement in SCHEMA {
            let _ = sql.execute(*statement, ()).await;
        }
    };
    // Ignore a timeout: the watch notices a cluster that does not answer.
    let _ = tokio::time::timeout(RESET_MAX, all).await;
}
