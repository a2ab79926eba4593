//! `expr`, `function-arguments`, `filter-clause`, `over-clause`, `window-defn`, `frame-spec`, `raise-function`.

use super::Walk;
use crate::hostile::run::schema::COLLATIONS;
use crate::hostile::run::statements::names;

/// Values.
const LITERALS: [&str; 26] = [
    "0",
    "1",
    "-1",
    "3",
    "42",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "-0.0",
    "1e308",
    "1e999",
    ".5e-3",
    "0xff",
    "1_000",
    "NULL",
    "TRUE",
    "FALSE",
    "''",
    "'a'",
    "'row 1'",
    "'12abc'",
    "x''",
    "x'00ff'",
    "CURRENT_TIME",
    "CURRENT_DATE",
    "CURRENT_TIMESTAMP",
];
const BINARY: [&str; 31] = [
    "||",
    "->",
    "->>",
    "*",
    "/",
    "%",
    "+",
    "-",
    "&",
    "|",
    "<<",
    ">>",
    "<",
    "<=",
    ">",
    ">=",
    "=",
    "==",
    "<>",
    "!=",
    "IS",
    "IS NOT",
    "IS DISTINCT FROM",
    "IS NOT DISTINCT FROM",
    "AND",
    "AND",
    "OR",
    "OR",
    "=",
    "<",
    "||",
];
const TYPES: [&str; 12] = [
    "TEXT",
    "INTEGER",
    "REAL",
    "BLOB",
    "NUMERIC",
    "ANY",
    "INT",
    "VARCHAR(10)",
    "DECIMAL(10, -5)",
    "DOUBLE PRECISION",
    "UNSIGNED BIG INT",
    "CHARINT",
];
/// Functions with the number of their arguments.
const SCALAR: [(&str, u64); 40] = [
    ("abs", 1),
    ("lower", 1),
    ("upper", 1),
    ("length", 1),
    ("octet_length", 1),
    ("typeof", 1),
    ("quote", 1),
    ("hex", 1),
    ("unhex", 1),
    ("unicode", 1),
    ("round", 2),
    ("substr", 3),
    ("instr", 2),
    ("replace", 3),
    ("trim", 2),
    ("ltrim", 1),
    ("coalesce", 2),
    ("ifnull", 2),
    ("nullif", 2),
    ("iif", 3),
    ("max", 2),
    ("min", 2),
    ("printf", 3),
    ("char", 2),
    ("like", 2),
    ("glob", 2),
    ("likely", 1),
    ("unlikely", 1),
    ("likelihood", 2),
    ("date", 2),
    ("datetime", 1),
    ("strftime", 2),
    ("julianday", 1),
    ("json", 1),
    ("json_extract", 2),
    ("json_set", 3),
    ("json_type", 1),
    ("jsonb", 1),
    ("random", 0),
    ("zeroblob", 1),
];
const AGGREGATE: [(&str, u64); 12] = [
    ("count", 1),
    ("count", 0),
    ("sum", 1),
    ("total", 1),
    ("avg", 1),
    ("min", 1),
    ("max", 1),
    ("group_concat", 2),
    ("string_agg", 2),
    ("json_group_array", 1),
    ("json_group_object", 2),
    ("jsonb_group_array", 1),
];
const WINDOW: [(&str, u64); 11] = [
    ("row_number", 0),
    ("rank", 0),
    ("dense_rank", 0),
    ("percent_rank", 0),
    ("cume_dist", 0),
    ("ntile", 1),
    ("lag", 3),
    ("lead", 2),
    ("first_value", 1),
    ("last_value", 1),
    ("nth_value", 2),
];

