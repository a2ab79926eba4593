//! The responses of Hrana, as JSON.

use quorate::{Rows, Value};

use super::batch::StepResult;
use crate::error::Problem;
use crate::json::Json;
use crate::work::Ran;

/// Returns the result of a statement as JSON.
pub(super) fn statement(ran: &Ran, want_rows: bool) -> Json {
    let mut json = Json::default();
    write_statement(&mut json, ran, want_rows);
    json
}

fn write_statement(json: &mut Json, ran: &Ran, want_rows: bool) {
    json.raw("{\"cols\":");
    write_columns(json, &ran.rows);
    json.raw(",\"rows\":");
    let none = Rows::default();
    let rows = if want_rows { &ran.rows } else { &none };
    json.list(rows, |json, row| {
        json.list(row.values(), write_value);
    });
    json.raw(",");
    write_counts(json, ran);
    json.raw(",\"rows_read\":0,\"rows_written\":").integer(ran.changes);
    json.raw(",\"query_duration_ms\":0,\"replication_index\":");
    match ran.position {
        Some(position) => json.raw("\"").integer(position.index).raw("\""),
        None => json.raw("null"),
    };
    json.raw("}");
}

fn write_counts(json: &mut Json, ran: &Ran) {
    json.raw("\"affected_row_count\":").integer(ran.changes).raw(",\"last_insert_rowid\":");
    match ran.last_insert_rowid {
        0 => json.raw("null"),
        rowid => json.raw("\"").integer(rowid).raw("\""),
    };
}

/// Writes the names of the columns, and their declared types where these are known.
pub(super) fn write_columns(json: &mut Json, rows: &Rows) {
    json.list(rows.columns().iter().enumerate(), |json, (number, name)| {
        json.raw("{\"name\":").string(name).raw(",\"decltype\":");
        match rows.decltype(number) {
            Some(decltype) => json.string(decltype),
            None => json.raw("null"),
        };
        json.raw("}");
    });
}

fn write_value(json: &mut Json, value: &Value) {
    match value {
        Value::Null => json.raw("{\"type\":\"null\"}"),
        Value::Integer(value) => json.raw("{\"type\":\"integer\",\"value\":\"").integer(*value).raw("\"}"),
        Value::Real(value) => json.raw("{\"type\":\"float\",\"value\":").float(*value).raw("}"),
        Value::Text(value) => json.raw("{\"type\":\"text\",\"value\":").string(value).raw("}"),
        Value::Blob(value) => json.raw("{\"type\":\"blob\",\"base64\":").base64(value, false).raw("}"),
    };
}

/// Returns the results of a batch as JSON.
pub(super) fn batch(results: &[StepResult]) -> Json {
    let mut json = Json::default();
    json.raw("{\"step_results\":").list(results, |json, result| match &result.ran {
        Some(Ok(ran)) => write_statement(json, ran, result.want_rows),
        _ => {
            json.raw("null");
        }
    });
    json.raw(",\"step_errors\":").list(results, |json, result| match &result.ran {
        Some(Err(problem)) => write_problem(json, problem),
        _ => {
            json.raw("null");
        }
    });
    json.raw(",\"replication_index\":null}");
    json
}

/// The results of a batch as the entries of a cursor, which are written one by one.
#[derive(Debug)]
pub(super) struct Cursor {
    results: Vec<StepResult>,
    step: usize,
    /// The next row of the step; `None` before its first entry.
    row: Option<usize>,
}

impl Cursor {
    pub(super) fn new(results: Vec<StepResult>) -> Self {
        Self { results, step: 0, row: None }
    }

    /// Returns whether all entries are written.
    pub(super) fn is_done(&self) -> bool {
        self.results.iter().skip(self.step).all(|result| result.ran.is_none())
    }

    /// Writes the next entry; returns whether there was one.
    pub(super) fn write_next(&mut self, json: &mut Json) -> bool {
        while let Some(result) = self.results.get(self.step) {
            match (&result.ran, self.row) {
                (None, _) => {
                    self.step += 1;
                    continue;
                }
                (Some(Err(problem)), _) => {
                    json.raw("{\"type\":\"step_error\",\"step\":").integer(number(self.step)).raw(",\"error\":");
                    write_problem(json, problem);
                    json.raw("}");
                    self.step += 1;
                }
                (Some(Ok(ran)), None) => {
                    json.raw("{\"type\":\"step_begin\",\"step\":").integer(number(self.step)).raw(",\"cols\":");
                    write_columns(json, &ran.rows);
                    json.raw("}");
                    self.row = Some(0);
                }
                (Some(Ok(ran)), Some(row)) => {
                    if let Some(values) = ran.rows.get(row).filter(|_| result.want_rows) {
                        json.raw("{\"type\":\"row\",\"row\":").list(values.values(), write_value).raw("}");
                        self.row = Some(row + 1);
                    } else {
                        json.raw("{\"type\":\"step_end\",");
                        write_counts(json, ran);
                        json.raw("}");
                        (self.step, self.row) = (self.step + 1, None);
                    }
                }
            }
            return true;
        }
        false
    }
}

/// Returns the number of a step, of which there are few.
fn number(step: usize) -> i128 {
    i128::try_from(step).unwrap_or(i128::MAX)
}

/// Writes the response to a request.
pub(super) fn write_response(json: &mut Json, kind: &str, result: Option<Json>) {
    json.raw("{\"type\":").string(kind);
    if let Some(result) = result {
        let name = match kind {
            "get_autocommit" => ",\"is_autocommit\":",
            "fetch_cursor" => ",\"entries\":",
            _ => ",\"result\":",
        };
        json.raw(name).append(result);
    }
    json.raw("}");
}

/// Writes a problem.
pub(crate) fn write_problem(json: &mut Json, problem: &Problem) {
    json.raw("{\"message\":").string(&problem.to_string()).raw(",\"code\":").string(problem.code()).raw("}");
}
