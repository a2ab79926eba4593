//! A stream: what a client takes for a connection to SQLite.
//!
//! Invariants:
//! - A statement of a transaction that was lost fails; it never runs outside of it. The client must end the
//!   transaction first.
//! - Dropping a stream rolls back its transaction.

use quorate::{Error, Rows, Snapshot, Transaction, Value};
use quorate_env::Cause;

use super::decode::{Stmt, Text};
use super::texts::Texts;
use crate::error::Problem;
use crate::text::{Begin, Kind, Savepoint, bind, split};
use crate::work::{Bound, Ran, Work};

const NOT_BEGUN: &str = "no transaction is active; BEGIN starts one";

/// The transaction of a stream.
#[derive(Debug, Default)]
enum State {
    /// No transaction is open: each statement is a transaction of its own.
    #[default]
    Autocommit,
    /// It begins with its first statement.
    Begun,
    Open(Box<Transaction>),
    /// It only reads; the state that it reads is chosen by its first statement.
    ReadOnly(Option<Box<Snapshot>>),
    /// It was lost, for this reason.
    Lost(Cause),
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    state: State,
    /// The stored texts that its statements may refer to.
    pub(super) texts: Texts,
    /// Whether the client has turned off the enforcement of foreign keys, which has no effect.
    foreign_keys_are_off: bool,
}

impl Stream {
    /// Returns whether each statement is a transaction of its own.
    pub(super) fn is_autocommit(&self) -> bool {
        matches!(self.state, State::Autocommit)
    }

    /// Returns whether it holds a transaction that other writes may wait for.
    pub(super) fn is_in_transaction(&self) -> bool {
        matches!(self.state, State::Open(_) | State::ReadOnly(Some(_)))
    }

    /// Returns whether the client has turned off foreign keys, so that it must not change or remove rows.
    pub(super) fn is_without_foreign_keys(&self) -> bool {
        self.foreign_keys_are_off
    }

    /// Returns the same stream after its transaction has taken too long.
    pub(super) fn without_transaction(self, why: Cause) -> Self {
        let state = if self.is_in_transaction() { State::Lost(why) } else { self.state };
        Self { state, ..self }
    }

    /// Rolls back, and forgets the stored texts.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    /// Returns a text of SQL.
    pub(super) fn text(&self, text: Text) -> Result<String, Problem> {
        match (text.sql, text.sql_id) {
            (Some(sql), _) => Ok(sql),
            (None, id) => {
                let stored = id.and_then(|id| self.texts.get(id));
                let missing =
                    || Problem::StoredText(format!("no SQL is stored under the id {}", id.unwrap_or_default()));
                stored.map(str::to_owned).ok_or_else(missing)
            }
        }
    }

    /// Returns the text of a statement.
    pub(super) fn text_of<'a>(&'a self, stmt: &'a Stmt) -> Option<&'a str> {
        let (sql, id) = stmt.number();
        sql.or_else(|| self.texts.get(id?))
    }

    /// Returns a statement with the values of its parameters.
    pub(super) fn bound(&self, mut stmt: Stmt) -> Result<Bound, Problem> {
        let sql = self.text(stmt.text())?;
        let args = stmt.args.unwrap_or_default().into_iter().map(|wire| wire.0).collect();
        let named = stmt.named_args.unwrap_or_default().into_iter().map(|arg| (arg.name, arg.value.0)).collect();
        let params = bind(&sql, args, named)?;
        Ok((sql, params))
    }

    /// Runs a statement.
    pub(super) async fn execute(&mut self, work: &mut Work, stmt: Stmt) -> Result<Ran, Problem> {
        let bound = self.bound(stmt)?;
        self.run(work, bound).await
    }

    /// Runs the statements of a script until one fails.
    pub(super) async fn sequence(&mut self, work: &mut Work, script: &str) -> Result<(), Problem> {
        for statement in split(script) {
            self.run(work, (statement.to_owned(), bind(statement, Vec::new(), Vec::new())?)).await?;
        }
        Ok(())
    }

