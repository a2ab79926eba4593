//! Numbers as Redis writes them.

use crate::KeysError;

/// The most digits of a number that is added exactly, of all and after the point.
const DIGITS_MAX: u32 = 30;

/// The digits after the point that are written.
const WRITTEN_DIGITS: u32 = 17;

/// The most bytes of a number.
const NUMBER_BYTES_MAX: usize = 512;

/// Reads an integer that is written without a plus sign or leading zeros.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = digits.first().is_some_and(|first| first.is_ascii_digit() && (*first != b'0' || text == b"0"));
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// # Errors
///
/// [`KeysError::NotFloat`] and [`KeysError::Infinite`], if a text is not a finite decimal number.
pub(crate) fn check_decimal(text: &[u8]) -> Result<(), KeysError> {
    let text = decimal_text(text).ok_or(KeysError::NotFloat)?;
    // Only words are infinite.
    if text.contains(|c: char| c.is_ascii_digit()) { Ok(()) } else { Err(KeysError::Infinite) }
}

/// Adds a decimal number to another one, and writes the sum without exponent or superfluous zeros.
///
/// Numbers of up to 30 digits are added exactly, and the sum is rounded to 17 digits after the point; others are added
/// as doubles. So 0.1 and 0.2 are 0.3, as in Redis, which rounds sums of 80 bits to as many digits.
///
/// # Errors
///
/// `not_float` if `number` is none, [`KeysError::NotFloat`] if `by` is none, and [`KeysError::NotFinite`].
pub(crate) fn decimal_sum(number: &[u8], by: &[u8], not_float: KeysError) -> Result<String, KeysError> {
    let number = decimal_text(number).ok_or(not_float)?;
    let by = decimal_text(by).ok_or(KeysError::NotFloat)?;
    if let (Some(left), Some(right)) = (Decimal::exact(number), Decimal::exact(by)) {
        return Ok(left.plus(right).to_string());
    }
    let double = |text: &str| text.parse::<f64>().map_err(|_| KeysError::NotFloat);
    let sum = double(number)? + double(by)?;
    if sum.is_finite() { Ok((sum + 0.0).to_string()) } else { Err(KeysError::NotFinite) }
}

/// Returns the text of a number: digits with a sign, a point, and an exponent, each if it is there; or an infinity.
fn decimal_text(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= NUMBER_BYTES_MAX)?;
    let number = text.parse::<f64>().ok()?;
    let is_word = !text.contains(|c: char| c.is_ascii_digit());
    (number.is_finite() || (number.is_infinite() && is_word)).then_some(text)
}

/// A number: its part before the point, and [`DIGITS_MAX`] digits after it, both with its sign.
#[derive(Clone, Copy)]
struct Decimal {
    whole: i128,
    fraction: i128,
}

impl Decimal {
    const UNIT: i128 = 10_i128.pow(DIGITS_MAX);

    /// Returns the number that is written in a text, if it has few digits.
    fn exact(text: &str) -> Option<Self> {
        let (text, exponent) = match text.find(['e', 'E']) {
            Some(at) => (text.get(..at)?, text.get(at + 1..)?.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let fraction = fraction.trim_end_matches('0');
        let mut scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        let mut written = [whole, fraction].concat();
        while scale < 0 && written.len() <= DIGITS_MAX as usize {
            written.push('0');
            scale += 1;
        }
        let scale = u32::try_from(scale).ok().filter(|scale| *scale <= DIGITS_MAX)?;
        let is_short = written.trim_start_matches(['+', '-', '0']).len() <= DIGITS_MAX as usize;
        let digits: i128 = written.parse().ok().filter(|_| is_short)?;
        let unit = 10_i128.pow(scale);
        Some(Self { whole: digits / unit, fraction: digits % unit * (Self::UNIT / unit) })
    }

    fn plus(self, other: Self) -> Self {
        let fraction = self.fraction + other.fraction;
        let whole = self.whole + other.whole + fraction.div_euclid(Self::UNIT);
        let fraction = fraction.rem_euclid(Self::UNIT);
        if whole < 0 && fraction > 0 {
            Self { whole: whole + 1, fraction: fraction - Self::UNIT }
        } else {
            Self { whole, fraction }
        }
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = 10_u128.pow(WRITTEN_DIGITS);
        let dropped = 10_u128.pow(DIGITS_MAX - WRITTEN_DIGITS);
        let rounded = (self.fraction.unsigned_abs() + dropped / 2) / dropped;
        let (whole, fraction) = (self.whole.unsigned_abs() + rounded / unit, rounded % unit);
        let is_negative = (self.whole < 0 || self.fraction < 0) && (whole, fraction) != (0, 0);
        let sign = if is_negative { "-" } else { "" };
        let fraction = format!("{fraction:0width$}", width = WRITTEN_DIGITS as usize);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_redis_reads_them() {
        for text in ["0", "7", "-7", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(integer(text.as_bytes()).map(|number| number.to_string()).as_deref(), Some(text));
        }
        for text in ["", "-", "-0", "00", "07", "+7", " 7", "7 ", "7.0", "9223372036854775808", "\u{663}"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn decimals_are_added_as_redis_adds_them() {
        let sums = [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1.1", "-0.1"),
            ("3000", "0.1", "3000.1"),
            ("-0.5", "0.5", "0"),
            ("17179869184", "0", "17179869184"),
            (".5", "1.", "1.5"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1e-18", "-0.000000000000000001", "0"),
            ("1.192233720368547758", "0", "1.19223372036854776"),
            ("-0.999999999999999999", "0", "-1"),
            ("-1e-25", "0", "0"),
            ("1e22", "1", "10000000000000000000001"),
            ("1e300", "0", &format!("1{}", "0".repeat(300))),
        ];
        for (number, by, sum) in sums {
            let found = decimal_sum(number.as_bytes(), by.as_bytes(), KeysError::FieldNotFloat);
            assert_eq!(found.as_deref(), Ok(sum), "{number} + {by}");
        }
    }

    #[test]
    fn what_is_no_number_is_not_added() {
        let sum = |number: &str, by: &str| decimal_sum(number.as_bytes(), by.as_bytes(), KeysError::FieldNotFloat);
        for text in ["", " 1", "1 ", "abc", "nan", "1e", "0x10", "--1", ".", "+", "1_0", "1e999"] {
            assert_eq!(sum(text, "1"), Err(KeysError::FieldNotFloat), "{text:?}");
            assert_eq!(sum("1", text), Err(KeysError::NotFloat), "{text:?}");
        }
        for (number, by) in [("1", "inf"), ("1", "-Infinity"), ("1e308", "1e308")] {
            assert_eq!(sum(number, by), Err(KeysError::NotFinite), "{number} + {by}");
        }
    }
}
