//! Proposals: the requests of clients to change the state.

use crate::keys::KEY_CHECKS_LEVEL;
use crate::limits::{BASE_LEVEL, BUDGET_DEFAULT, BUDGET_MAX, COMMANDS_MAX, READ_CHECKS_MAX, limit};
use crate::{Command, Failure, FailureKind, Origin, REQUEST_KEYS_LEVEL, Read, RequestKey, Stamp};

/// The advice for a transaction that is too large.
const SPLIT: &str = "split it, or run one statement for many rows of parameters";

/// The error for a command that must be the only one of its entry, but is combined with others. It names VACUUM, the
/// only one of them that a caller of the library writes.
pub const ALONE: &str = "VACUUM can't be combined with other statements; run it by itself";

/// A read on which a proposal depends: the proposal changes nothing unless the read gives the same answer again.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadCheck {
    /// The read.
    pub read: Read,
    /// The clock and the randomness that a query saw. Left out for a command on keys, which sees those of the entry.
    pub stamp: Stamp,
    /// The hash of its answer, as `quorate_sql::rows_hash` defines it.
    pub answer: u128,
}

impl ReadCheck {
    /// Returns the clock and the randomness under which it is repeated in an entry. What has expired by the time of the
    /// entry must not count, also if it had not when it was read.
    pub fn stamp_in(&self, entry: Stamp) -> Stamp {
        match self.read {
            Read::Sql(_) => self.stamp,
            Read::Keys(_) | Read::Locks(_) | Read::Events(_) => entry,
        }
    }

    /// Returns the format level that it needs.
    pub fn level(&self) -> u32 {
        match &self.read {
            Read::Sql(_) => BASE_LEVEL,
            Read::Keys(command) => command.level().max(KEY_CHECKS_LEVEL),
            Read::Locks(_) | Read::Events(_) => self.read.level(),
        }
    }
}

/// Records that each command of a proposal ran before it was proposed, as those of an interactive transaction do: the
/// proposal changes nothing unless its commands find the same state again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRunRecord {
    /// The last entry that was applied when they ran: the proposal must be the entry directly after it.
    pub index: u64,
    /// The clock and the randomness that each command saw.
    pub stamps: Vec<Stamp>,
}

/// What happens to a proposal when one of its commands fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The proposal fails and changes nothing.
    #[default]
    Atomic,
    /// Each command succeeds or fails by itself, in order: a failed command leaves a [`CommandResult::Failed`] and
    /// changes nothing, and the following commands still run. After a command that ends the transaction
    /// (`ON CONFLICT ROLLBACK`, an exceeded budget) they fail with [`FailureKind::NotRun`] instead.
    ///
    /// [`CommandResult::Failed`]: crate::CommandResult::Failed
    Pipeline,
}

/// A request to change the state, as a client encodes it once.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The format level that a reader must understand.
    pub level: u32,
    /// The client's session and sequence; `None` for a proposal that may be applied twice.
    pub origin: Option<Origin>,
    /// The steps of SQLite's virtual machine that all commands together may take.
    pub budget: u64,
    /// What happens when a command fails.
    pub mode: Mode,
    /// The commands, in the order in which they run.
    pub commands: Vec<Command>,
    /// Reads that must give the same answers again. They run before the commands, within the same budget. If a read
    /// gives another answer or fails, the proposal fails with [`FailureKind::Conflict`]; if the read is refused or
    /// exceeds the budget, with that failure.
    pub read_checks: Vec<ReadCheck>,
    /// Present if the commands ran before. If another entry was applied in between, the proposal fails with
    /// [`FailureKind::Aborted`].
    pub dry_run: Option<DryRunRecord>,
    /// The key by which a request is recognised that is sent again without a session, or in another one. Only for
    /// commands of stores, without read checks and dry run.
    pub key: Option<RequestKey>,
}

impl Proposal {
    /// Creates an atomic proposal with the default budget, without read checks. Its level is the highest that one of
    /// the commands needs.
    pub fn new(origin: Option<Origin>, commands: Vec<Command>) -> Self {
        Self {
            level: commands.iter().map(Command::level).fold(BASE_LEVEL, u32::max),
            origin,
            budget: BUDGET_DEFAULT,
            mode: Mode::Atomic,
            commands,
            read_checks: Vec::new(),
            dry_run: None,
            key: None,
        }
    }

    /// Returns the same proposal with a key, which raises its level.
    #[must_use]
    pub fn with_key(self, key: RequestKey) -> Self {
        Self { level: self.level.max(REQUEST_KEYS_LEVEL), key: Some(key), ..self }
    }

    /// Returns the same proposal with read checks, which may raise its level.
    #[must_use]
    pub fn with_read_checks(self, read_checks: Vec<ReadCheck>) -> Self {
        let level = read_checks.iter().map(ReadCheck::level).fold(self.level, u32::max);
        Self { level, read_checks, ..self }
    }

    /// Returns the format level that the parts of the proposal need.
    pub fn level_needed(&self) -> u32 {
        let of_key = self.key.as_ref().map_or(BASE_LEVEL, |_| REQUEST_KEYS_LEVEL);
        let of_checks = self.read_checks.iter().map(ReadCheck::level).fold(of_key, u32::max);
        self.commands.iter().map(Command::level).fold(of_checks, u32::max)
    }

