//! Builds the text of a statement with its parameters, and random expressions.
//!
//! Invariant: everything is added from left to right, so the parameters are in the order of their places.

use quorate::Value;
use quorate::sql::{Param, Statement};

use super::super::unit::Call;
use super::Dice;
use super::values::literal;

/// A statement that is being built.
pub struct Text<'a> {
    dice: &'a Dice,
    sql: String,
    params: Vec<Value>,
    /// Whether values may be parameters, which they can't be in text that the schema keeps.
    binds: bool,
    named: bool,
}

/// Operators between two values.
const BINARY: [&str; 14] = ["+", "-", "*", "/", "%", "||", "<", "<=", "=", "<>", "IS", "IS NOT", "&", "<<"];
/// Functions of one argument that always succeed.
const UNARY: [&str; 14] = [
    "length",
    "typeof",
    "hex",
    "quote",
    "upper",
    "lower",
    "unicode",
    "trim",
    "sign",
    "json_valid",
    "likely",
    "-",
    "~",
    "NOT ",
];
/// Functions of one argument that fail for some values.
const FRAGILE: [&str; 3] = ["abs", "json_quote", "json_array_length"];
/// Types of CAST.
const TYPES: [&str; 5] = ["INTEGER", "REAL", "TEXT", "BLOB", "NUMERIC"];
/// Comparisons.
const COMPARISONS: [&str; 8] = ["=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT"];

impl<'a> Text<'a> {
    /// Begins a statement whose values may be parameters.
    pub fn new(dice: &'a Dice) -> Self {
        let named = dice.chance(10);
        Self { dice, sql: String::new(), params: Vec::new(), binds: true, named }
    }

    /// Begins a statement without parameters.
    pub fn bare(dice: &'a Dice) -> Self {
        Self { dice, sql: String::new(), params: Vec::new(), binds: false, named: false }
    }

    /// Adds a text.
    pub fn add(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.sql.push_str(text.as_ref());
        self
    }

    /// Adds a value as a parameter or as a literal.
    pub fn value(&mut self, value: Value) -> &mut Self {
        if !self.binds || self.dice.chance(40) {
            return self.add(literal(&value));
        }
        if self.named {
            let name = format!(":p{}", self.params.len());
            self.add(name);
        } else {
            self.add("?");
        }
        self.params.push(value);
        self
    }

    /// Adds a list, separated by commas.
    pub fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) -> &mut Self {
        for (place, item) in items.into_iter().enumerate() {
            if place > 0 {
                self.add(", ");
            }
            each(self, item);
        }
        self
    }

    /// Adds an expression over some columns.
    pub fn expression(&mut self, columns: &[String], depth: usize) -> &mut Self {
        if depth == 0 || self.dice.chance(30) {
            return if self.dice.chance(60) { self.column(columns) } else { self.value(self.dice.value()) };
        }
        let inner = depth - 1;
        match self.dice.below(12) {
            0..4 => {
                self.add("(").expression(columns, inner);
                let operator = self.dice.one(&BINARY);
                self.add(format!(" {operator} ")).expression(columns, inner).add(")")
            }
            4..7 => {
                let function = self.dice.one(&UNARY);
                self.add(format!("{function}(")).expression(columns, inner).add(")")
            }
            7 => {
                self.add("CAST(").expression(columns, inner);
                let to = self.dice.one(&TYPES);
                self.add(format!(" AS {to})"))
            }
            8 => {
                self.add("CASE WHEN ").predicate(columns, inner);
                self.add(" THEN ").expression(columns, inner).add(" ELSE ").expression(columns, inner).add(" END")
            }
            9 => self.of_two("coalesce(", columns, inner),
            10 if self.dice.chance(10) => {
                let function = self.dice.one(&FRAGILE);
                self.add(format!("{function}(")).expression(columns, inner).add(")")
            }
            10 => self.of_two(self.dice.one(&["nullif(", "max(", "min(", "instr(", "ifnull("]), columns, inner),
            _ => {
                let (start, length) = (self.dice.number(5) - 2, self.dice.number(6));
                self.add("substr(").expression(columns, inner).add(format!(", {start}, {length})"))
            }
        }
    }

    fn of_two(&mut self, begin: &str, columns: &[String], depth: usize) -> &mut Self {
        self.add(begin).expression(columns, depth).add(", ").expression(columns, depth).add(")")
    }

    /// Adds a condition over some columns.
    pub fn predicate(&mut self, columns: &[String], depth: usize) -> &mut Self {
        let dice = self.dice;
        match dice.below(10) {
            0 => self.column(columns).add(dice.one(&[" IS NULL", " IS NOT NULL"])),
            1 => {
                self.column(columns).add(dice.one(&[" IN (", " NOT IN ("]));
                let count = 1 + dice.below(4);
                self.list(0..count, |text, _| {
                    text.value(dice.value());
                });
                self.add(")")
            }
            2 => {
                self.column(columns).add(" BETWEEN ").value(dice.value());
                self.add(" AND ").value(dice.value())
            }
            3 => {
                let pattern = dice.one(&["%a%", "t1%", "_", "%", "", "A%"]);
                self.column(columns).add(dice.one(&[" LIKE ", " NOT LIKE "])).value(pattern.into())
            }
            4 => self.column(columns).add(" GLOB ").value(dice.one(&["*a*", "t[0-4]", "?", "*"]).into()),
            5 if depth > 0 => {
                self.add("(").predicate(columns, depth - 1).add(dice.one(&[" AND ", " OR "]));
                self.predicate(columns, depth - 1).add(")")
            }
            6 if depth > 0 => self.add("NOT (").predicate(columns, depth - 1).add(")"),
            7 => {
                self.add("typeof(").column(columns);
                self.add(format!(") = '{}'", dice.one(&["null", "integer", "real", "text", "blob"])))
            }
            _ => {
                self.expression(columns, depth);
                let comparison = dice.one(&COMPARISONS);
                self.add(format!(" {comparison} ")).value(dice.value())
            }
        }
    }

    fn column(&mut self, columns: &[String]) -> &mut Self {
        match columns {
            [] => self.add("NULL"),
            _ => self.add(&columns[self.dice.index(columns.len())]),
        }
    }

    /// Returns the text alone.
    pub fn text(self) -> String {
        self.sql
    }

    /// Returns the statement.
    pub fn call(self) -> Call {
        let names =
            if self.named { (0..self.params.len()).map(|number| format!(":p{number}")).collect() } else { vec![] };
        Statement { sql: self.sql.into(), params: self.params.into_iter().map(Param::Value).collect(), names }
    }
}
