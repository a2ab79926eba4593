//! `select-stmt`, `common-table-expression`, `compound-operator`, `join-clause`, `table-or-subquery`, `result-column`.

use super::{Source, Walk};

/// The most columns of a result.
const WIDTH_MAX: u64 = 4;

impl Walk<'_> {
    pub(super) fn select(&mut self, depth: u64) -> String {
        let width = 1 + self.dice.below(WIDTH_MAX);
        self.select_of(depth, width)
    }

    /// Returns a query whose result has `width` columns.
    pub(super) fn select_of(&mut self, depth: u64, width: u64) -> String {
        let before = self.ctes.len();
        let with = self.maybe(15, |walk| walk.with(depth));
        let mut ended_by_values = false;
        let cores = if self.dice.chance(15) { 2 + self.dice.below(2) } else { 1 };
        let mut sql = with;
        for core in 0..cores {
            if core > 0 {
                sql.push_str(self.word(&[" UNION ", " UNION ALL ", " INTERSECT ", " EXCEPT "]));
            }
            let last = cores == 1;
            let core = self.core(depth, width, last);
            ended_by_values = core.starts_with("VALUES");
            sql.push_str(&core);
        }
        // Nothing may follow the rows of `VALUES`.
        if cores > 1 && !ended_by_values && self.dice.chance(50) {
            sql.push_str(&format!(" ORDER BY {}", 1 + self.dice.below(width)));
        }
        if !ended_by_values {
            sql.push_str(&self.limit(depth));
        }
        self.ctes.truncate(before);
        sql
    }

    pub(super) fn limit(&mut self, depth: u64) -> String {
        self.maybe(40, |walk| {
            let count = if walk.dice.chance(90) { walk.dice.below(20).to_string() } else { walk.expr(depth.min(1)) };
            let offset = walk.maybe(30, |walk| format!("{}{}", walk.word(&[" OFFSET ", ", "]), walk.dice.below(9)));
            format!(" LIMIT {count}{offset}")
        })
    }

    pub(super) fn with(&mut self, depth: u64) -> String {
        let recursive = self.word(&["", "RECURSIVE "]);
        let depth = depth.saturating_sub(1);
        let tables = self.some(2, |walk| {
            let name = walk.alias();
            let how = walk.word(&["", "", "MATERIALIZED ", "NOT MATERIALIZED "]);
            let width = 1 + walk.dice.below(3);
            let columns: Vec<String> = (0..width).map(|number| format!("c{number}")).collect();
            let list = columns.join(", ");
            let body = if recursive.is_empty() || walk.dice.chance(50) {
                walk.select_of(depth, width)
            } else {
                let first = walk.core(depth, width, false);
                let union = walk.word(&["UNION", "UNION ALL"]);
                let ordered = walk.word(&["", " ORDER BY 1"]);
                let next: Vec<String> = columns.iter().map(|column| format!("{column} + 1")).collect();
                let limit = walk.dice.one(&[1, 5, 50, 1000]);
                format!("{first} {union} SELECT {} FROM {name} WHERE c0 < 99{ordered} LIMIT {limit}", next.join(", "))
            };
            walk.ctes.push(Source { name: name.clone(), columns });
            format!("{name} ({list}) AS {how}({body})")
        });
        format!("WITH {recursive}{tables} ")
    }

    /// Returns one `SELECT` or `VALUES`. If it is the `last`, it may have an ORDER BY of its own.
    fn core(&mut self, depth: u64, width: u64, last: bool) -> String {
        let next = depth.saturating_sub(1);
        if self.dice.chance(8) {
            return format!(
                "VALUES {}",
                self.some(3, |walk| format!("({})", walk.times(width, |walk| walk.expr(next))))
            );
        }
        let mut sources = Vec::new();
        let from = self.maybe(92, |walk| format!(" FROM {}", walk.join(next, &mut sources)));
        self.with_sources(sources, |walk| walk.core_behind(&from, next, width, last))
    }

    fn core_behind(&mut self, from: &str, depth: u64, width: u64, last: bool) -> String {
        let named = self.dice.chance(10);
        let before = std::mem::replace(&mut self.windows, named);
        let distinct = self.word(&["", "", "", "", "DISTINCT ", "ALL "]);
        let columns = self.result(depth, width);
        let condition = self.maybe(60, |walk| format!(" WHERE {}", walk.expr(depth)));
        let group = self.maybe(20, |walk| {
            let by = walk.some(2, |walk| walk.expr(depth));
            format!(" GROUP BY {by}{}", walk.maybe(40, |walk| format!(" HAVING {}", walk.expr(depth))))
        });
        let windows = if named {
            let (first, second) = (self.window(depth), self.maybe(50, |walk| walk.window(depth)));
            // A window that is based on another must not repeat its clauses.
            let second =
                if self.dice.chance(20) { format!("w0 {}", self.word(&["", "ROWS 2 PRECEDING"])) } else { second };
            format!(" WINDOW w0 AS ({first}), w1 AS ({second})")
        } else {
            String::new()
        };
        let order =
            if last { self.maybe(35, |walk| format!(" ORDER BY {}", walk.ordering(depth))) } else { String::new() };
        self.windows = before;
        format!("SELECT {distinct}{columns}{from}{condition}{group}{windows}{order}")
    }

    fn result(&mut self, depth: u64, width: u64) -> String {
        if width > 2 && self.dice.chance(20) {
            let star = self.dice.pick(&self.sources).map(|source| format!("{}.*", source.name));
            return star.filter(|_| self.dice.chance(50)).unwrap_or_else(|| "*".to_owned());
        }
        self.times(width, |walk| {
            format!("{}{}", walk.expr(depth), walk.maybe(15, |walk| format!(" AS {}", walk.made())))
        })
    }

    /// Returns joined tables, and adds their names to `sources`.
    pub(super) fn join(&mut self, depth: u64, sources: &mut Vec<Source>) -> String {
        let mut sql = self.source(depth, sources);
        while self.dice.chance(30) && sources.len() < 4 {
            let operator = self.word(&[
                ", ",
                " JOIN ",
                " INNER JOIN ",
                " CROSS JOIN ",
                " LEFT JOIN ",
                " LEFT OUTER JOIN ",
                " RIGHT JOIN ",
                " FULL OUTER JOIN ",
                " NATURAL JOIN ",
                " NATURAL LEFT JOIN ",
            ]);
            let right = self.source(depth, sources);
            let plain = operator.starts_with(',') || operator.contains("NATURAL");
            let how = match self.dice.below(10) {
                0..6 if !plain => {
                    let on = self.with_sources(sources.clone(), |walk| walk.expr(depth.min(1)));
                    format!(" ON {on}")
                }
                6 | 7 if !plain => format!(" USING ({})", self.word(&["a", "b", "rowid", "a, b", "n"])),
                _ => String::new(),
            };
            sql = format!("{sql}{operator}{right}{how}");
        }
        sql
    }

    fn source(&mut self, depth: u64, sources: &mut Vec<Source>) -> String {
        let alias = self.alias();
        match self.dice.below(20) {
            0..2 if depth > 0 => {
                let width = 1 + self.dice.below(3);
                let columns: Vec<String> = (0..width).map(|number| format!("c{number}")).collect();
                let select = self.select_named(depth - 1, &columns);
                sources.push(Source { name: alias.clone(), columns });
                format!("({select}) AS {alias}")
            }
            2 => {
                let function =
                    self.word(&["json_each", "json_tree", "json_each", "pragma_table_info", "pragma_index_list"]);
                let named =
                    if function.starts_with("json") { ["key", "value", "type"] } else { ["name", "rowid", "oid"] };
                let columns = named.map(str::to_owned).to_vec();
                let argument = self.word(&["'[1,{\"a\":2}]'", "'t1'", "NULL", "'{}', '$'", "a"]);
                sources.push(Source { name: alias.clone(), columns });
                format!("{function}({argument}) AS {alias}")
            }
            3 if depth > 0 => format!("({})", self.join(depth - 1, sources)),
            4..8 if !self.ctes.is_empty() => {
                let index = self.dice.index(self.ctes.len());
                let cte = self.ctes[index].clone();
                sources.push(Source { name: alias.clone(), columns: cte.columns });
                format!("{} AS {alias}", cte.name)
            }
            8 if self.dice.chance(50) => {
                let made = self.made();
                sources.push(Source { name: alias.clone(), columns: vec!["a".to_owned(), "c0".to_owned()] });
                format!("{made} {alias}")
            }
            _ => {
                let table = self.table();
                sources.push(Source::of(table, &alias));
                let indexed = self.maybe(5, |_| match table.name {
                    "t1" => " INDEXED BY i1".to_owned(),
                    "t2" => " INDEXED BY i2".to_owned(),
                    _ => " NOT INDEXED".to_owned(),
                });
                format!("{}{} AS {alias}{indexed}", self.schema(), table.name)
            }
        }
    }

    /// Returns a query whose columns have these names.
    pub(super) fn select_named(&mut self, depth: u64, columns: &[String]) -> String {
        let mut sources = Vec::new();
        let from = self.join(depth, &mut sources);
        self.with_sources(sources, |walk| {
            let named: Vec<String> = columns.iter().map(|column| format!("{} AS {column}", walk.expr(depth))).collect();
            let condition = walk.maybe(40, |walk| format!(" WHERE {}", walk.expr(depth)));
            format!("SELECT {} FROM {from}{condition}{}", named.join(", "), walk.limit(depth))
        })
    }
}
