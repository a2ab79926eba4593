//! What a client asks for.

use crate::limits::{
    BUDGET_DEFAULT, BUDGET_MAX, COMMANDS_MAX, EXTENSION_NAME_BYTES_MAX, EXTENSIONS_MAX, FORMAT_LEVEL, PARAMETERS_MAX,
    PREMISES_MAX, SQL_BYTES_MAX, VALUE_BYTES_MAX,
};
use crate::{Bulk, Failure, FailureKind, Param, Stamp, Value};

/// What to do where a transaction is too large.
const SPLIT: &str = "split it, or run one statement for many rows of parameters";

/// What to do where a value is too large.
pub(crate) const IN_PIECES: &str = "store it in pieces";

/// Why VACUUM is refused together with others.
pub const VACUUM_ALONE: &str = "VACUUM can't be combined with other statements; run it by itself";

/// A client's identity for exactly-once retries: the index of the entry that opened the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Who asks, so that a retry is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The session.
    pub session: SessionId,
    /// The number of this request in its session, from 1; a retry carries the same.
    pub sequence: u64,
    /// The client has the outcomes of all sequences up to this one, and will never ask for them again.
    pub floor: u64,
}

/// One statement with its parameters: values where it is a query, [`Param`]s where it is a step of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement<P = Value> {
    /// One statement of SQL.
    pub sql: String,
    /// Its parameters: without names, `params[0]` is number 1.
    pub params: Vec<P>,
    /// Either empty, or the name of each parameter as the statement spells it: `:a`, `@a` or `$a`.
    pub names: Vec<String>,
}

/// A query that a proposal rests on: nothing of it is done unless the query gives the same rows again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Premise {
    /// The query.
    pub query: Statement,
    /// The clock and the randomness that it saw.
    pub stamp: Stamp,
    /// The hash of its rows, as `quorate_sql::rows_hash` takes it.
    pub rows: u128,
}

/// What says that the commands of a proposal were run before it was proposed, each for itself, as those of an
/// interactive transaction are: nothing of it is done unless they find the state that they found then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rehearsal {
    /// The entry behind which they were run: the proposal must be the entry right behind it.
    pub index: u64,
    /// The clock and the randomness that each of them saw.
    pub stamps: Vec<Stamp>,
}

/// What an entry asks of a store. The commands of an entry take effect together or not at all.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Runs a statement that writes.
    Statement(Statement<Param>),
    /// Opens a session; its id is the index of the entry.
    OpenSession,
    /// Ends a session: later requests of it fail with [`FailureKind::SessionExpired`].
    CloseSession(SessionId),
    /// Rewrites the database without free pages; alone in its entry.
    Vacuum,
    /// Runs a statement that writes once for each of many rows of parameters.
    Bulk(Bulk),
    /// Changes nothing: every node takes the logical hash of its database as it stands right behind this entry; alone
    /// in its entry.
    Verify,
    /// From here on commands may use the functions and collations with these names, which every voter has announced;
    /// alone in its entry.
    Extend(Vec<String>),
}

impl Command {
    /// Whether it must be the only one of its entry.
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Vacuum | Self::Verify | Self::Extend(_))
    }
}

/// A request to change the state, as a client encodes it once.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The format level that a reader must understand.
    pub level: u32,
    /// The session that asks; `None` for what may be applied twice.
    pub origin: Option<Origin>,
    /// Steps of SQLite's virtual machine that all commands together may take.
    pub budget: u64,
    /// What is asked.
    pub commands: Vec<Command>,
    /// What it rests on: checked before the commands, within the same budget. A query that gives other rows, or fails,
    /// is a [`FailureKind::Conflict`].
    pub premises: Vec<Premise>,
    /// What it rests on where its commands were run before. Another entry in between is a [`FailureKind::Aborted`].
    pub rehearsal: Option<Rehearsal>,
}

impl Proposal {
    /// A proposal of the present level with the default budget, which rests on nothing.
    pub fn new(origin: Option<Origin>, commands: Vec<Command>) -> Self {
        Self { level: FORMAT_LEVEL, origin, budget: BUDGET_DEFAULT, commands, premises: Vec::new(), rehearsal: None }
    }

    /// Checks every limit of [`limits`](crate::limits) but the encoded size, which encoding checks.
    pub fn check_limits(&self) -> Result<(), Failure> {
        limit("statements of a transaction", self.commands.len(), COMMANDS_MAX, SPLIT)?;
        limit("reads of a transaction", self.premises.len(), PREMISES_MAX, "read more with each")?;
        if self.budget > BUDGET_MAX {
            return Err(Failure::new(
                FailureKind::TooBig,
                format!("a budget is at most {BUDGET_MAX} steps; ask for less"),
            ));
        }
        let parts = self.commands.len().saturating_add(self.premises.len());
        if parts > 1 && self.commands.iter().any(Command::is_alone) {
            return Err(Failure::new(FailureKind::Refused, VACUUM_ALONE));
        }
        self.premises.iter().try_for_each(|premise| premise.query.check_limits())?;
        self.check_rehearsal()?;
        for (number, command) in self.commands.iter().enumerate() {
            let checked = match command {
                Command::Statement(statement) => {
                    statement.check_limits().and_then(|()| statement.check_references(number))
                }
                Command::Bulk(bulk) => bulk.check_limits(),
                Command::Extend(names) => check_names(names),
                Command::OpenSession | Command::CloseSession(_) | Command::Vacuum | Command::Verify => Ok(()),
            };
            checked.map_err(|failure| failure.at(number))?;
        }
        Ok(())
    }

