//! Generates calls of every function with extreme arguments, in every place where an expression may be.

use super::{Draft, arguments};
use crate::harness::Result;
use crate::harness::dice::Dice;

/// A function, as `PRAGMA function_list` describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    pub name: String,
    /// The number of arguments; any number if negative.
    pub arguments: i64,
    /// `s` for scalar, `a` for aggregate, `w` for window.
    pub kind: String,
}

/// Returns all functions of SQLite as it is built into the nodes, and those that Quorate adds.
pub fn functions() -> Result<Vec<Function>> {
    let conn = rusqlite::Connection::open_in_memory()?;
    let mut all = conn.prepare("SELECT DISTINCT name, narg, type FROM pragma_function_list ORDER BY 1, 2, 3")?;
    let function = |row: &rusqlite::Row<'_>| {
        Ok(Function { name: row.get("name")?, arguments: row.get("narg")?, kind: row.get("type")? })
    };
    Ok(all.query_map([], function)?.collect::<Result<_, _>>()?)
}

/// Operators that are functions, or cost as much as one.
const OPERATORS: [&str; 14] =
    ["LIKE", "GLOB", "NOT LIKE", "||", "->", "->>", "MATCH", "REGEXP", "=", "<", "IS", "+", "<<", "*"];
/// Rows for aggregates.
const ROWS: [u64; 5] = [1, 10, 400, 20_000, 3_000_000];
/// How deep calls nest.
const DEPTH_MAX: u64 = 3;

/// Returns a statement around a call.
pub fn statement(dice: &Dice, functions: &[Function]) -> Draft {
    let depth = dice.below(DEPTH_MAX);
    let call = expression(dice, functions, depth);
    let shown = match dice.below(5) {
        0 | 1 => format!("length({call})"),
        2 => format!("typeof({call})"),
        _ => call.clone(),
    };
    let rows = dice.one(&ROWS);
    let many = format!(
        "(WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a+1 FROM r LIMIT {rows}) SELECT a, a AS b, a AS d, \
                        a AS e, a AS rowid FROM r)"
    );
    match dice.below(24) {
        0..6 => Draft::read(format!("SELECT {shown} FROM t1 LIMIT 1")),
        6..9 => Draft::read(format!("SELECT {shown} FROM {many}")),
        9 => Draft::read(format!("SELECT 1 FROM t1 WHERE {call} ORDER BY {call} LIMIT 3")),
        10 => Draft::read(format!("SELECT count(*) FROM t1 GROUP BY {call} HAVING {call}")),
        11..15 => Draft::write(format!("INSERT INTO pad(b) SELECT {shown} FROM t1 LIMIT 1")),
        15..17 => Draft::write(format!("INSERT INTO pad(b) SELECT {shown} FROM {many} LIMIT 3")),
        17 => Draft::write(format!("UPDATE t1 SET e = {call} WHERE a = 1 RETURNING {shown}")),
        18 => Draft::write(format!(
            "INSERT INTO t2 (a, b, n) VALUES (1, {}, 2) ON CONFLICT DO UPDATE SET n = {call}",
            "'b1'"
        )),
        19 => Draft::write(format!("CREATE TABLE f{} (a DEFAULT ({call}), b CHECK ({call}))", dice.below(9))),
        20 => Draft::write(format!("CREATE INDEX f{} ON t1 ({call})", dice.below(9))),
        21 => Draft::write(format!(
            "CREATE TABLE f{} (a, b, d, e, g AS ({call}) {})",
            dice.below(9),
            dice.one(&["STORED", ""])
        )),
        22 => Draft::write(format!("DELETE FROM t1 WHERE a > 35 AND {call} IS NULL")),
        _ => Draft::write(format!("CREATE VIEW f{} AS SELECT {call} FROM t1", dice.below(9))),
    }
}

fn expression(dice: &Dice, functions: &[Function], depth: u64) -> String {
    if dice.chance(15) {
        let operator = dice.one(&OPERATORS);
        let side = |position| argument(dice, functions, operator, position, depth);
        let escape = if operator.ends_with("LIKE") && dice.chance(30) { " ESCAPE '\\'" } else { "" };
        return format!("({} {operator} {}{escape})", side(0), side(1));
    }
    let Some(function) = dice.pick(functions) else { return "1".to_owned() };
    call(dice, functions, function, depth)
}

fn call(dice: &Dice, functions: &[Function], function: &Function, depth: u64) -> String {
    let fixed = u64::try_from(function.arguments).unwrap_or_else(|_| dice.one(&[0, 1, 2, 3, 4, 5, 9, 127, 1001]));
    let count = if dice.chance(8) { fixed + dice.below(3) } else { fixed };
    let arguments: Vec<String> = (0..count)
        .map(|position| argument(dice, functions, &function.name, usize::try_from(position).unwrap_or(0), depth))
        .collect();
    let mut arguments = arguments.join(",");
    let aggregate = function.kind != "s";
    if aggregate && dice.chance(15) {
        arguments = if arguments.is_empty() || dice.chance(30) { "*".into() } else { format!("DISTINCT {arguments}") };
    }
    if aggregate && count > 0 && dice.chance(15) {
        arguments.push_str(" ORDER BY a DESC");
    }
    let filter = if aggregate && dice.chance(15) { " FILTER (WHERE a > 1)" } else { "" };
    let over = match dice.below(8) {
        _ if !aggregate => "",
        0 => " OVER ()",
        1 => " OVER (PARTITION BY b ORDER BY a ROWS BETWEEN 9223372036854775807 PRECEDING AND CURRENT ROW)",
        2 => " OVER (ORDER BY a RANGE BETWEEN 1e308 PRECEDING AND 1 FOLLOWING EXCLUDE TIES)",
        3 => " OVER (ORDER BY a GROUPS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)",
        _ => "",
    };
    format!("{}({arguments}){filter}{over}", name(&function.name))
}

/// Returns the name of a function. Names that are operators, such as `->`, need quotes.
fn name(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain { name.to_owned() } else { super::quote(name) }
}

fn argument(dice: &Dice, functions: &[Function], function: &str, position: usize, depth: u64) -> String {
    if depth > 0 && dice.chance(35) {
        return expression(dice, functions, depth - 1);
    }
    // Many arguments of megabytes each would only make the statement too long.
    if position > 9 { "1".to_owned() } else { arguments::fitting(dice, function, position) }
}