    /// Runs a statement with the values of its parameters.
    pub(super) async fn run(&mut self, work: &mut Work, bound: Bound) -> Result<Ran, Problem> {
        let kind = Kind::of(&bound.0);
        match kind {
            Kind::Begin(begin) => return self.begin(work, begin).await,
            Kind::Commit => return self.commit(work).await,
            Kind::Rollback => return self.rollback(),
            Kind::Savepoint(does) => return self.savepoint(work, does, &bound.0).await,
            Kind::ForeignKeys(value) => return Ok(self.foreign_keys(value)),
            Kind::Write { removes: true } if self.foreign_keys_are_off => return Err(Problem::ForeignKeysOff),
            _ => {}
        }
        if matches!(self.state, State::Begun) {
            self.open(work).await?;
        }
        let result = match &mut self.state {
            State::Autocommit => return work.run(bound).await,
            State::Lost(why) => return Err(Problem::TransactionLost(why.clone())),
            State::ReadOnly(_) if matches!(kind, Kind::Write { .. }) => return Err(Problem::ReadOnly),
            State::ReadOnly(snapshot) => read(snapshot, work, bound).await,
            State::Open(open) => work.step(open, bound).await,
            State::Begun => return Err(Problem::Transaction(NOT_BEGUN)),
        };
        result.inspect_err(|problem| self.note(problem))
    }

    /// Notes that a problem has ended the transaction, if it has.
    fn note(&mut self, problem: &Problem) {
        let Problem::Sql(error) = problem else { return };
        let goes_on = match &self.state {
            State::ReadOnly(_) => matches!(error, Error::Failed(_) | Error::TimedOut(_) | Error::TooLarge(_)),
            // Of these two, the second means that it did not run.
            _ => matches!(error, Error::Failed(_) | Error::TooLarge(_)),
        };
        if !goes_on {
            self.state = State::Lost(Cause::from(error.clone()));
        }
    }

    async fn begin(&mut self, work: &Work, begin: Begin) -> Result<Ran, Problem> {
        if !self.is_autocommit() {
            return Err(Problem::Transaction("a transaction is active already; COMMIT or ROLLBACK it first"));
        }
        match begin {
            Begin::Deferred => self.state = State::Begun,
            Begin::ReadOnly => self.state = State::ReadOnly(None),
            Begin::Immediate => self.open(work).await?,
        }
        Ok(Ran::default())
    }

    /// Begins a transaction on the leader.
    async fn open(&mut self, work: &Work) -> Result<(), Problem> {
        self.state = State::Open(Box::new(work.begin().await?));
        Ok(())
    }

    async fn commit(&mut self, work: &mut Work) -> Result<Ran, Problem> {
        work.without_key()?;
        match std::mem::take(&mut self.state) {
            State::Autocommit => Err(Problem::Transaction(NOT_BEGUN)),
            State::Begun | State::ReadOnly(_) => Ok(Ran::default()),
            State::Lost(why) => Err(Problem::TransactionLost(why)),
            State::Open(open) => {
                work.commit(*open).await?;
                Ok(Ran::default())
            }
        }
    }

    fn rollback(&mut self) -> Result<Ran, Problem> {
        match std::mem::take(&mut self.state) {
            State::Autocommit => Err(Problem::Transaction(NOT_BEGUN)),
            _ => Ok(Ran::default()),
        }
    }

    async fn savepoint(&mut self, work: &mut Work, does: Savepoint, statement: &str) -> Result<Ran, Problem> {
        work.without_key()?;
        let name = Savepoint::name(statement).ok_or(Problem::Transaction("the savepoint has no name"))?;
        if matches!(self.state, State::Begun) {
            self.open(work).await?;
        }
        let done = match (&mut self.state, does) {
            (State::Autocommit | State::Begun, _) => return Err(Problem::Transaction(NOT_BEGUN)),
            (State::Lost(why), _) => return Err(Problem::TransactionLost(why.clone())),
            // There is nothing to undo.
            (State::ReadOnly(_), _) => Ok(()),
            (State::Open(open), Savepoint::Set) => open.savepoint(name),
            (State::Open(open), Savepoint::RollBackTo) => open.rollback_to(&name).await,
            (State::Open(open), Savepoint::Release) => open.release(&name),
        };
        done.map(|()| Ran::default()).map_err(Problem::from).inspect_err(|problem| self.note(problem))
    }

    /// Foreign keys are always enforced. Turning them off is remembered, so that what would only be right without them
    /// is refused.
    fn foreign_keys(&mut self, value: Option<bool>) -> Ran {
        match value {
            Some(is_on) => {
                self.foreign_keys_are_off = !is_on;
                Ran::default()
            }
            None => Rows::new(["foreign_keys".to_owned()].into(), vec![Value::Integer(1)]).into(),
        }
    }
}

async fn read(snapshot: &mut Option<Box<Snapshot>>, work: &mut Work, bound: Bound) -> Result<Ran, Problem> {
    let snapshot = match snapshot {
        Some(snapshot) => snapshot,
        None => snapshot.insert(Box::new(work.sql().snapshot().await?)),
    };
    work.look(snapshot, bound).await
}
