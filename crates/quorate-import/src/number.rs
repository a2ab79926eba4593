//! Texts that SQLite converts to numbers.
//!
//! A column with a numeric affinity converts such texts. `17` and `-2.5` lose nothing by that, but `007` loses its
//! zeros, and a number that is too long for a float loses digits. Types are inferred, and later values accepted, only
//! where nothing is lost.

/// Decimal digits that a float always keeps.
const REAL_DIGITS_MAX: usize = 15;

/// A float holds every integer up to this one exactly.
const REAL_INTEGER_MAX: u64 = 1 << 53;

/// What SQLite makes of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// An integer, spelled as SQLite spells it.
    Integer(i64),
    /// A decimal number whose digits a float keeps.
    Real,
    /// A number that SQLite would spell differently: with leading zeros, a plus sign, spaces or too many digits.
    Odd,
    /// Not a number.
    Text,
}

impl Shape {
    /// The shape of a text.
    pub fn of(text: &str) -> Self {
        // The common cases come first: texts that do not begin like a number, and short integers.
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

/// The integer that SQLite spells like this.
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

/// A decimal number in the syntax that SQLite accepts.
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

    /// Whether a float keeps all of it.
    fn is_plain(&self) -> bool {
        let digits = self.whole.len().saturating_add(self.fraction.map_or(0, str::len));
        let padded = self.whole.len() > 1 && self.whole.starts_with('0');
        !self.plus && !self.whole.is_empty() && self.fraction != Some("") && !padded && digits <= REAL_DIGITS_MAX
    }
}

/// The digits at the beginning of a text, and the rest.
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

    /// The value that a column stores.
    fn stored(conn: &Connection, column: &str, value: &Value) -> Value {
        conn.execute("DELETE FROM t", ()).unwrap();
        conn.execute(&format!("INSERT INTO t ({column}) VALUES (?)"), (value,)).unwrap();
        conn.query_row(&format!("SELECT {column} FROM t"), (), |row| row.get(0)).unwrap()
    }

    proptest! {
        /// A shape predicts what SQLite stores: integers become integers, and only odd texts change.
        #[test]
        fn shapes_predict_what_affinities_do(text in "[ +-]?[0-9]{0,20}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,2})?[ a]?") {
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
    fn a_text_that_would_change_is_odd() {
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
