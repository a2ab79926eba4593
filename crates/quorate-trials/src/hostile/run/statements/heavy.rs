//! Generates endless and huge work: sorts and aggregates over gigabytes, cross joins and recursion without end.

use super::Draft;
use crate::harness::dice::Dice;

/// The bytes of a row.
const WIDTHS: [u64; 5] = [1, 100, 10_000, 1_000_000, 15_000_000];
/// The number of rows.
const ROWS: [u64; 4] = [1000, 100_000, 10_000_000, 1 << 40];

/// Returns a statement of one of the shapes.
pub fn statement(dice: &Dice) -> Draft {
    let (width, rows) = (dice.one(&WIDTHS), dice.one(&ROWS));
    let value =
        dice.one(&["randomblob({})", "printf('%.*c',{},'a')||x", "zeroblob({})||x"]).replace("{}", &width.to_string());
    let wide = format!(
        "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT {rows}) SELECT x, {value} AS r FROM c)"
    );
    let cross = "t1 a, t1 b, t1 c, tree d, tree e, tree f, tree g";
    let select = match dice.below(20) {
        0 => format!("SELECT r FROM {wide} ORDER BY r"),
        1 => format!("SELECT x FROM {wide} ORDER BY r, x DESC LIMIT 1 OFFSET 1000000"),
        2 => format!("SELECT DISTINCT r FROM {wide}"),
        3 => format!("SELECT count(*) FROM {wide} GROUP BY r"),
        4 => format!("SELECT length(group_concat(r)) FROM {wide}"),
        5 => format!("SELECT length(json_group_array(hex(r))) FROM {wide}"),
        6 => format!("SELECT length(json_group_object(x, hex(r))) FROM {wide}"),
        7 => format!("SELECT count(DISTINCT r) FROM {wide}"),
        8 => format!("SELECT max(r) OVER (ORDER BY x ROWS BETWEEN 1000000 PRECEDING AND CURRENT ROW) FROM {wide}"),
        9 => format!("SELECT string_agg(r, ',' ORDER BY r) FROM {wide}"),
        10 => format!("SELECT * FROM {wide} a JOIN {wide} b ON a.r = b.r"),
        11 => format!("SELECT r FROM {wide} UNION SELECT r || 1 FROM {wide}"),
        12 => format!("SELECT count(*) FROM {cross}"),
        13 => format!("SELECT 1 FROM {cross} WHERE a.b || b.b || c.b LIKE '%x%y%z%' LIMIT 1"),
        14 => "WITH RECURSIVE c(x) AS (SELECT 1 UNION SELECT x+1 FROM c) SELECT count(*) FROM c".into(),
        15 => "WITH RECURSIVE c(x) AS (SELECT 'a' UNION ALL SELECT x||x FROM c) SELECT length(x) FROM c".into(),
        16 => "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c, t1) SELECT count(*) FROM c".into(),
        17 => format!("SELECT 1 WHERE randomblob({width}) IN (SELECT r FROM {wide})"),
        18 => format!("SELECT sum(x) FROM {wide} WHERE r LIKE '%b' OR instr(r, 'ab') OR r GLOB '*[b-z]*'"),
        _ => {
            format!("SELECT a.value FROM json_each('['||replace(printf('%.*c',3000000,'a'),'a','1,')||'1]') a, {wide}")
        }
    };
    match dice.below(10) {
        0..5 => Draft::read(select),
        5..8 => Draft::write(format!("INSERT INTO pad(b) {select}")),
        8 => Draft::write(format!("CREATE TABLE h{} AS {select}", dice.below(9))),
        _ => Draft::write(format!("DELETE FROM t1 WHERE a > 40 AND EXISTS ({select})")),
    }
}
