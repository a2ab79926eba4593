//! Numbers as Redis reads and writes them.

/// The most digits of zeros that are written instead of an exponent.
const ZEROS_MAX: i32 = 7;

/// Whole numbers below this one are written as integers.
const INTEGERS_BELOW: f64 = (1_u64 << 62) as f64;

/// Reads an integer that is written without a plus sign or leading zeros.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = digits.first().is_some_and(|first| first.is_ascii_digit() && (*first != b'0' || text == b"0"));
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// Reads a decimal number, or an infinity by its name.
pub(crate) fn double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok().filter(|number: &f64| !number.is_nan())?;
    let is_word = !text.contains(|c: char| c.is_ascii_digit());
    (number.is_finite() || is_word).then_some(number)
}

/// Writes a double by the fewest digits that are read as the same one.
pub(crate) fn double_text(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    if number.trunc() == number && number.abs() < INTEGERS_BELOW {
        return format!("{number:.0}");
    }
    let text = format!("{number:e}");
    let Some((digits, Ok(exponent))) = text.split_once('e').map(|(digits, exp)| (digits, exp.parse::<i32>())) else {
        return text;
    };
    let count = digits.chars().filter(char::is_ascii_digit).count() as i32;
    // How many zeros follow the digits, or, if negative, how many digits are after the point.
    let zeros = exponent - (count - 1);
    let is_plain = if zeros >= 0 { exponent < count + ZEROS_MAX } else { zeros > -ZEROS_MAX || exponent.abs() < 4 };
    let sign = if exponent < 0 { "-" } else { "+" };
    if is_plain { number.to_string() } else { format!("{digits}e{sign}{}", exponent.abs()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_redis_writes_them() {
        let cases = [
            (0.0, "0"),
            (3.0, "3"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e-5, "0.00001"),
            (1e-7, "1e-7"),
            (1.5e-9, "1.5e-9"),
            (1e7, "10000000"),
            (1e18, "1000000000000000000"),
            (1e19, "1e+19"),
            (123_456_789.0, "123456789"),
            (1e300, "1e+300"),
            // Redis, which does not find the fewest digits of this one, writes 100000009999999990000.
            (1.000_000_1e20, "1.0000001e+20"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in cases {
            assert_eq!(double_text(number), text);
        }
    }

    #[test]
    fn doubles_are_read_as_redis_reads_them() {
        for (text, number) in [("1.5", 1.5), ("-inf", f64::NEG_INFINITY), ("+Infinity", f64::INFINITY), (".5", 0.5)] {
            assert_eq!(double(text.as_bytes()), Some(number));
        }
        for text in ["", "nan", " 1", "1 ", "1e400", "x", "1_0"] {
            assert_eq!(double(text.as_bytes()), None, "{text:?}");
        }
    }
}
