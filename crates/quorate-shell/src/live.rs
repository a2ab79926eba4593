//! A transaction at the prompt. Its statements, reads too, run when they are typed, and see those before them.
//!
//! While a transaction is open on the leader, all other writes wait, so it must not stay open while a person thinks.
//! Therefore each statement runs in a new transaction on the leader, after all statements before it, and that
//! transaction is rolled back. COMMIT runs all statements once more, and commits them.
//!
//! Invariants:
//! - Nothing is committed unless each statement gives the result that was shown when it was typed.
//! - Nothing is written before COMMIT.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use quorate::sql::{BatchResult, StatementResult};
use quorate::{Error as SqlError, Params, Sql, Transaction};

use crate::error::{Error, Result};
use crate::shell::Shell;

/// The most statements of such a transaction, since each of them runs all before it again.
const STATEMENTS_MAX: usize = 200;

const BEGUN: &str = "BEGIN: each statement shows what COMMIT will write; ROLLBACK discards them\n";

/// A transaction that was begun at the prompt.
#[derive(Debug, Default)]
pub struct LiveTransaction {
    statements: Vec<Shown>,
}

/// A statement whose result was shown.
#[derive(Debug)]
struct Shown {
    text: String,
    params: Params,
    /// A hash of the result.
    result: u64,
}

/// Why a transaction can't be run again.
enum NotRun {
    /// The statement with this number, counted from 1, gives another result now.
    Differs(usize),
    /// The transaction may be run again.
    Failed(SqlError),
}

impl Shell {
    /// Begins a transaction at the prompt.
    pub(crate) fn begin_live(&mut self) -> Result<()> {
        self.live = Some(LiveTransaction::default());
        self.remark(BEGUN)
    }

    /// Runs a statement of the transaction, and prints its result. A statement that fails is not part of it.
    pub(crate) async fn run_live(&mut self, statement: &str) -> Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        if live.statements.len() >= STATEMENTS_MAX {
            let text =
                format!("a transaction at the prompt may have {STATEMENTS_MAX} statements; COMMIT what it holds");
            return Err(Error::new(text));
        }
        match live.run(self.client.sql(), statement, self.parameters.of(statement)).await {
            Ok(result) => self.print_result(&result),
            Err(why) => Err(self.ended_by(why)),
        }
    }

    /// Commits the transaction.
    pub(crate) async fn commit_live(&mut self) -> Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let tx = match live.again(self.client.sql()).await {
            Ok(tx) => tx,
            Err(why) => return Err(self.ended_by(why)),
        };
        self.live = None;
        self.is_writing = true;
        let done = tx.commit().await;
        self.is_writing = false;
        match done? {
            BatchResult { results, .. } if results.is_empty() => self.remark("COMMIT: nothing was written\n"),
            done => self.print_committed(&done),
        }
    }

    /// Discards the transaction.
    pub(crate) fn roll_back_live(&mut self) -> Result<()> {
        self.live = None;
        self.remark("ROLLBACK: nothing was written\n")
    }

    fn ended_by(&mut self, why: NotRun) -> Error {
        match why {
            NotRun::Failed(error) => error.into(),
            NotRun::Differs(number) => {
                self.live = None;
                Error::new(format!(
                    "statement {number} of the transaction gives another result now, because others have written or \
                     it uses the time or a random number; the transaction has ended, and nothing was written"
                ))
            }
        }
    }
}

impl LiveTransaction {
    /// Runs a statement after those before it.
    async fn run(&mut self, sql: &Sql, statement: &str, params: Params) -> Result<StatementResult, NotRun> {
        let mut tx = self.again(sql).await?;
        let result = tx.execute(statement.to_owned(), params.clone()).await.map_err(NotRun::Failed)?;
        tx.rollback();
        self.statements.push(Shown { text: statement.to_owned(), params, result: hash(&result) });
        Ok(result)
    }

    /// Runs all statements again, in a new transaction on the leader.
    async fn again(&self, sql: &Sql) -> Result<Transaction, NotRun> {
        let mut tx = sql.begin().await.map_err(NotRun::Failed)?;
        for (number, statement) in (1..).zip(&self.statements) {
            match tx.execute(statement.text.clone(), statement.params.clone()).await {
                Ok(result) if hash(&result) == statement.result => {}
                Ok(_) | Err(SqlError::Failed(_)) => return Err(NotRun::Differs(number)),
                Err(error) => return Err(NotRun::Failed(error)),
            }
        }
        Ok(tx)
    }
}

/// The hash of everything that is shown of a result.
fn hash(result: &StatementResult) -> u64 {
    let mut hasher = DefaultHasher::new();
    // A value has no hash of its own because of the floating-point numbers.
    format!("{result:?}").hash(&mut hasher);
    hasher.finish()
}
