//! A corpus for tests: queries nested up to SQLite's limits and beyond them, and queries that would run for ever or use
//! unlimited memory.

/// Depths at and beyond each of SQLite's limits.
const DEPTHS: [usize; 6] = [40, 160, 330, 499, 990, 3000];

fn nested(open: &str, inner: &str, close: &str, depth: usize) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

/// Returns queries of `t (id, name)`, nested in every way.
pub(crate) fn deep() -> Vec<String> {
    DEPTHS.into_iter().flat_map(deep_by).collect()
}

fn deep_by(depth: usize) -> Vec<String> {
    let from_t = |expression: String| format!("SELECT {expression} FROM t");
    let ctes = (1..depth).map(|n| format!(", c{n} AS (SELECT a FROM c{} LIMIT 1)", n - 1)).collect::<String>();
    vec![
        from_t(nested("(", "id", ")", depth)),
        from_t(nested("1 + (", "id", ")", depth)),
        from_t(format!("id{}", " + id".repeat(depth))),
        from_t(format!("id{}", " || id".repeat(depth))),
        from_t(format!("{}id", "NOT ".repeat(depth))),
        from_t(format!("{}id", "- ".repeat(depth))),
        from_t(nested("abs(", "id", ")", depth)),
        from_t(nested("CASE WHEN id THEN ", "1", " END", depth)),
        from_t(nested("1 BETWEEN (", "1", ") AND 2", depth)),
        from_t(nested("'a' LIKE (", "1", ")", depth)),
        from_t(nested("(SELECT ", "id", ")", depth)),
        format!("SELECT * FROM t WHERE id = 0{}", " OR id = name + 1".repeat(depth)),
        format!("SELECT * FROM t WHERE id = 0{}", " AND id <> name + 1".repeat(depth)),
        nested("SELECT * FROM (", "SELECT 1", ")", depth),
        nested("SELECT count(*) FROM (", "SELECT 1", ")", depth),
        nested("SELECT * FROM (", "SELECT 1", " LIMIT 5)", depth),
        nested("WITH x AS (", "SELECT 1", ") SELECT * FROM x", depth.min(160)),
        format!("WITH c0 AS (SELECT 1 AS a){ctes} SELECT * FROM c{}", depth - 1),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(depth)),
        format!("SELECT id FROM t{} ORDER BY 1", " EXCEPT SELECT id FROM t".repeat(depth)),
        format!("SELECT id FROM t{}", " INTERSECT SELECT id FROM t".repeat(depth)),
        from_t(format!("json('{}')", nested("[", "1", "]", depth))),
        from_t(format!("json_pretty('{}')", nested("{\"a\":", "1", "}", depth))),
        from_t(format!("json_patch('{0}', '{0}')", nested("{\"a\":", "1", "}", depth))),
        from_t(format!("json_set('{{}}', '${}', 1)", ".a".repeat(depth))),
        from_t(format!("json_group_array(json('{}'))", nested("[", "1", "]", depth))),
        format!("SELECT count(fullkey) FROM json_tree('{}')", nested("[", "1", "]", depth)),
        from_t(format!("printf('{}')", "%%".repeat(depth))),
    ]
}

/// Returns a query of `t` that takes long although it nests few levels: each level doubles the work of preparing it.
pub(crate) fn doubling() -> String {
    from_windows(25)
}

fn from_windows(depth: usize) -> String {
    format!("SELECT {} FROM t", nested("(SELECT sum(id) OVER (ORDER BY ", "id", ") FROM t)", depth))
}

/// Queries whose function calls took minutes, gigabytes or all of the stack in plain SQLite; with each, the error if
/// the query is refused.
pub(crate) const FUNCTIONS: [(&str, Option<&str>); 8] = [
    ("SELECT printf('%.*c', 60000, 'a') LIKE replace(printf('%.*c', 24999, 'x'), 'x', '%a')", None),
    ("SELECT printf('%.*c', 60000, 'a') GLOB replace(printf('%.*c', 24999, 'x'), 'x', '*a')", None),
    ("SELECT instr(zeroblob(3000000), zeroblob(1500000) || x'01')", None),
    (
        "SELECT printf('%.*c', 3000000, 'a') LIKE '%' || printf('%.*c', 25000, 'a') || 'b'",
        Some("LIKE: this pattern needs too many comparisons for a value of 3000000 bytes"),
    ),
    ("SELECT length(replace(printf('%.*c', 3000000, 'a'), printf('%.*c', 1500000, 'a') || 'b', ''))", None),
    ("SELECT length(replace(printf('%.*c', 9000, 'a'), 'a', printf('%.*c', 9000, 'a')))", Some("too big")),
    (
        "SELECT length(json_group_array(printf('%.*c', 10000000, 'a'))) FROM
            (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 400) SELECT x FROM c)",
        Some("too big"),
    ),
    ("SELECT length(trim(printf('%.*c', 9000000, 'a'), printf('%.*c', 9000000, 'ab')))", None),
];
