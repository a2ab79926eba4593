//! Statements that once ended or blocked every node of a cluster, word by word as they were found.

use super::Draft;

/// The statements, each with whether it writes.
pub const STATEMENTS: &[(bool, &str)] = &[
    (true, "CREATE VIEW IF NOT EXISTS IF AS SELECT null"),
    (true, "CREATE TABLE IF NOT EXISTS IF (a)"),
    (true, "CREATE INDEX IF NOT EXISTS IF ON pad (b)"),
    (true, "CREATE TRIGGER IF NOT EXISTS IF AFTER INSERT ON pad BEGIN SELECT 1; END"),
    (true, "CREATE VIRTUAL TABLE IF NOT EXISTS IF USING fts5 (a)"),
    (false, "SELECT printf('%.*c',60000,'a') LIKE replace(printf('%.*c',24999,'x'),'x','%a')"),
    (true, "INSERT INTO pad(b) SELECT printf('%.*c',60000,'a') LIKE replace(printf('%.*c',24999,'x'),'x','%a')"),
    (false, "SELECT printf('%.*c',60000,'a') GLOB replace(printf('%.*c',24999,'x'),'x','*a')"),
    (true, "INSERT INTO pad(b) SELECT printf('%.*c',60000,'a') GLOB replace(printf('%.*c',24999,'x'),'x','*a')"),
    (
        false,
        "SELECT length(json_group_array(printf('%.*c',10000000,'a'))) FROM (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL \
         SELECT x+1 FROM c LIMIT 400) SELECT x FROM c)",
    ),
    (
        true,
        "INSERT INTO pad(b) SELECT length(json_group_array(printf('%.*c',10000000,'a'))) FROM (WITH RECURSIVE c(x) AS \
         (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 400) SELECT x FROM c)",
    ),
    (false, "SELECT instr(zeroblob(3000000), zeroblob(1500000)||x'01')"),
    (true, "INSERT INTO pad(b) SELECT instr(zeroblob(3000000), zeroblob(1500000)||x'01')"),
    (false, "SELECT printf('%.*c',8000000,'a') LIKE '%'||printf('%.*c',25000,'a')||'b'"),
    (true, "INSERT INTO pad(b) SELECT printf('%.*c',8000000,'a') LIKE '%'||printf('%.*c',25000,'a')||'b'"),
    (false, "SELECT length(replace(printf('%.*c',3000000,'a'), printf('%.*c',1500000,'a')||'b', ''))"),
    (
        true,
        "INSERT INTO pad(b) SELECT length(replace(printf('%.*c',3000000,'a'), printf('%.*c',1500000,'a')||'b', ''))",
    ),
    (
        false,
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x, randomblob(10000) AS r FROM c \
         ORDER BY r",
    ),
    (
        true,
        "INSERT INTO pad(b) SELECT r FROM (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 100000) \
         SELECT randomblob(10000) AS r FROM c ORDER BY r LIMIT 1)",
    ),
    (true, "INSERT INTO pad(b) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT sum(x) FROM c"),
    (false, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT sum(x) FROM c"),
    (true, "CREATE VIEW hidden AS SELECT * FROM _quorate_applied"),
];

/// Returns each statement in turn.
pub fn statement(number: u64) -> Draft {
    let (writes, sql) = STATEMENTS[usize::try_from(number).unwrap_or(0) % STATEMENTS.len()];
    Draft { writes, sql: sql.to_owned(), parameters: 0 }
}
