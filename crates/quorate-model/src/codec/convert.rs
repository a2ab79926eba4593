//! Between the types of this crate and the messages of [`wire`].

use super::{DecodeError, wire};
use crate::{
    Bulk, Command, CommandResult, Failure, FailureKind, Origin, Outcome, PackedRows, Proposal, Reply, SessionId,
    Statement, StatementResult, Value,
};

impl From<&Proposal> for wire::Proposal {
    fn from(proposal: &Proposal) -> Self {
        let commands = proposal.commands.iter().map(Into::into).collect();
        Self { level: proposal.level, origin: proposal.origin.map(Into::into), budget: proposal.budget, commands }
    }
}

impl TryFrom<wire::Proposal> for Proposal {
    type Error = DecodeError;

    fn try_from(message: wire::Proposal) -> Result<Self, DecodeError> {
        let commands = message.commands.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        Ok(Self { level: message.level, origin: message.origin.map(Into::into), budget: message.budget, commands })
    }
}

impl From<Origin> for wire::Origin {
    fn from(origin: Origin) -> Self {
        Self { session: origin.session.0, sequence: origin.sequence, floor: origin.floor }
    }
}

impl From<wire::Origin> for Origin {
    fn from(message: wire::Origin) -> Self {
        Self { session: SessionId(message.session), sequence: message.sequence, floor: message.floor }
    }
}

