//! Describes a statement without running it.
//!
//! The library has no call for this, so it is found by queries: `EXPLAIN` tells whether the statement can be run, and a
//! query around it, with `LIMIT 0`, tells its columns. Those of `RETURNING` stay unknown.

use quorate::sql::Param;
use quorate::{Params, Rows, Value};

use super::encode::write_columns;
use super::stream::Stream;
use crate::error::Problem;
use crate::json::Json;
use crate::text::{Kind, names};
use crate::work::Work;

/// Describes a statement.
pub(super) async fn describe(stream: &mut Stream, work: &mut Work, sql: &str) -> Result<Json, Problem> {
    let sql = sql.trim().trim_end_matches(';');
    let (kind, parameters) = (Kind::of(sql), names(sql)?);
    let nulls = Params::positional(vec![Param::Value(Value::Null); parameters.len()]);
    let explain = if kind == Kind::Explain { sql.to_owned() } else { format!("EXPLAIN {sql}") };
    let mut columns = Rows::default();
    let is_readonly = if kind.is_of_transactions() || matches!(kind, Kind::ForeignKeys(_)) {
        true
    } else {
        match work.query((explain, nulls.clone())).await {
            Ok(_) if matches!(kind, Kind::Write { .. }) => false,
            Ok(plan) => {
                let around = format!("SELECT * FROM ({sql}\n) LIMIT 0");
                let ran = if kind == Kind::Explain { Ok(plan) } else { work.query((around, nulls)).await };
                columns = ran.map(|ran| ran.rows).unwrap_or_default();
                true
            }
            // A PRAGMA that sets something, say.
            Err(Problem::Sql(error)) if Problem::is_refusal(&error) && kind == Kind::Other => false,
            // The tables may be those of a transaction that is not committed yet.
            Err(Problem::Sql(error)) if error.failure().is_some() && !stream.is_autocommit() => kind == Kind::Read,
            Err(problem) => return Err(problem),
        }
    };
    let mut json = Json::default();
    json.raw("{\"params\":").list(&parameters, |json, name| {
        json.raw("{\"name\":");
        match name {
            Some(name) => json.string(name).raw("}"),
            None => json.raw("null}"),
        };
    });
    json.raw(",\"cols\":");
    write_columns(&mut json, &columns);
    json.raw(if kind == Kind::Explain { ",\"is_explain\":true" } else { ",\"is_explain\":false" });
    json.raw(if is_readonly { ",\"is_readonly\":true}" } else { ",\"is_readonly\":false}" });
    Ok(json)
}