    /// Checks every limit of [`limits`](crate::limits) except the encoded size, which encoding checks.
    pub fn check_limits(&self) -> Result<(), Failure> {
        let needed = self.level_needed();
        if self.level != needed {
            let text = format!("the proposal names format level {}, and its commands need {needed}", self.level);
            return Err(Failure::new(FailureKind::Refused, text));
        }
        limit("statements of a transaction", self.commands.len(), COMMANDS_MAX, SPLIT)?;
        limit("reads of a transaction", self.read_checks.len(), READ_CHECKS_MAX, "read more with each")?;
        if self.budget > BUDGET_MAX {
            return Err(Failure::new(
                FailureKind::TooBig,
                format!("a budget is at most {BUDGET_MAX} steps; ask for less"),
            ));
        }
        let parts = self.commands.len().saturating_add(self.read_checks.len());
        if parts > 1 && self.commands.iter().any(Command::is_alone) {
            return Err(Failure::new(FailureKind::Refused, ALONE));
        }
        self.read_checks.iter().try_for_each(|check| check.read.check_limits())?;
        self.check_dry_run()?;
        self.check_key()?;
        for (number, command) in self.commands.iter().enumerate() {
            command.check_limits(number).map_err(|failure| failure.at(number))?;
        }
        Ok(())
    }

    fn check_dry_run(&self) -> Result<(), Failure> {
        let Some(dry_run) = &self.dry_run else { return Ok(()) };
        let is_sound = self.mode == Mode::Atomic
            && self.read_checks.is_empty()
            && self.commands.iter().all(Command::may_run_dry)
            && dry_run.stamps.len() == self.commands.len();
        if is_sound {
            return Ok(());
        }
        let text = "a dry-run proposal is atomic and may hold only statements, one stamp each, and no read checks";
        Err(Failure::new(FailureKind::Refused, text))
    }

    fn check_key(&self) -> Result<(), Failure> {
        let is_store = |command: &Command| !matches!(command, Command::Control(_));
        let is_sound = self.read_checks.is_empty() && self.dry_run.is_none() && self.commands.iter().all(is_store);
        if self.key.is_none() || is_sound {
            return Ok(());
        }
        let text = "a request with a key may hold only statements, not the reads or the writes of a transaction that \
                    ran before";
        Err(Failure::new(FailureKind::Refused, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SQL_BYTES_MAX;
    use crate::{Param, SqlCommand, Statement, Step};

    /// Returns the text with which a proposal of these commands, after the change, is refused.
    fn failure_of(commands: Vec<Command>, change: impl FnOnce(&mut Proposal)) -> String {
        let mut proposal = Proposal::new(None, commands);
        change(&mut proposal);
        proposal.check_limits().map_or_else(|failure| failure.to_string(), |()| "nothing".to_owned())
    }

    fn statement(params: Vec<Param>, names: &[&str]) -> Vec<Command> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        vec![SqlCommand::Statement(Statement { sql: "DELETE FROM t".into(), params, names }).into()]
    }

    #[test]
    fn each_limit_says_what_to_do() {
        let level = "the proposal names format level 2, and its commands need 1";
        assert_eq!(failure_of(Vec::new(), |proposal| proposal.level = 2), level);
        let budget = "a budget is at most 50000000000 steps; ask for less";
        assert_eq!(failure_of(Vec::new(), |proposal| proposal.budget = BUDGET_MAX + 1), budget);
        let reads = "16385 reads of a transaction: the limit is 16384; read more with each";
        let check = ReadCheck { read: Read::Sql(Statement::default()), stamp: Stamp::default(), answer: 0 };
        assert_eq!(failure_of(Vec::new(), |proposal| proposal.read_checks = vec![check; READ_CHECKS_MAX + 1]), reads);
        let names = "2 parameters but 1 names: give each a name, or none";
        assert_eq!(failure_of(statement(vec![1.into(), 2.into()], &[":a"]), |_| ()), names);
        let name = "1048577 bytes of a name: the limit is 1048576; give the column's number";
        assert_eq!(failure_of(statement(vec![Step(0).column("x".repeat(SQL_BYTES_MAX + 1))], &[]), |_| ()), name);
        let alone = "VACUUM can't be combined with other statements; run it by itself";
        assert_eq!(failure_of(vec![SqlCommand::Vacuum.into(), SqlCommand::Vacuum.into()], |_| ()), alone);
        let dry = "a dry-run proposal is atomic and may hold only statements, one stamp each, and no read checks";
        let dry_run = Some(DryRunRecord { index: 0, stamps: vec![Stamp::default()] });
        assert_eq!(failure_of(Vec::new(), |proposal| proposal.dry_run.clone_from(&dry_run)), dry);
        let pipeline = |proposal: &mut Proposal| {
            proposal.mode = Mode::Pipeline;
            proposal.dry_run = dry_run;
        };
        assert_eq!(failure_of(statement(Vec::new(), &[]), pipeline), dry);
        let keyed = |proposal: &mut Proposal| {
            let key = RequestKey::new("a", [0; RequestKey::HASH_BYTES]);
            *proposal = std::mem::replace(proposal, Proposal::new(None, Vec::new())).with_key(key.unwrap());
        };
        let alone = "a request with a key may hold only statements, not the reads or the writes of a transaction that \
                     ran before";
        assert_eq!(failure_of(vec![crate::ControlCommand::OpenSession.into()], keyed), alone);
        assert_eq!(failure_of(statement(Vec::new(), &[]), keyed), "nothing");
    }
}
