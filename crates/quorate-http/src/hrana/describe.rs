//! Describes a statement without running it.
//!
//! The library has no call for this, so it is found by queries: `EXPLAIN` tells whether the statement can be run, and a
//! query with the same columns and `LIMIT 0` tells these. A PRAGMA is run, because SQLite can't explain every one, and
//! what is allowed in a query changes nothing.

use quorate::sql::Param;
use quorate::{Params, Rows, Value};

use super::encode::write_columns;
use super::stream::Stream;
use crate::error::Problem;
use crate::json::Json;
use crate::text::{Kind, names, returning_query};
use crate::work::Work;

fn nulls(count: usize) -> Params {
    Params::positional(vec![Param::Value(Value::Null); count])
}

/// Returns no rows, with the columns of a statement that can be run; none if it has none, or if they can't be found.
async fn columns_of(work: &mut Work, sql: &str, kind: Kind) -> Rows {
    let query =
        if kind == Kind::Read { Some(format!("SELECT * FROM ({sql}\n) LIMIT 0")) } else { returning_query(sql) };
    let Some(query) = query else { return Rows::default() };
    let parameters = names(&query).map_or(0, |names| names.len());
    work.query((query, nulls(parameters))).await.map(|ran| ran.rows).unwrap_or_default()
}

/// Describes a statement.
pub(super) async fn describe(stream: &mut Stream, work: &mut Work, sql: &str) -> Result<Json, Problem> {
    let sql = sql.trim().trim_end_matches(';');
    let (kind, parameters) = (Kind::of(sql), names(sql)?);
    let is_run = matches!(kind, Kind::Explain | Kind::Other);
    let tried = if is_run { sql.to_owned() } else { format!("EXPLAIN {sql}") };
    let mut columns = Rows::default();
    let is_readonly = if kind.is_of_transactions() || matches!(kind, Kind::ForeignKeys(_)) {
        true
    } else {
        match work.query((tried, nulls(parameters.len()))).await {
            Ok(ran) => {
                columns = if is_run { ran.rows } else { columns_of(work, sql, kind).await };
                !matches!(kind, Kind::Write { .. })
            }
            // A change of the schema, or a PRAGMA that sets something, say: readers do not even explain it.
            Err(Problem::Sql(error))
                if Problem::is_refusal(&error) && matches!(kind, Kind::Write { .. } | Kind::Other) =>
            {
                false
            }
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
