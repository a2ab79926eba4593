//! SQL literals and names that every version of SQLite reads back exactly.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use quorate::Value;

use crate::keywords::is_keyword;

/// Up to this many digits, with a small exponent of the last digit, are read exactly by every SQLite, since both are
/// exact in a double. A SQLite that computes with 64 bits reads them exactly unless they are half-way between two
/// doubles.
const DIGITS_EXACT: usize = 15;
const EXPONENTS_EXACT: RangeInclusive<i32> = -22..=22;

/// How far from a double such digits may be, in hundredths of the distance between two doubles.
const DISTANCE_MAX: u128 = 49;

/// Digits that suffice to compute that distance.
const DIGITS_TELLING: usize = 25;

/// This many digits, with such an exponent of the first digit, are read without rounding: the reader has them and the
/// power of ten exactly in the 64 bits that it computes with.
const DIGITS_SURE: usize = 19;
const EXPONENTS_SURE: RangeInclusive<i32> = -5..=15;

/// Explicit bits of a double's fraction.
const FRACTION_BITS: u32 = 52;

/// The literal of a value.
pub fn value(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) => real(*value),
        Value::Text(value) => text(value.as_bytes()),
        Value::Blob(bytes) => blob(bytes),
    }
}

/// The literal of a text, whose bytes need not be UTF-8. A text with characters that shells, editors and terminals
/// might change is written as bytes.
pub fn text(bytes: &[u8]) -> String {
    let is_plain = |text: &&str| !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    match std::str::from_utf8(bytes).ok().filter(is_plain) {
        Some(text) => quoted(text),
        None => format!("CAST({} AS TEXT)", blob(bytes)),
    }
}

/// A text between quotes, nothing else changed.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The literal of a blob.
pub fn blob(bytes: &[u8]) -> String {
    format!("X'{}'", hex(bytes))
}

/// Upper-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

/// The literal of a float; it is never read as an integer.
///
/// Not every version of SQLite reads decimals exactly, but the arithmetic of all is exact. So where a reader might
/// round, the number is written as a whole number that is multiplied or divided by powers of two.
pub fn real(value: f64) -> String {
    if value.is_nan() {
        return "NULL".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "1e999" } else { "-1e999" }.to_owned();
    }
    let short = format!("{value:?}");
    let (digits, exponent) = decimal(value, None);
    let last = exponent.saturating_sub(i32::try_from(digits.len()).unwrap_or(0)).saturating_add(1);
    let is_exact = digits.len() <= DIGITS_EXACT && EXPONENTS_EXACT.contains(&last);
    if value == 0.0 || is_exact && is_near(value, &digits, exponent) {
        short
    } else if EXPONENTS_SURE.contains(&exponent) {
        let (digits, exponent) = decimal(value, Some(DIGITS_SURE));
        format!("{}{}", if value < 0.0 { "-" } else { "" }, plain(&digits, exponent))
    } else {
        product(value)
    }
}

/// The digits of a number without trailing zeros, and the decimal exponent of the first digit: as few digits as
/// distinguish it from its neighbours, or `digits` of them.
fn decimal(value: f64, digits: Option<usize>) -> (String, i32) {
    let text = match digits {
        None => format!("{value:e}"),
        Some(digits) => format!("{value:.*e}", digits.saturating_sub(1)),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    (digits.trim_end_matches('0').to_owned(), exponent.parse().unwrap_or(0))
}

/// Whether the digits are so near to the number that rounding twice gives it too.
fn is_near(value: f64, digits: &str, exponent: i32) -> bool {
    let scaled = |digits: &str| format!("{digits:0<DIGITS_TELLING$}").parse::<u128>().ok();
    let (number, of_number) = decimal(value, Some(DIGITS_TELLING));
    let (next, of_next) = decimal(value.abs().next_up(), Some(DIGITS_TELLING));
    let (Some(digits), Some(number), Some(next)) = (scaled(digits), scaled(&number), scaled(&next)) else {
        return false;
    };
    let (distance, between) = (digits.abs_diff(number), next.abs_diff(number));
    let is_comparable = of_number == exponent && of_next == exponent;
    is_comparable && distance.saturating_mul(100) < between.saturating_mul(DISTANCE_MAX)
}

/// Digits with their point.
fn plain(digits: &str, exponent: i32) -> String {
    let zeros = "0".repeat(usize::try_from(-exponent).unwrap_or(0));
    let digits = format!("{zeros}{digits}");
    let point = usize::try_from(exponent.max(0)).unwrap_or(0).saturating_add(1);
    let whole: String = digits.chars().chain(std::iter::repeat('0')).take(point).collect();
    let fraction = digits.get(point..).filter(|fraction| !fraction.is_empty()).unwrap_or("0");
    format!("{whole}.{fraction}")
}

/// A whole number that is multiplied or divided by powers of two. Each step is exact.
fn product(value: f64) -> String {
    let bits = value.to_bits();
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let stored = i32::try_from((bits >> FRACTION_BITS) & 0x7ff).unwrap_or(0);
    // A subnormal number has the exponent of the smallest normal one.
    let whole = if stored == 0 { fraction } else { fraction | 1 << FRACTION_BITS };
    let mut exponent = stored.max(1).saturating_sub(1023 + FRACTION_BITS as i32);
    let mut text = format!("{}{whole}.0", if value < 0.0 { "-" } else { "" });
    while exponent != 0 {
        let step = exponent.unsigned_abs().min(FRACTION_BITS);
        let (sign, step_back) = if exponent < 0 { ('/', step as i32) } else { ('*', -(step as i32)) };
        text.push_str(&format!("{sign}{}.0", 1_u64 << step));
        exponent = exponent.saturating_add(step_back);
    }
    text
}

/// A name, quoted if necessary.
pub fn name(name: &str) -> String {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_plain = starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !is_keyword(name);
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests;
