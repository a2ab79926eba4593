//! Writers' pipelines, of which some statements fail.

use quorate::{
    Error, FailureKind, Position, Sql, Step, Value, params,
    sql::{BatchStep, PipelineResult},
};

use super::Writer;
use crate::coverage::{PIPELINE, PIPELINE_ENDED};

impl Writer {
    /// What a batch of this load does, with statements in between that fail by themselves; sometimes the last but one
    /// ends the transaction.
    pub(super) async fn pipeline(&self, sql: &Sql, number: i64, body: Value) -> Result<(Position, Option<i64>), Error> {
        let insert = "INSERT INTO events (client, number, body) VALUES (?, ?, ?)";
        let mirror = "INSERT INTO mirrors (client, number, draw) VALUES (?, ?, ?)";
        let count = "UPDATE totals SET batches = batches + 1 WHERE client = ?";
        let broken = || (insert, params![self.client, number, "broken"]).into();
        let mut steps: Vec<BatchStep> = vec![
            (format!("{insert} RETURNING draw, number"), params![self.client, number, body]).into(),
            broken(),
            (mirror, params![self.client, Step(0).column(1), Step(0).column("draw")]).into(),
            // It refers to a statement that fails.
            (mirror, params![self.client, number, Step(1).column(0)]).into(),
            (count, params![self.client]).into(),
        ];
        let mut expected = vec![None, Some(FailureKind::Constraint), None, Some(FailureKind::Sql), None];
        let ends = self.rng.below(3) == 0;
        if ends {
            let again = ("INSERT OR ROLLBACK INTO totals (client) VALUES (?)", params![self.client]);
            steps.extend([again.into(), (insert, params![self.client, number, Value::Null]).into()]);
            expected.extend([Some(FailureKind::Constraint), Some(FailureKind::NotRun)]);
        }
        let PipelineResult { results, position, .. } = sql.pipeline(steps).await?;
        let kinds: Vec<_> = results.iter().map(|result| result.as_ref().err().map(|failure| failure.kind)).collect();
        if kinds != expected {
            self.violation(format!("a pipeline failed with {kinds:?}, expected is {expected:?}"));
        }
        self.ledger.happened(if ends { PIPELINE_ENDED } else { PIPELINE });
        let drawn = results.first().and_then(|result| result.as_ref().ok()).and_then(|first| first.rows.first());
        Ok((position, drawn.and_then(|row| row.first()).and_then(integer)))
    }
}

fn integer(value: &Value) -> Option<i64> {
    if let Value::Integer(number) = value { Some(*number) } else { None }
}
