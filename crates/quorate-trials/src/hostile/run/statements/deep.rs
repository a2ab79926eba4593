//! Generates deep and wide statements: nested, recursive, or with very many parts.

use super::{Draft, arguments};
use crate::harness::dice::Dice;

/// Depths and widths at the edges of SQLite's limits and beyond.
const SIZES: [usize; 16] = [2, 50, 99, 127, 128, 200, 499, 500, 501, 999, 1000, 1001, 1999, 2001, 10_000, 32_767];

/// Returns a statement of one of the shapes.
pub fn statement(dice: &Dice) -> Draft {
    let size = dice.one(&SIZES);
    match dice.below(10) {
        0..3 => expressions(dice, size),
        3..5 => selects(dice, size),
        5..7 => tables(dice, size),
        7 => full_text(dice, size),
        8 => chains(dice),
        _ => rows(dice, size),
    }
}

/// Puts `before` and `after` around a middle, `size` times.
fn nest(size: usize, before: &str, middle: &str, after: &str) -> String {
    format!("{}{middle}{}", before.repeat(size), after.repeat(size))
}

/// Joins `size` parts, each made from its number.
fn list(size: usize, separator: &str, part: impl Fn(usize) -> String) -> String {
    (0..size).map(part).collect::<Vec<_>>().join(separator)
}

fn expressions(dice: &Dice, size: usize) -> Draft {
    let expression = match dice.below(16) {
        0 => nest(size, "(", "1", ")"),
        1 => nest(size, "-", " 1", ""),
        2 => nest(size, "NOT ", "a", ""),
        3 => nest(size, "abs(", "a", ")"),
        4 => nest(size, "CASE WHEN a THEN ", "1", " END"),
        5 => nest(size, "(SELECT ", "1", ")"),
        6 => nest(size, "EXISTS (SELECT 1 WHERE ", "a", ")"),
        7 => nest(size, "CAST(", "a", " AS TEXT)"),
        8 => nest(size, "(1,(", "2", "))"),
        9 => list(size, "||", |n| n.to_string()),
        10 => list(size, " AND ", |n| format!("a<>{n}")),
        11 => format!("a IN ({})", list(size, ",", |n| n.to_string())),
        12 => format!("({}) = ({})", list(size, ",", |_| "a".into()), list(size, ",", |_| "b".into())),
        13 => format!("coalesce({})", list(size, ",", |n| format!("nullif(a,{n})"))),
        14 => nest(size, "a COLLATE NOCASE LIKE (", "b", ")"),
        _ => nest(size, "a -> (", "b", ")"),
    };
    match dice.below(6) {
        0..3 => Draft::read(format!("SELECT {expression} FROM t1")),
        3 => Draft::write(format!("UPDATE t1 SET e = {expression} WHERE a < 3")),
        4 => Draft::write(format!("CREATE TABLE d{} (a, b, CHECK ({expression}))", dice.below(9))),
        _ => Draft::write(format!("CREATE INDEX d{} ON t1 (a) WHERE {expression}", dice.below(9))),
    }
}