impl Walk<'_> {
    pub(super) fn expr(&mut self, depth: u64) -> String {
        if depth == 0 || self.dice.chance(25) {
            return self.leaf();
        }
        let next = depth - 1;
        let e = |walk: &mut Self| walk.expr(next);
        match self.dice.below(32) {
            0..8 => format!("{} {} {}", e(self), self.word(&BINARY), e(self)),
            8 => format!("{} {}", self.word(&["-", "+", "~", "NOT"]), e(self)),
            9..11 => format!("({})", e(self)),
            11..15 => self.scalar(next),
            15 => self.aggregate(next),
            16 => self.window_function(next),
            17 => format!("CAST({} AS {})", e(self), self.word(&TYPES)),
            18 => format!("{} COLLATE {}", e(self), self.word(COLLATIONS)),
            19 => self.pattern(next),
            20 => format!("{} {}", e(self), self.word(&["ISNULL", "NOTNULL", "NOT NULL", "IS NULL", "IS TRUE"])),
            21 => format!("{} {}BETWEEN {} AND {}", e(self), self.word(&["", "NOT "]), e(self), e(self)),
            22..24 => self.inside(next),
            24 => format!("{}EXISTS ({})", self.word(&["", "NOT "]), self.select(next)),
            25 => format!("({})", self.select_of(next, 1)),
            26..28 => self.case(next),
            28 => self.row_value(next),
            _ => self.leaf(),
        }
    }

    fn leaf(&mut self) -> String {
        match self.dice.below(100) {
            0..55 => self.column(),
            55..96 => self.word(&LITERALS).to_owned(),
            96 => {
                self.parameters += 1;
                format!("?{}", self.parameters)
            }
            97 => format!("\"{}\"", self.word(&["a", "b", "nowhere", "rowid"])),
            98 if self.dice.chance(40) => names::name(self.dice),
            99 if self.trigger || self.dice.chance(20) => format!(
                "raise({})",
                self.word(&["IGNORE", "ABORT, 'no'", "FAIL, 'no'", "ROLLBACK, b", "ABORT, 1 || 2"])
            ),
            _ => self.column(),
        }
    }

    pub(super) fn column(&mut self) -> String {
        let Some(source) = self.dice.pick(&self.sources) else { return self.word(&LITERALS).to_owned() };
        let column = self.dice.pick(&source.columns).map_or("rowid", String::as_str);
        if self.dice.chance(75) { format!("{}.{column}", source.name) } else { column.to_owned() }
    }

    fn arguments(&mut self, count: u64, depth: u64) -> String {
        let count = if self.dice.chance(3) { self.dice.below(5) } else { count };
        self.times(count, |walk| walk.expr(depth))
    }

    fn scalar(&mut self, depth: u64) -> String {
        let (name, count) = self.dice.one(&SCALAR);
        format!("{name}({})", self.arguments(count, depth))
    }

    fn aggregate(&mut self, depth: u64) -> String {
        let (name, count) = self.dice.one(&AGGREGATE);
        let mut arguments = self.arguments(count, depth);
        if name == "count" && count == 0 {
            arguments = "*".to_owned();
        } else if self.dice.chance(20) {
            arguments = format!("DISTINCT {arguments}");
        }
        let order = self.maybe(15, |walk| format!(" ORDER BY {}", walk.ordering(depth)));
        let filter = self.filter(depth);
        let over = self.maybe(20, |walk| walk.over(depth));
        format!("{name}({arguments}{order}){filter}{over}")
    }

    fn window_function(&mut self, depth: u64) -> String {
        let (name, count) = self.dice.one(&WINDOW);
        let arguments = self.arguments(count, depth);
        let filter = self.maybe(5, |walk| walk.filter(depth));
        format!("{name}({arguments}){filter}{}", self.over(depth))
    }

    fn filter(&mut self, depth: u64) -> String {
        self.maybe(20, |walk| format!(" FILTER (WHERE {})", walk.expr(depth)))
    }

    fn over(&mut self, depth: u64) -> String {
        if self.windows && self.dice.chance(40) {
            return format!(" OVER {}", self.word(&["w0", "w1"]));
        }
        format!(" OVER ({})", self.window(depth))
    }

    /// Returns a window without its parentheses.
    pub(super) fn window(&mut self, depth: u64) -> String {
        let partition = self.maybe(40, |walk| format!("PARTITION BY {} ", walk.some(2, |walk| walk.expr(depth))));
        let order = self.maybe(70, |walk| format!("ORDER BY {} ", walk.ordering(depth)));
        format!("{partition}{order}{}", self.maybe(60, |walk| walk.frame(depth)))
    }

    fn frame(&mut self, depth: u64) -> String {
        let unit = self.word(&["RANGE", "ROWS", "GROUPS"]);
        // Avoid most frames that end before they begin, which SQLite refuses.
        let (first, last) = match self.dice.below(6) {
            0 => ("UNBOUNDED PRECEDING".to_owned(), "CURRENT ROW".to_owned()),
            1 => ("CURRENT ROW".to_owned(), "UNBOUNDED FOLLOWING".to_owned()),
            2 if unit != "RANGE" => (self.edge(depth, "PRECEDING"), self.edge(depth, "FOLLOWING")),
            3 if unit != "RANGE" => (self.edge(depth, "PRECEDING"), self.edge(depth, "PRECEDING")),
            4 => (self.edge(depth, "FOLLOWING"), self.edge(depth, "FOLLOWING")),
            _ => ("UNBOUNDED PRECEDING".to_owned(), "UNBOUNDED FOLLOWING".to_owned()),
        };
        let single = self.dice.chance(20) && !first.ends_with("FOLLOWING");
        let frame = if single { first } else { format!("BETWEEN {first} AND {last}") };
        let exclude = ["EXCLUDE NO OTHERS", "EXCLUDE CURRENT ROW", "EXCLUDE GROUP", "EXCLUDE TIES", "", ""];
        format!("{unit} {frame} {}", self.word(&exclude))
    }

    fn edge(&mut self, depth: u64, way: &str) -> String {
        let numbers = ["1", "3", "0", "2", "1000000000", "2.5", "-1"];
        let offset = if self.dice.chance(10) { self.expr(depth) } else { self.word(&numbers).to_owned() };
        format!("{offset} {way}")
    }

    fn pattern(&mut self, depth: u64) -> String {
        let operator = self.word(&["LIKE", "LIKE", "LIKE", "LIKE", "GLOB", "GLOB", "GLOB", "REGEXP", "MATCH"]);
        let not = self.word(&["", "NOT "]);
        let escape = self.maybe(10, |walk| format!(" ESCAPE {}", walk.word(&["'\\'", "'%'", "'_'", "'ab'", "NULL"])));
        format!("{} {not}{operator} {}{escape}", self.expr(depth), self.expr(depth))
    }

    fn inside(&mut self, depth: u64) -> String {
        let not = self.word(&["", "NOT "]);
        let set = match self.dice.below(6) {
            0 => "()".to_owned(),
            1 | 2 => format!("({})", self.some(4, |walk| walk.expr(depth))),
            3 => format!("({})", self.select_of(depth, 1)),
            4 => self.word(&["pad", "chain", "main.pad", "main.chain", "nowhere"]).to_owned(),
            _ => format!("(SELECT value FROM json_each({}))", self.expr(depth)),
        };
        format!("{} {not}IN {set}", self.expr(depth))
    }

    fn case(&mut self, depth: u64) -> String {
        let base = self.maybe(40, |walk| walk.expr(depth));
        let count = 1 + self.dice.below(3);
        let whens: Vec<String> =
            (0..count).map(|_| format!("WHEN {} THEN {}", self.expr(depth), self.expr(depth))).collect();
        let otherwise = self.maybe(60, |walk| format!("ELSE {}", walk.expr(depth)));
        format!("CASE {base} {} {otherwise} END", whens.join(" "))
    }

    fn row_value(&mut self, depth: u64) -> String {
        let width = 2 + self.dice.below(2);
        let left = self.times(width, |walk| walk.expr(depth));
        let operator = self.word(&["=", "<", ">=", "IS", "<>", "IN", "BETWEEN"]);
        let other = self.times(width, |walk| walk.expr(depth));
        match operator {
            "IN" => format!("({left}) IN ({})", self.select_of(depth, width)),
            "BETWEEN" => format!("({left}) BETWEEN ({other}) AND ({left})"),
            _ => format!("({left}) {operator} ({other})"),
        }
    }

    /// Returns the terms after `ORDER BY`.
    pub(super) fn ordering(&mut self, depth: u64) -> String {
        self.some(3, |walk| {
            let collate = walk.maybe(15, |walk| format!(" COLLATE {}", walk.word(COLLATIONS)));
            let (way, nulls) =
                (walk.word(&["", "", " ASC", " DESC"]), walk.word(&["", "", " NULLS FIRST", " NULLS LAST"]));
            format!("{}{collate}{way}{nulls}", walk.expr(depth))
        })
    }

    pub(super) fn type_name(&self) -> &'static str {
        self.word(&TYPES)
    }
}
