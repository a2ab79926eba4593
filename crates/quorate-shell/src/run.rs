//! Runs statements: queries, streamed if their results are large, and writes, each alone or all between BEGIN and
//! COMMIT together. A transaction of a script is sent as a whole; one that was begun at the prompt is [`crate::live`].

use quorate::sql::{BatchResult, StatementResult};
use quorate::{Error as SqlError, Failure, FailureKind, Params, Rows, Value};

use crate::error::{Error, Result};
use crate::format::{self, Mode, Printer, Written, plural, visible};
use crate::kind::Kind;
use crate::plan::Plan;
use crate::script::Place;
use crate::shell::{Shell, placed};
use crate::transaction::Transaction;

const BEGUN: &str = "BEGIN: statements are collected; COMMIT sends them as one, ROLLBACK discards them\n";

/// A result that is being printed.
enum Shown {
    Plan(Plan),
    Rows(Printer),
}

impl Shell {
    /// Runs a statement.
    pub(super) async fn statement(&mut self, statement: &str, place: Option<&Place>) -> Result<()> {
        let kind = Kind::of(statement);
        let is_typed = self.is_prompt && place.is_none();
        match (kind, self.in_transaction()) {
            (Kind::Begin, false) if is_typed => self.begin_live(),
            (Kind::Begin, false) => {
                self.transaction = Some(Transaction::begin(place.cloned()));
                self.remark(BEGUN)
            }
            (Kind::Begin, true) => Err(Error::new("a transaction was begun already; COMMIT or ROLLBACK it first")),
            (Kind::Commit | Kind::Rollback, false) => Err(Error::new("no transaction was begun; BEGIN starts one")),
            (Kind::Commit, true) if self.live.is_some() => self.commit_live().await,
            (Kind::Rollback, true) if self.live.is_some() => self.roll_back_live(),
            (Kind::Commit, true) => self.commit().await,
            (Kind::Rollback, true) => {
                let count = self.transaction.take().map_or(0, |transaction| transaction.len());
                let statements = plural(count.try_into().unwrap_or(u64::MAX), "statement");
                self.remark(&format!("ROLLBACK: {count} {statements} discarded\n"))
            }
            (Kind::Savepoint, _) => {
                Err(Error::new("savepoints are not supported: a transaction is done whole, or not at all"))
            }
            (Kind::ForeignKeys, _) => {
                eprintln!("note: PRAGMA foreign_keys is skipped: foreign keys are always enforced here");
                Ok(())
            }
            (_, true) if self.live.is_some() => self.run_live(statement).await,
            (kind, true) => self.gather(kind, statement, place),
            (Kind::Write, false) => self.write(statement).await,
            (_, false) => self.read(kind, statement).await,
        }
    }

    /// Whether a transaction was begun.
    pub(crate) fn in_transaction(&self) -> bool {
        self.transaction.is_some() || self.live.is_some()
    }

    /// Prints a remark in the modes that people read.
    pub(crate) fn remark(&mut self, text: &str) -> Result<()> {
        let is_read_by_people = self.is_prompt || matches!(self.style.mode, Mode::Table | Mode::Line);
        if is_read_by_people { self.output.say(text) } else { Ok(()) }
    }

    fn gather(&mut self, kind: Kind, statement: &str, place: Option<&Place>) -> Result<()> {
        if matches!(kind, Kind::Read | Kind::Explain) {
            let text =
                "a transaction only collects writes, it can't read; COMMIT or ROLLBACK first, or read before BEGIN";
            return Err(Error::new(text));
        }
        match &mut self.transaction {
            Some(transaction) => transaction.add(statement, self.parameters.of(statement), place.cloned()),
            None => Ok(()),
        }
    }

    async fn commit(&mut self) -> Result<()> {
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        if transaction.len() == 0 {
            return self.remark("COMMIT: the transaction was empty\n");
        }
        match self.send(transaction.statements()).await {
            Ok(done) => self.print_written(done),
            Err(SqlError::Failed(failure)) => Err(not_committed(&transaction, failure)),
            Err(error) => Err(error.into()),
        }
    }

    async fn write(&mut self, statement: &str) -> Result<()> {
        let done = self.send(vec![(statement.to_owned(), self.parameters.of(statement))]).await?;
        self.print_written(done)
    }

    async fn send(&mut self, statements: Vec<(String, Params)>) -> Result<BatchResult, SqlError> {
        self.is_writing = true;
        let done = self.client.write(statements).await;
        self.is_writing = false;
        done
    }

    fn print_written(&mut self, done: BatchResult) -> Result<()> {
        let mut has_rows = false;
        for result in done.results.iter().filter(|result| !result.columns.is_empty()) {
            self.print_rows(result)?;
            has_rows = true;
        }
        if has_rows { Ok(()) } else { self.print_committed(&done) }
    }

    /// Prints how much was written, without rows.
    pub(crate) fn print_committed(&mut self, done: &BatchResult) -> Result<()> {
        let written = Written {
            statements: done.results.len(),
            changes: done.results.iter().map(|result| result.changes).sum(),
            last_insert_rowid: done.results.last().map_or(0, |result| result.last_insert_rowid),
            position: done.position.to_string(),
        };
        let text = format::written(&written, &self.style.mode);
        let is_wanted = self.changes && text.is_empty();
        self.output.write(&if is_wanted { format::written(&written, &Mode::Table) } else { text })
    }