fn selects(dice: &Dice, size: usize) -> Draft {
    let joined = size.min(2001);
    let select = match dice.below(12) {
        0 => list(size, " UNION ALL ", |n| format!("SELECT {n}")),
        1 => list(joined, " UNION ", |n| format!("SELECT {n}")),
        2 => format!("SELECT 1 FROM {}", list(joined, ",", |n| format!("pad p{n}"))),
        3 => format!("SELECT {} FROM t1", list(size, ",", |n| format!("a+{n}"))),
        4 => format!("SELECT * FROM {}", nest(joined, "(SELECT * FROM ", "t1", ")")),
        5 => format!("WITH {} SELECT * FROM c0", list(joined, ",", |n| format!("c{n} AS (SELECT * FROM c{})", n + 1))),
        6 => format!(
            "WITH c0 AS (SELECT 1 a),{} SELECT * FROM c{}",
            list(joined, ",", |n| format!("c{} AS (SELECT x.a FROM c{n} x, c{n} y)", n + 1)),
            joined
        ),
        7 => {
            format!("SELECT {} FROM t1", list(joined, ",", |n| format!("sum(a) OVER (ORDER BY b ROWS {n} PRECEDING)")))
        }
        8 => format!("VALUES {}", list(size, ",", |n| format!("({n})"))),
        9 => format!("SELECT a FROM t1 ORDER BY {}", list(joined, ",", |n| format!("a+{n}"))),
        10 => format!("SELECT 1 FROM t1 GROUP BY {}", list(joined, ",", |n| format!("a+{n}"))),
        _ => format!("SELECT * FROM t1 WHERE {}", list(joined, " OR ", |n| format!("(a = {n} AND b = 'x{n}')"))),
    };
    match dice.below(5) {
        0..3 => Draft::read(select),
        3 => Draft::write(format!("CREATE VIEW d{} AS {select}", dice.below(9))),
        _ => Draft::write(format!("CREATE TABLE d{} AS {select}", dice.below(9))),
    }
}

fn tables(dice: &Dice, size: usize) -> Draft {
    let n = dice.below(9);
    match dice.below(9) {
        0 => Draft::write(format!("CREATE TABLE d{n} ({})", list(size, ",", |n| format!("c{n}")))),
        1 => Draft::write(format!(
            "CREATE TABLE d{n} (c0,{})",
            list(size.min(1999), ",", |n| format!("c{} AS (c{n}+1)", n + 1))
        )),
        2 => Draft::write(format!(
            "CREATE TABLE d{n} (a,{})",
            list(size, ",", |n| format!("UNIQUE (a,a,a) ON CONFLICT IGNORE, CHECK (a>{n})"))
        )),
        3 => Draft::write(format!(
            "CREATE TABLE d{n} (a,{})",
            list(size, ",", |_| format!("FOREIGN KEY (a) REFERENCES d{n} (a)"))
        )),
        4 => Draft::write(format!("CREATE INDEX d{n} ON t1 ({})", list(size, ",", |n| format!("a+{n}")))),
        5 => Draft::write(format!(
            "CREATE TRIGGER d{n} AFTER INSERT ON t3 BEGIN {} END",
            list(size, " ", |_| "DELETE FROM chain;".into())
        )),
        6 => Draft::write(format!("CREATE VIRTUAL TABLE d{n} USING fts5 ({})", list(size, ",", |n| format!("c{n}")))),
        7 => Draft::write(format!(
            "CREATE VIRTUAL TABLE d{n} USING rtree (id,{})",
            list(size.min(500), ",", |n| format!("c{n}"))
        )),
        _ => Draft::write(format!("INSERT INTO d{n} VALUES ({})", list(size, ",", |n| n.to_string()))),
    }
}

fn full_text(dice: &Dice, size: usize) -> Draft {
    let wild = size.min(10_000);
    let query = match dice.below(10) {
        0 => format!("'{}'", nest(size, "(", "fox", ")")),
        1 => format!("'{}'", list(size, " AND ", |_| "fox".into())),
        2 => format!("'{}'", list(size, " NOT ", |_| "fox".into())),
        3 => format!("'{}'", list(size, " OR ", |n| format!("w{n}*"))),
        4 => format!("'NEAR({}, {size})'", list(size, " ", |_| "fox".into())),
        5 => format!("'\"{}\"'", list(size, " ", |_| "quick".into())),
        6 => format!("'{}'", list(size, " + ", |_| "quick".into())),
        7 => format!("'{{{}}} : fox'", list(wild, " ", |_| "title".into())),
        8 => format!("'{}'", nest(wild, "title : (", "fox", ")")),
        _ => arguments::long(dice),
    };
    let table = dice.one(&["ft", "fx"]);
    match dice.below(9) {
        0..4 => Draft::read(format!("SELECT * FROM {table} WHERE {table} MATCH {query}")),
        4 => Draft::read(format!(
            "SELECT bm25(ft), snippet(ft, -1, '[', ']', '...', 64), highlight(ft, 1, '<', '>') FROM ft({query})"
        )),
        5 => Draft::read(format!("SELECT b FROM fx({query}) ORDER BY rank")),
        6 => Draft::write(format!("INSERT INTO ft (title, body) VALUES ({query}, {})", arguments::long(dice))),
        7 => {
            let order = dice.one(&[
                "optimize",
                "integrity-check",
                "rebuild",
                "delete-all",
                "merge",
                "pgsz",
                "crisismerge",
                "automerge",
                "rank",
                "secure-delete",
                "usermerge",
                "hashsize",
                "delete",
                "flush",
                "nonsense",
            ]);
            Draft::write(format!("INSERT INTO {table} ({table}, rank) VALUES ('{order}', {})", arguments::any(dice)))
        }
        _ => Draft::write(format!("DELETE FROM {table} WHERE {table} MATCH {query}")),
    }
}

