//! Generates values of all storage classes, ordinary ones and edge cases, and their SQL literals.

use std::fmt::Write as _;

use quorate::Value;

use super::Dice;

/// Values below this are likely to repeat, as keys do.
const SMALL: u64 = 40;
/// Values below this seldom repeat.
const WIDE: u64 = 5000;
/// The longest blob of random bytes.
const BLOB_BYTES: usize = 24;

const INTEGERS: [i64; 16] = [
    0,
    1,
    -1,
    2,
    7,
    13,
    42,
    255,
    -128,
    i32::MAX as i64,
    1 << 53,
    (1 << 53) + 1,
    1_000_000_007,
    i64::MIN,
    i64::MAX,
    i64::MAX - 1,
];

const REALS: [f64; 18] = [
    0.0,
    -0.0,
    1.0,
    1.5,
    -2.25,
    0.1,
    1e10,
    1e-10,
    123_456_789.125,
    9_007_199_254_740_993.0,
    9.223_372_036_854_776e18,
    -9.223_372_036_854_776e18,
    1e308,
    f64::MAX,
    f64::MIN_POSITIVE,
    5e-324,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

const TEXTS: [&str; 26] = [
    "",
    "a",
    "A",
    "abc",
    "ABC ",
    "b ",
    "tea",
    "\u{fc}",
    "\u{dc}n\u{ef}c\u{f6}d\u{e9}",
    "\u{65e5}\u{672c}\u{8a9e}",
    "\u{1f600}",
    "e\u{301}",
    "nul\0inside",
    "\0",
    "12",
    " 12 ",
    "12.5",
    "1e3",
    "-0",
    "0x10",
    "9223372036854775807",
    "9223372036854775808",
    "it's",
    "\"q\" %_",
    "[1, 2, {\"a\": null}]",
    "{\"a\": [1.5, \"x\"]}",
];

/// The words in texts for FTS5.
const WORDS: [&str; 8] = ["one", "two", "three", "r\u{e9}sum\u{e9}", "tea", "leader", "kill", "row"];

impl Dice {
    /// Returns a value of any class.
    pub fn value(&self) -> Value {
        match self.below(20) {
            0..2 => Value::Null,
            2..9 => self.integer(),
            9..12 => self.real(),
            12..17 => self.text(),
            _ => self.blob(),
        }
    }

    pub fn integer(&self) -> Value {
        Value::Integer(match self.below(10) {
            0..5 => self.small(),
            5..8 => self.number(WIDE),
            _ => self.one(&INTEGERS),
        })
    }

    pub fn real(&self) -> Value {
        if self.chance(50) { Value::Real(self.one(&REALS)) } else { Value::Real(f64_of(self.number(WIDE)) / 8.0) }
    }

    pub fn text(&self) -> Value {
        let text = if self.chance(60) { self.one(&TEXTS).to_owned() } else { format!("t{}", self.small()) };
        Value::Text(text)
    }

    pub fn blob(&self) -> Value {
        let mut bytes = vec![0; self.index(BLOB_BYTES)];
        self.0.fill(&mut bytes);
        Value::from(match self.below(4) {
            0 => b"abc".to_vec(),
            1 => Vec::new(),
            _ => bytes,
        })
    }

    /// Returns a number that is likely to repeat.
    pub fn small(&self) -> i64 {
        self.number(SMALL)
    }

    pub fn number(&self, below: u64) -> i64 {
        i64::try_from(self.below(below)).unwrap_or_default()
    }

    /// Returns a few words.
    pub fn words(&self) -> String {
        let words: Vec<&str> = (0..=self.below(4)).map(|_| self.one(&WORDS)).collect();
        words.join(" ")
    }

    /// Returns one of the words.
    pub fn word(&self) -> &'static str {
        self.one(&WORDS)
    }
}

fn f64_of(number: i64) -> f64 {
    i32::try_from(number).map_or(0.0, f64::from)
}

/// Returns the SQL literal of a value.
pub fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) if value.is_infinite() => if *value > 0.0 { "9e999" } else { "-9e999" }.to_owned(),
        Value::Real(value) => format!("{value:?}"),
        // A literal can't hold a NUL, which ends the statement.
        Value::Text(text) if text.contains('\0') => format!("CAST({} AS TEXT)", hex(text.as_bytes())),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Blob(bytes) => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = "x'".to_owned();
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text + "'"
}