    /// Prints the rows of a result, or how many rows its statement changes.
    pub(crate) fn print_result(&mut self, result: &StatementResult) -> Result<()> {
        if result.columns.is_empty() {
            let changes = result.changes;
            return self.remark(&format!("OK, {changes} {} changed; COMMIT writes it\n", plural(changes, "row")));
        }
        self.print_rows(result)
    }

    fn print_rows(&mut self, result: &StatementResult) -> Result<()> {
        let (mut printer, head) = Printer::new(&self.style, self.output.width(), &result.columns);
        let body = printer.rows(result.rows.iter().map(Vec::as_slice));
        self.output.write(&format!("{head}{body}{}", printer.end()))
    }

    /// Runs a statement as a query, or as a write if the node says that it is no query. A result that is too large to
    /// be fetched whole is streamed from a snapshot.
    async fn read(&mut self, kind: Kind, statement: &str) -> Result<()> {
        if self.plans && kind == Kind::Read {
            self.explain(statement).await?;
        }
        match self.client.query(self.level, statement, self.parameters.of(statement)).await {
            Ok(rows) => {
                let mut shown = self.head(kind, rows.columns())?;
                self.rows(&mut shown, &rows)?;
                self.tail(shown)
            }
            Err(SqlError::TooLarge(_)) => self.stream(kind, statement).await,
            Err(SqlError::Failed(failure)) if failure.kind == FailureKind::Refused => {
                self.not_read(kind, statement, failure).await
            }
            Err(error) => Err(self.client.of_query(error)),
        }
    }

    async fn stream(&mut self, kind: Kind, statement: &str) -> Result<()> {
        let mut snapshot = self.client.snapshot(self.level).await?;
        let streamed = snapshot.stream(statement.to_owned(), self.parameters.of(statement)).await;
        let mut rows = streamed.map_err(|error| self.client.of_query(error))?;
        let mut shown = self.head(kind, rows.columns())?;
        while let Some(piece) = rows.next().await.map_err(|error| self.client.of_query(error))? {
            self.rows(&mut shown, &piece)?;
            if self.output.drain().await?.is_break() {
                return Ok(());
            }
            // Yields, so that Ctrl-C works even if the next rows are always there.
            tokio::task::yield_now().await;
        }
        self.tail(shown)
    }

    /// Prints the beginning of a result.
    fn head(&mut self, kind: Kind, columns: &[String]) -> Result<Shown> {
        let plan = Plan::of_columns(columns).filter(|_| self.style.mode == Mode::Table && kind == Kind::Explain);
        if let Some(plan) = plan {
            return Ok(Shown::Plan(plan));
        }
        let (printer, head) = Printer::new(&self.style, self.output.width(), columns);
        self.output.write(&head)?;
        Ok(Shown::Rows(printer))
    }

    fn rows(&mut self, shown: &mut Shown, rows: &Rows) -> Result<()> {
        match shown {
            Shown::Plan(plan) => rows.iter().for_each(|row| plan.add(row.values())),
            Shown::Rows(printer) => self.output.write(&printer.rows(rows.iter().map(|row| row.values())))?,
        }
        Ok(())
    }

    fn tail(&mut self, shown: Shown) -> Result<()> {
        self.output.write(&match shown {
            Shown::Plan(plan) => plan.text(),
            Shown::Rows(printer) => printer.end(),
        })
    }

    /// Runs a statement as a write that was refused as a query. If it is not allowed at all, it is refused again.
    async fn not_read(&mut self, kind: Kind, statement: &str, failure: Failure) -> Result<()> {
        if kind == Kind::Explain { Err(not_explained(failure)) } else { self.write(statement).await }
    }

    /// Prints the plan of a query.
    pub(super) async fn explain(&mut self, query: &str) -> Result<()> {
        let rows = match self
            .client
            .query(self.level, &format!("EXPLAIN QUERY PLAN {query}"), self.parameters.of(query))
            .await
        {
            Err(SqlError::Failed(failure)) if failure.kind == FailureKind::Refused => {
                return Err(not_explained(failure));
            }
            rows => rows?,
        };
        let mut plan = Plan::default();
        rows.iter().map(|row| row.values()).for_each(|row: &[Value]| plan.add(row));
        self.output.write(&plan.text())
    }
}

fn not_explained(failure: Failure) -> Error {
    Error::from(SqlError::Failed(failure)).within("EXPLAIN is a query; explain the SELECT that finds the rows instead")
}

/// The error of a COMMIT, with the statement that failed and its place.
fn not_committed(transaction: &Transaction, failure: Failure) -> Error {
    let described = failure.command.and_then(|number| transaction.describe(usize::try_from(number).ok()?));
    let error = Error::from(SqlError::Failed(failure));
    let error = match described {
        Some((place, statement)) => placed(error.within(visible::one_line(&statement)), place),
        None => error,
    };
    error.within("COMMIT: nothing was written")
}