    fn check_rehearsal(&self) -> Result<(), Failure> {
        let Some(rehearsal) = &self.rehearsal else { return Ok(()) };
        let are_statements = self.commands.iter().all(|command| matches!(command, Command::Statement(_)));
        if are_statements && self.premises.is_empty() && rehearsal.stamps.len() == self.commands.len() {
            return Ok(());
        }
        let text = "what was run before it is proposed holds statements alone, each with its clock";
        Err(Failure::new(FailureKind::Refused, text))
    }
}

impl<P> Default for Statement<P> {
    fn default() -> Self {
        Self { sql: String::new(), params: Vec::new(), names: Vec::new() }
    }
}

impl From<Statement> for Statement<Param> {
    fn from(statement: Statement) -> Self {
        let Statement { sql, params, names } = statement;
        Self { sql, params: params.into_iter().map(Param::Value).collect(), names }
    }
}

impl Statement<Param> {
    /// The same as a query, which has no earlier step to refer to.
    pub fn into_query(self) -> Result<Statement, Failure> {
        check_text(&self.sql)?;
        let params = self.params.into_iter().map(Param::into_value).collect::<Result<_, _>>()?;
        Ok(Statement { sql: self.sql, params, names: self.names })
    }

    /// Checks the limits on the text, the parameters and their names.
    pub fn check_limits(&self) -> Result<(), Failure> {
        self.check_shape()?;
        self.params.iter().try_for_each(|param| match param {
            Param::Value(value) => check_value(value),
            Param::Returned(returned) => {
                limit("bytes of a name", returned.column.size(), SQL_BYTES_MAX, "say the column's number")
            }
        })
    }

    /// Fails if a parameter refers to a step that does not come before this one.
    fn check_references(&self, step: usize) -> Result<(), Failure> {
        self.params.iter().try_for_each(|param| match param {
            Param::Value(_) => Ok(()),
            Param::Returned(returned) => returned.check_before(step),
        })
    }
}

impl Statement {
    /// Checks the limits on the text, the parameters and their names.
    pub fn check_limits(&self) -> Result<(), Failure> {
        self.check_shape()?;
        self.params.iter().try_for_each(check_value)
    }
}

impl<P> Statement<P> {
    fn check_shape(&self) -> Result<(), Failure> {
        check_text(&self.sql)?;
        limit("parameters of a statement", self.params.len(), PARAMETERS_MAX, "split it, or pass them as one JSON")?;
        if !self.names.is_empty() && self.names.len() != self.params.len() {
            let text =
                format!("{} parameters but {} names: give each a name, or none", self.params.len(), self.names.len());
            return Err(Failure::new(FailureKind::Sql, text));
        }
        Ok(())
    }
}

fn check_names(names: &[String]) -> Result<(), Failure> {
    limit("functions and collations", names.len(), EXTENSIONS_MAX, "register fewer")?;
    names.iter().try_for_each(|name| limit("bytes of a name", name.len(), EXTENSION_NAME_BYTES_MAX, "shorten it"))
}

fn check_value(value: &Value) -> Result<(), Failure> {
    limit("bytes of a value", value.size(), VALUE_BYTES_MAX, IN_PIECES)
}

pub(crate) fn check_text(sql: &str) -> Result<(), Failure> {
    limit("bytes of a statement", sql.len(), SQL_BYTES_MAX, "pass its values as parameters")
}

pub(crate) fn limit(what: &str, found: usize, max: usize, todo: &str) -> Result<(), Failure> {
    if found <= max {
        return Ok(());
    }
    Err(Failure::new(FailureKind::TooBig, format!("{found} {what}: the limit is {max}; {todo}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;

    /// What is said of a proposal of these commands, changed so.
    fn told(commands: Vec<Command>, change: impl FnOnce(&mut Proposal)) -> String {
        let mut proposal = Proposal::new(None, commands);
        change(&mut proposal);
        proposal.check_limits().map_or_else(|failure| failure.to_string(), |()| "nothing".to_owned())
    }

    fn statement(params: Vec<Param>, names: &[&str]) -> Vec<Command> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        vec![Command::Statement(Statement { sql: "DELETE FROM t".to_owned(), params, names })]
    }

    #[test]
    fn each_limit_says_what_to_do() {
        let budget = "a budget is at most 50000000000 steps; ask for less";
        assert_eq!(told(Vec::new(), |proposal| proposal.budget = BUDGET_MAX + 1), budget);
        let reads = "16385 reads of a transaction: the limit is 16384; read more with each";
        let premise = Premise { query: Statement::default(), stamp: Stamp::default(), rows: 0 };
        assert_eq!(told(Vec::new(), |proposal| proposal.premises = vec![premise; PREMISES_MAX + 1]), reads);
        let names = "2 parameters but 1 names: give each a name, or none";
        assert_eq!(told(statement(vec![1.into(), 2.into()], &[":a"]), |_| ()), names);
        let name = "1048577 bytes of a name: the limit is 1048576; say the column's number";
        assert_eq!(told(statement(vec![Step(0).column("x".repeat(SQL_BYTES_MAX + 1))], &[]), |_| ()), name);
        let alone = "VACUUM can't be combined with other statements; run it by itself";
        assert_eq!(told(vec![Command::Vacuum, Command::Vacuum], |_| ()), alone);
        let rehearsed = "what was run before it is proposed holds statements alone, each with its clock";
        let rehearsal = Some(Rehearsal { index: 0, stamps: vec![Stamp::default()] });
        assert_eq!(told(Vec::new(), |proposal| proposal.rehearsal = rehearsal), rehearsed);
    }
}
