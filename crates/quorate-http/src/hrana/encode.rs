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
    write_columns(json, ran.rows.columns());
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

/// Writes the names of columns. The library does not tell their declared types.
pub(super) fn write_columns(json: &mut Json, columns: &[String]) {
    json.list(columns, |json, name| {
        json.raw("{\"name\":").string(name).raw(",\"decltype\":null}");
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

/// Writes the results of a batch as the entries of a cursor.
pub(super) fn write_cursor(json: &mut Json, results: &[StepResult]) {
    for (result, step) in results.iter().zip(0_u32..) {
        match &result.ran {
            None => {}
            Some(Err(problem)) => {
                json.raw("{\"type\":\"step_error\",\"step\":").integer(step).raw(",\"error\":");
                write_problem(json, problem);
                json.raw("}\n");
            }
            Some(Ok(ran)) => {
                json.raw("{\"type\":\"step_begin\",\"step\":").integer(step).raw(",\"cols\":");
                write_columns(json, ran.rows.columns());
                json.raw("}\n");
                for row in ran.rows.iter().filter(|_| result.want_rows) {
                    json.raw("{\"type\":\"row\",\"row\":").list(row.values(), write_value).raw("}\n");
                }
                json.raw("{\"type\":\"step_end\",");
                write_counts(json, ran);
                json.raw("}\n");
            }
        }
    }
}

/// Writes one successful result of a pipeline.
pub(super) fn write_results(json: &mut Json, kind: &str, result: Option<Json>) {
    json.raw("{\"type\":\"ok\",\"response\":{\"type\":").string(kind);
    if let Some(result) = result {
        json.raw(if kind == "get_autocommit" { ",\"is_autocommit\":" } else { ",\"result\":" }).append(result);
    }
    json.raw("}}");
}

/// Writes a problem.
pub(crate) fn write_problem(json: &mut Json, problem: &Problem) {
    json.raw("{\"message\":").string(&problem.to_string()).raw(",\"code\":").string(problem.code()).raw("}");
}
