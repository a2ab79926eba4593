//! The cluster's side: does the units with the handles that applications use, which retry through the kills.

use std::time::Duration;

use quorate::sql::{Param, StatementResult};
use quorate::{Error, Failure, Level as ReadLevel, Optimistic, Params, Position, Rows, Sql};

use super::generate::call_of;
use super::plain::passed;
use super::unit::{Answer, Call, Failed, Level, Rowid, Savepoint, Seen, Table, Unit};
use crate::harness::Result;
use crate::harness::cluster::Cluster as Processes;

/// How long a call is retried: far longer than any election, so that no outcome stays unknown.
const DEADLINE: Duration = Duration::from_secs(180);
/// How many times a unit is attempted.
const ATTEMPTS_MAX: u64 = 100;

pub struct Cluster {
    all: Sql,
    /// One handle for each node.
    nodes: Vec<Sql>,
    /// The position of the last write.
    last: Option<Position>,
    /// How many units were lost with their leader and run again.
    pub again: u64,
}

impl Cluster {
    pub async fn connect(processes: &Processes) -> Result<Self> {
        let all = processes.sql().await?.with_deadline(DEADLINE).with_own_writes();
        let mut nodes = Vec::new();
        for node in processes.nodes()? {
            nodes.push(processes.sql_of(&node).await?.with_deadline(DEADLINE));
        }
        Ok(Self { all, nodes, last: None, again: 0 })
    }