/// Returns a statement with triggers, foreign keys or views that refer to each other many times.
fn chains(dice: &Dice) -> Draft {
    let n = dice.one(&[10, 400, 999, 1000, 1001, 1_000_000_000]);
    let (from, to) = (dice.below(12), dice.below(12));
    match dice.below(11) {
        0 => Draft::write(format!("INSERT INTO chain VALUES ({n})")),
        1 => Draft::write("DELETE FROM tree WHERE id = 1".to_owned()),
        2 => Draft::write(format!("UPDATE tree SET id = id + {n} WHERE id = 1")),
        3 => Draft::write(format!("UPDATE t1 SET a = a + {n}")),
        4 => Draft::write(format!("CREATE VIEW w{from} AS SELECT x.a FROM w{to} x, w{to} y")),
        5 => Draft::write(format!("CREATE VIEW w{from} AS SELECT a FROM t1 UNION ALL SELECT a FROM w{to}")),
        6 => Draft::read(format!("SELECT * FROM w{from}")),
        7 => Draft::write(format!(
            "CREATE TRIGGER w{from} AFTER INSERT ON pad BEGIN INSERT INTO pad SELECT b||b FROM pad; END"
        )),
        8 => Draft::write(format!("CREATE TRIGGER w{from} AFTER UPDATE ON t3 BEGIN UPDATE t3 SET v = v||v; END")),
        9 => Draft::write("UPDATE t3 SET v = 'x'".to_owned()),
        _ => Draft::write(format!(
            "CREATE TRIGGER w{from} AFTER DELETE ON tree BEGIN INSERT INTO tree VALUES (old.id, NULL); END"
        )),
    }
}

fn rows(dice: &Dice, size: usize) -> Draft {
    match dice.below(6) {
        0 => Draft {
            parameters: size,
            ..Draft::read(format!("SELECT {}", list(size.min(2000), ",", |n| format!("?{}", n + 1))))
        },
        1 => Draft {
            parameters: size,
            ..Draft::write(format!(
                "INSERT INTO pad(b) SELECT ?{size} IN ({})",
                list(size, ",", |n| format!("?{}", n + 1))
            ))
        },
        2 => Draft::write(format!("INSERT INTO pad(b) VALUES {}", list(size, ",", |n| format!("({n})")))),
        3 => Draft::write(format!(
            "INSERT INTO t3 VALUES (1, 2) {}",
            list(size.min(2001), " ", |n| format!("ON CONFLICT (k) WHERE v > {n} DO NOTHING"))
        )),
        4 => {
            Draft::write(format!("INSERT INTO t1 (b) VALUES (1) RETURNING {}", list(size, ",", |n| format!("b||{n}"))))
        }
        _ => Draft {
            parameters: 1,
            ..Draft::read(format!("SELECT ?{}", dice.one(&[1, 2, 32_766, 32_767, 2_147_483_647])))
        },
    }
}