impl From<&Command> for wire::Command {
    fn from(command: &Command) -> Self {
        let kind = match command {
            Command::Statement(statement) => wire::CommandKind::Statement(statement.into()),
            Command::OpenSession => wire::CommandKind::OpenSession(wire::Empty {}),
            Command::CloseSession(session) => wire::CommandKind::CloseSession(session.0),
            Command::Vacuum => wire::CommandKind::Vacuum(wire::Empty {}),
            Command::Bulk(bulk) => wire::CommandKind::Bulk(bulk.into()),
            Command::Verify => wire::CommandKind::Verify(wire::Empty {}),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<wire::Command> for Command {
    type Error = DecodeError;

    fn try_from(message: wire::Command) -> Result<Self, DecodeError> {
        Ok(match message.kind.ok_or(DecodeError::Unknown)? {
            wire::CommandKind::Statement(statement) => Self::Statement(statement.try_into()?),
            wire::CommandKind::OpenSession(_) => Self::OpenSession,
            wire::CommandKind::CloseSession(session) => Self::CloseSession(SessionId(session)),
            wire::CommandKind::Vacuum(_) => Self::Vacuum,
            wire::CommandKind::Bulk(bulk) => Self::Bulk(bulk.try_into()?),
            wire::CommandKind::Verify(_) => Self::Verify,
        })
    }
}

impl From<&Statement> for wire::Statement {
    fn from(statement: &Statement) -> Self {
        let params = statement.params.iter().map(Into::into).collect();
        Self { sql: statement.sql.clone(), params, names: statement.names.clone() }
    }
}

impl TryFrom<wire::Statement> for Statement {
    type Error = DecodeError;

    fn try_from(message: wire::Statement) -> Result<Self, DecodeError> {
        Ok(Self { sql: message.sql, params: values(message.params)?, names: message.names })
    }
}

impl From<&Bulk> for wire::Bulk {
    fn from(bulk: &Bulk) -> Self {
        let width = u32::try_from(bulk.rows.width()).unwrap_or(u32::MAX);
        Self { sql: bulk.sql.clone(), width, rows: bulk.rows.bytes().clone() }
    }
}

impl TryFrom<wire::Bulk> for Bulk {
    type Error = DecodeError;

    fn try_from(message: wire::Bulk) -> Result<Self, DecodeError> {
        Ok(Self { sql: message.sql, rows: PackedRows::decode(message.width, message.rows)? })
    }
}

impl From<&Value> for wire::Value {
    fn from(value: &Value) -> Self {
        let kind = match value {
            Value::Null => None,
            Value::Integer(value) => Some(wire::ValueKind::Integer(*value)),
            Value::Real(value) => Some(wire::ValueKind::Real(*value)),
            Value::Text(text) => Some(wire::ValueKind::Text(text.clone())),
            Value::Blob(bytes) => Some(wire::ValueKind::Blob(bytes.clone())),
        };
        Self { kind }
    }
}

impl TryFrom<wire::Value> for Value {
    type Error = DecodeError;

    fn try_from(message: wire::Value) -> Result<Self, DecodeError> {
        Ok(match message.kind {
            None => Self::Null,
            Some(wire::ValueKind::Integer(value)) => Self::Integer(value),
            Some(wire::ValueKind::Real(value)) => Self::Real(value),
            Some(wire::ValueKind::Text(text)) => Self::Text(text),
            Some(wire::ValueKind::Blob(bytes)) => Self::Blob(bytes),
        })
    }
}

fn values(messages: Vec<wire::Value>) -> Result<Vec<Value>, DecodeError> {
    messages.into_iter().map(TryInto::try_into).collect()
}

impl From<&Outcome> for wire::Outcome {
    fn from(outcome: &Outcome) -> Self {
        let kind = match outcome {
            Ok(reply) => {
                wire::OutcomeKind::Reply(wire::Reply { results: reply.results.iter().map(Into::into).collect() })
            }
            Err(failure) => wire::OutcomeKind::Failure(failure.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<wire::Outcome> for Outcome {
    type Error = DecodeError;

    fn try_from(message: wire::Outcome) -> Result<Self, DecodeError> {
        match message.kind.ok_or(DecodeError::Unknown)? {
            wire::OutcomeKind::Reply(reply) => {
                let results = reply.results.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
                Ok(Ok(Reply { results }))
            }
            wire::OutcomeKind::Failure(failure) => Ok(Err(failure.try_into()?)),
        }
    }
}

impl From<&CommandResult> for wire::CommandResult {
    fn from(result: &CommandResult) -> Self {
        let kind = match result {
            CommandResult::Done => wire::ResultKind::Done(wire::Empty {}),
            CommandResult::Statement(statement) => wire::ResultKind::Statement(statement.into()),
            CommandResult::Session(session) => wire::ResultKind::Session(session.0),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<wire::CommandResult> for CommandResult {
    type Error = DecodeError;

    fn try_from(message: wire::CommandResult) -> Result<Self, DecodeError> {
        Ok(match message.kind.ok_or(DecodeError::Unknown)? {
            wire::ResultKind::Done(_) => Self::Done,
            wire::ResultKind::Statement(statement) => Self::Statement(statement.try_into()?),
            wire::ResultKind::Session(session) => Self::Session(SessionId(session)),
        })
    }
}

impl From<&StatementResult> for wire::StatementResult {
    fn from(result: &StatementResult) -> Self {
        let rows = result.rows.iter().map(|row| wire::Row { values: row.iter().map(Into::into).collect() }).collect();
        Self {
            changes: result.changes,
            last_insert_rowid: result.last_insert_rowid,
            columns: result.columns.clone(),
            rows,
        }
    }
}

impl TryFrom<wire::StatementResult> for StatementResult {
    type Error = DecodeError;

    fn try_from(message: wire::StatementResult) -> Result<Self, DecodeError> {
        let rows = message.rows.into_iter().map(|row| values(row.values)).collect::<Result<_, _>>()?;
        Ok(Self {
            changes: message.changes,
            last_insert_rowid: message.last_insert_rowid,
            columns: message.columns,
            rows,
        })
    }
}

impl From<&Failure> for wire::Failure {
    fn from(failure: &Failure) -> Self {
        Self {
            kind: failure.kind.number(),
            sqlite_code: failure.sqlite_code,
            command: failure.command,
            message: failure.message.clone(),
            row: failure.row,
        }
    }
}

impl TryFrom<wire::Failure> for Failure {
    type Error = DecodeError;

    fn try_from(message: wire::Failure) -> Result<Self, DecodeError> {
        let kind = FailureKind::from_number(message.kind).ok_or(DecodeError::Unknown)?;
        let wire::Failure { sqlite_code, command, message, row, .. } = message;
        Ok(Self { kind, sqlite_code, command, row, message })
    }
}