    /// Does a unit. A unit that had no effect is run again.
    pub async fn answer(&mut self, unit: &Unit) -> Result<Answer> {
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(unit).await {
                Ok(answer) => return Ok(answer),
                Err(Error::Failed(failure)) => return Ok(Answer::of(Err(failed(&failure)))),
                Err(error) if error.is_retryable() => self.again += 1,
                // The first answer was lost with a node, and the next node refused the unit. So the first refused it
                // too.
                Err(Error::Unknown(_)) if unit.is_hopeless() => self.again += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Err(format!("it came to nothing {ATTEMPTS_MAX} times").into())
    }

    async fn attempt(&mut self, unit: &Unit) -> std::result::Result<Answer, Error> {
        let steps = match unit {
            Unit::Execute(call) => {
                let done = self.all.execute(call.sql.clone(), params(call)).await?;
                self.last = Some(done.position);
                vec![counted(done.changes, done.last_insert_rowid)]
            }
            Unit::Returning(call) => {
                let done = self.all.execute_returning(call.sql.clone(), params(call)).await?;
                self.last = Some(done.position);
                vec![Seen { rows: Some(table(&done.rows)), ..Seen::default() }]
            }
            Unit::Many(sql, rows) => {
                let rows = rows.iter().map(|row| row.iter().cloned().map(Param::Value).collect::<Vec<Param>>());
                let done = self.all.execute_many(sql.clone(), rows).await?;
                self.last = Some(done.position);
                vec![counted(done.changes, done.last_insert_rowid)]
            }
            Unit::Batch(calls) => {
                let done = self.all.batch(calls.iter().cloned()).await?;
                self.last = Some(done.position);
                done.results.into_iter().map(seen).collect()
            }
            Unit::Closure { reads, writes, passes } => self.closure(reads, writes, *passes).await?,
            Unit::Interactive { calls, commits } => return self.interactive(calls, *commits).await,
            Unit::Query { call, node, level } => vec![self.query(call, *node, *level).await?],
            Unit::Vacuum => {
                self.last = Some(self.all.execute("VACUUM", ()).await?.position);
                vec![Seen::default()]
            }
        };
        Ok(Answer { steps: steps.into_iter().map(Ok).collect(), end: Ok(()) })
    }

    async fn closure(
        &mut self,
        reads: &[Call],
        writes: &[Call],
        passes: bool,
    ) -> std::result::Result<Vec<Seen>, Error> {
        let body = |tx: Optimistic| async move {
            let mut read = Vec::new();
            for call in reads {
                let rows = tx.query(call.sql.clone(), params(call)).await?;
                read.push(Seen { rows: Some(table(&rows)), ..Seen::default() });
            }
            let writes = if passes { passed(writes, &read) } else { writes.to_vec() };
            for call in &writes {
                tx.execute(call.sql.clone(), params(call))?;
            }
            Ok::<_, Error>(read)
        };
        let done = self.all.transact(body).await?;
        self.last = Some(done.position);
        Ok(done.value.into_iter().chain(done.results.into_iter().map(seen)).collect())
    }

    async fn interactive(&mut self, calls: &[Call], commits: bool) -> std::result::Result<Answer, Error> {
        let mut tx = self.all.begin().await?;
        let (mut steps, mut recorded) = (Vec::new(), Vec::new());
        for call in calls {
            let result = match Savepoint::of(call) {
                Some(Savepoint::Set(name)) => tx.savepoint(name).map(|()| None),
                Some(Savepoint::RollBackTo(name)) => tx.rollback_to(name).await.map(|()| None),
                Some(Savepoint::Release(name)) => tx.release(name).map(|()| None),
                None => tx.execute(call.sql.clone(), params(call)).await.map(Some),
            };
            match result {
                Ok(None) => steps.push(Ok(Seen::default())),
                Ok(Some(result)) => {
                    steps.push(Ok(seen(result.clone())));
                    recorded.push(result);
                }
                Err(Error::Failed(failure)) => steps.push(Err(failed(&failure))),
                Err(error) => return Err(error),
            }
        }
        if !commits {
            tx.rollback();
            return Ok(Answer { steps, end: Ok(()) });
        }
        let end = match tx.commit().await {
            Ok(done) => {
                self.last = Some(done.position);
                same_results(&recorded, &done.results)
            }
            Err(Error::Failed(failure)) => Err(failed(&failure)),
            Err(error) => return Err(error),
        };
        Ok(Answer { steps, end })
    }

    async fn query(&self, call: &Call, node: usize, level: Level) -> std::result::Result<Seen, Error> {
        let sql = self.nodes.get(node).unwrap_or(&self.all);
        let at_least = self.last.map_or(ReadLevel::Linearizable, ReadLevel::AtLeast);
        let rows = match level {
            Level::AtLeast => sql.at(at_least).query(call.sql.clone(), params(call)).await?,
            Level::Linearizable => sql.at(ReadLevel::Linearizable).query(call.sql.clone(), params(call)).await?,
            Level::Bounded => sql.at(ReadLevel::Bounded(Duration::ZERO)).query(call.sql.clone(), params(call)).await?,
            // The position of the handle that wrote, on any node.
            Level::OwnWrites => self.all.at(ReadLevel::Local).query(call.sql.clone(), params(call)).await?,
            Level::Snapshot => sql.at(at_least).snapshot().await?.query(call.sql.clone(), params(call)).await?,
        };
        Ok(Seen { rows: Some(table(&rows)), ..Seen::default() })
    }

    /// Returns the result of a query on a node, in the state after the last write.
    pub async fn of_node(&mut self, node: usize, sql: &str) -> Result<Answer> {
        self.answer(&Unit::Query { call: call_of(sql.to_owned()), node, level: Level::AtLeast }).await
    }
}

/// Fails unless the commit returns the same result as before for each statement that may have written.
fn same_results(before: &[StatementResult], after: &[StatementResult]) -> std::result::Result<(), Failed> {
    let mut before = before.iter();
    // The commit omits statements that only read, and those that were undone.
    if after.iter().all(|result| before.any(|known| same(known, result))) {
        return Ok(());
    }
    let message = format!("the commit returns different results: {after:?}");
    Err(Failed { code: -1, step: None, row: None, message })
}

fn same(one: &StatementResult, other: &StatementResult) -> bool {
    format!("{one:?}") == format!("{other:?}")
}

fn params(call: &Call) -> Params {
    if call.names.is_empty() {
        Params::positional(call.params.clone())
    } else {
        Params::named(call.names.iter().zip(call.params.iter().cloned()))
    }
}

fn counted(changes: u64, last_rowid: i64) -> Seen {
    Seen { changes: Some(changes), last_rowid: Some(Rowid::Is(last_rowid)), rows: None }
}

fn seen(result: StatementResult) -> Seen {
    let StatementResult { changes, last_insert_rowid, columns, rows } = result;
    Seen { rows: Some(Table { columns, rows }), ..counted(changes, last_insert_rowid) }
}

fn table(rows: &Rows) -> Table {
    let columns = rows.columns().to_vec();
    Table { columns, rows: rows.iter().map(|row| row.values().to_vec()).collect() }
}

fn failed(failure: &Failure) -> Failed {
    let number = |number: Option<u32>| number.and_then(|number| usize::try_from(number).ok());
    let Failure { sqlite_code: code, command, row, message, .. } = failure;
    Failed { code: *code, step: number(*command), row: number(*row), message: message.clone() }
}
