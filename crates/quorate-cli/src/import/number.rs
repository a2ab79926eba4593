//! Texts that SQLite would take for numbers.
//!
//! A column with a numeric affinity makes numbers of such texts. That loses nothing of `17` and `-2.5`, but the zeros
//! of
//! `007`, and digits of what is too long for a float. Types are chosen, and later values judged, by the difference.

/// Decimal digits that a float keeps, whatever they are.
const REAL_DIGITS_MAX: usize = 15;

/// The largest integers that a float holds exactly, each of them.
const REAL_INTEGER_MAX: u64 = 1 << 53;

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// An integer, written as SQLite writes it.
    Integer(i64),
    /// A decimal number of which a float keeps every digit.
    Real,
    /// SQLite takes it for a number, and would write another text for it: leading zeros or signs, spaces, too many
    /// digits.
    Odd,
    /// No number.
    Text,
}

impl Shape {
    /// The shape of a text.
    pub fn of(text: &str) -> Self {
        // Nearly all texts end here: those that begin like no number, and short integers.
        if !text.starts_with(|first: char| first.is_ascii_digit() || " \t\n\u{b}\u{c}\r+-.".contains(first)) {
            return Self::Text;
        }
        if let Some(integer) = integer(text) {
            return Self::Integer(integer);
        }
        match Decimal::of(text) {
            Some(decimal) if decimal.is_plain() => Self::Real,
            Some(_) => Self::Odd,
            None => match Decimal::of(text.trim_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r'])) {
                Some(_) => Self::Odd,
                None => Self::Text,
            },
        }
    }

    /// Whether a column of floats would change it.
    pub fn is_lost_as_real(self) -> bool {
        match self {
            Self::Integer(integer) => integer.unsigned_abs() > REAL_INTEGER_MAX,
            Self::Odd => true,
            Self::Real | Self::Text => false,
        }
    }
}

/// The integer that SQLite would write so.
pub fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    match digits.as_bytes() {
        [b'0'] if !negative => Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {
            let mut value = 0_u64;
            for byte in digits.bytes() {
                if !byte.is_ascii_digit() {
                    return None;
                }
                value = value * 10 + u64::from(byte - b'0');
            }
            if negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
        }
        _ => None,
    }
}

/// A decimal number, as SQLite reads it.
struct Decimal<'a> {
    plus: bool,
    whole: &'a str,
    fraction: Option<&'a str>,
}

impl<'a> Decimal<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (plus, rest) = match text.strip_prefix('+') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('-').unwrap_or(text)),
        };
        let (whole, rest) = digits(rest);
        let (fraction, rest) = match rest.strip_prefix('.').map(digits) {
            Some((fraction, rest)) => (Some(fraction), rest),
            None => (None, rest),
        };
        if whole.is_empty() && fraction.unwrap_or_default().is_empty() {
            return None;
        }
        let rest = match rest.strip_prefix(['e', 'E']) {
            Some(exponent) => match digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)) {
                ("", _) => return None,
                (_, rest) => rest,
            },
            None => rest,
        };
        rest.is_empty().then_some(Self { plus, whole, fraction })
    }

    /// Whether a float keeps all of it that somebody may have meant.
    fn is_plain(&self) -> bool {
        let digits = self.whole.len().saturating_add(self.fraction.map_or(0, str::len));
        let padded = self.whole.len() > 1 && self.whole.starts_with('0');
        !self.plus && !self.whole.is_empty() && self.fraction != Some("") && !padded && digits <= REAL_DIGITS_MAX
    }
}

/// The digits that a text begins with, and the rest of it.
fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;
    use rusqlite::Connection;
    use rusqlite::types::Value;

    use super::*;

    /// What a column makes of a text.
    fn stored(conn: &Connection, column: &str, value: &Value) -> Value {
        conn.execute("DELETE FROM t", ()).unwrap();
        conn.execute(&format!("INSERT INTO t ({column}) VALUES (?)"), (value,)).unwrap();
        conn.query_row(&format!("SELECT {column} FROM t"), (), |row| row.get(0)).unwrap()
    }

    proptest! {
        /// A shape says what SQLite does: integers are sent as such, and only odd texts are changed.
        #[test]
        fn shapes_foretell_what_affinities_do(text in "[ +-]?[0-9]{0,20}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,2})?[ a]?") {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch("CREATE TABLE t (i INTEGER, r REAL)").unwrap();
            let as_text = Value::Text(text.clone());
            for column in ["i", "r"] {
                let found = stored(&conn, column, &as_text);
                match Shape::of(&text) {
                    Shape::Integer(integer) => {
                        prop_assert_eq!(stored(&conn, column, &Value::Integer(integer)), found);
                        prop_assert_eq!(integer.to_string(), text.as_str());
                    }
                    Shape::Real => prop_assert!(!matches!(found, Value::Text(_))),
                    Shape::Text => prop_assert_eq!(found, as_text.clone()),
                    Shape::Odd => {}
                }
            }
        }
    }

    #[test]
    fn what_would_be_lost_is_odd() {
        for text in ["007", "+1", " 1", "1 ", ".5", "5.", "00.5", "12345678901234567890", "0.1234567890123456", "-0012"]
        {
            assert_eq!(Shape::of(text), Shape::Odd, "{text}");
        }
        for text in ["1.5", "-0", "0.25", "1e3", "-12.50", "0e0"] {
            assert_eq!(Shape::of(text), Shape::Real, "{text}");
        }
        for text in ["", "-", "1a", "2013-01-01", "1e", "0x10", "1.2.3", "nan", "Infinity", "é"] {
            assert_eq!(Shape::of(text), Shape::Text, "{text}");
        }
        assert_eq!(Shape::of("-9223372036854775808"), Shape::Integer(i64::MIN));
        assert!(Shape::of("9007199254740993").is_lost_as_real());
    }
}
