//! The mathematical functions, with one implementation on all platforms: `sqrt`, `ln`, `pow`, `sin` and the others that
//! SQLite has if it is built with them.
//!
//! The results of C libraries differ in the last digit, so replicas would differ too. The `libm` crate computes these
//! functions in plain IEEE arithmetic. All versions must compute the same results from the same log, so `libm` may be
//! upgraded only if its results stay the same; a test compares their bits.
//!
//! Arguments are read as SQLite's own functions read them: an integer, a real, or a text that is a number. For any
//! other argument, or if the result is not defined, the result is NULL. `ceil`, `floor` and `trunc` return integers
//! unchanged.

use rusqlite::functions::FunctionFlags;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

type One = fn(f64) -> f64;
type Two = fn(f64, f64) -> f64;

/// Functions of one argument.
const ONE: [(&str, One); 20] = [
    ("acos", libm::acos),
    ("acosh", libm::acosh),
    ("asin", libm::asin),
    ("asinh", libm::asinh),
    ("atan", libm::atan),
    ("atanh", libm::atanh),
    ("cos", libm::cos),
    ("cosh", libm::cosh),
    ("degrees", |x| x * (180.0 / std::f64::consts::PI)),
    ("exp", libm::exp),
    ("ln", |x| of_positive(libm::log, x)),
    ("log", |x| of_positive(libm::log10, x)),
    ("log10", |x| of_positive(libm::log10, x)),
    ("log2", |x| of_positive(libm::log2, x)),
    ("radians", |x| x * (std::f64::consts::PI / 180.0)),
    ("sin", libm::sin),
    ("sinh", libm::sinh),
    ("sqrt", libm::sqrt),
    ("tan", libm::tan),
    ("tanh", libm::tanh),
];

/// Functions of two arguments.
const TWO: [(&str, Two); 5] =
    [("atan2", libm::atan2), ("log", logarithm), ("mod", libm::fmod), ("pow", libm::pow), ("power", libm::pow)];

/// Functions of one argument that return integers unchanged.
const ROUND: [(&str, One); 4] =
    [("ceil", libm::ceil), ("ceiling", libm::ceil), ("floor", libm::floor), ("trunc", libm::trunc)];

/// Registers the functions on a connection.
pub(crate) fn install(conn: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function("pi", 0, flags, |_| Ok(std::f64::consts::PI))?;
    for (name, function) in ONE {
        conn.create_scalar_function(name, 1, flags, move |context| {
            Ok::<_, Error>(real(context.get_raw(0)).map(function))
        })?;
    }
    for (name, function) in TWO {
        conn.create_scalar_function(name, 2, flags, move |context| {
            let numbers = real(context.get_raw(0)).zip(real(context.get_raw(1)));
            Ok::<_, Error>(numbers.map(|(one, other)| function(one, other)))
        })?;
    }
    for (name, function) in ROUND {
        conn.create_scalar_function(name, 1, flags, move |context| {
            Ok::<_, Error>(match number(context.get_raw(0)) {
                None => Value::Null,
                Some(Number::Integer(value)) => Value::Integer(value),
                Some(Number::Real(value)) => Value::Real(function(value)),
            })
        })?;
    }
    Ok(())
}

/// Applies a logarithm to a positive number; returns NaN, which SQLite turns into NULL, for any other.
fn of_positive(function: One, x: f64) -> f64 {
    if x > 0.0 { function(x) } else { f64::NAN }
}

/// Returns the logarithm of `x` to a base above 1; NaN for any other base.
fn logarithm(base: f64, x: f64) -> f64 {
    let base = of_positive(libm::log, base);
    if base > 0.0 { of_positive(libm::log, x) / base } else { f64::NAN }
}

/// The numeric value of an argument.
enum Number {
    Integer(i64),
    Real(f64),
}

fn number(value: ValueRef<'_>) -> Option<Number> {
    match value {
        ValueRef::Integer(value) => Some(Number::Integer(value)),
        ValueRef::Real(value) => Some(Number::Real(value)),
        ValueRef::Text(text) => number_of(std::str::from_utf8(text).ok()?.trim_matches(is_space)),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "SQLite converts the same way")]
fn real(value: ValueRef<'_>) -> Option<f64> {
    number(value).map(|number| match number {
        Number::Integer(value) => value as f64,
        Number::Real(value) => value,
    })
}

/// Returns the number that a text consists of, if all of it is a number.
fn number_of(text: &str) -> Option<Number> {
    // Rust's parser also accepts words that SQLite does not: `inf`, `NaN`.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if !is_plain || !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let integer = text.parse().ok().map(Number::Integer);
    integer.or_else(|| text.parse().ok().map(Number::Real))
}

/// Returns whether SQLite ignores a character before or after a number.
fn is_space(c: char) -> bool {
    c == ' ' || ('\t'..='\r').contains(&c)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    fn connection() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        install(&conn).unwrap();
        conn
    }

    fn value(conn: &Connection, sql: &str) -> Value {
        conn.query_row(&format!("SELECT {sql}"), [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn arguments_are_read_as_in_sqlite() {
        let conn = connection();
        for (sql, expected) in [
            ("ceil(7)", Value::Integer(7)),
            ("ceil('7')", Value::Integer(7)),
            ("floor(-7.5)", Value::Real(-8.0)),
            ("trunc(-7.5)", Value::Real(-7.0)),
            ("ceiling('7.25')", Value::Real(8.0)),
            ("sqrt(' 9 ')", Value::Real(3.0)),
            ("sqrt('9e0')", Value::Real(3.0)),
            ("mod(11, 3.5)", Value::Real(0.5)),
            ("pow(2, 10)", Value::Real(1024.0)),
            ("log(100)", Value::Real(2.0)),
            ("log(2, 64)", Value::Real(6.0)),
            ("log2(8)", Value::Real(3.0)),
            ("ln(exp(1)) = 1", Value::Integer(1)),
            ("degrees(pi())", Value::Real(180.0)),
            ("atan2(1, 1) * 4 = pi()", Value::Integer(1)),
        ] {
            assert_eq!(value(&conn, sql), expected, "{sql}");
        }
        for null in [
            "sqrt(NULL)",
            "sqrt('x')",
            "sqrt('')",
            "sqrt('inf')",
            "sqrt('nan')",
            "sqrt('0x10')",
            "sqrt(x'39')",
            "sqrt(-1)",
            "ln(0)",
            "ln(-1)",
            "log(1, 5)",
            "log(0.5, 5)",
            "log(2, 0)",
            "acos(2)",
            "mod(1, 0)",
            "pow(NULL, 1)",
            "pow(1, 'x')",
            "ceil('x')",
        ] {
            assert_eq!(value(&conn, null), Value::Null, "{null}");
        }
        assert!(conn.execute_batch("CREATE TABLE t (a, b AS (sqrt(a))); CREATE INDEX i ON t (ln(a))").is_ok());
    }

    #[test]
    fn results_never_change() {
        // A different hash means different results: nodes of this version and the next would diverge.
        assert_eq!(format!("{:032x}", bits_of_all()), "2442c66a978db92e3e182ccb4d04cde9");
    }

    /// Returns a hash of the result bits of all functions for many arguments.
    fn bits_of_all() -> u128 {
        let places = (-60..=60).flat_map(|step| {
            let near = f64::from(step) * 0.173;
            [near, near * 1e3, libm::exp(near * 3.0), near * 1e-7]
        });
        let places: Vec<f64> = places.collect();
        let one = ONE.iter().chain(&ROUND).flat_map(|(_, function)| places.iter().map(|x| function(*x)));
        let pairs = places.iter().zip(places.iter().rev().skip(7));
        let two = TWO.iter().flat_map(|(_, function)| pairs.clone().map(|(x, y)| function(*x, *y)));
        // All NaNs count as equal: SQLite turns each into NULL.
        let bits = one.chain(two).map(|result| if result.is_nan() { u64::MAX } else { result.to_bits() });
        let bytes: Vec<u8> = bits.flat_map(u64::to_le_bytes).collect();
        xxhash_rust::xxh3::xxh3_128(&bytes)
    }

    #[test]
    fn results_are_close_to_those_of_std() {
        let std: [(&str, One); 8] = [
            ("sin", f64::sin),
            ("cos", f64::cos),
            ("tan", f64::tan),
            ("exp", f64::exp),
            ("sqrt", f64::sqrt),
            ("asinh", f64::asinh),
            ("tanh", f64::tanh),
            ("atan", f64::atan),
        ];
        for (name, expected) in std {
            let (_, function) = ONE.iter().find(|(own, _)| *own == name).unwrap();
            for x in (-40..40).map(|step| f64::from(step) * 0.37 + 0.01) {
                let (found, expected) = (function(x), expected(x));
                let is_near = (found - expected).abs() <= expected.abs() * 1e-14 || found.is_nan() && expected.is_nan();
                assert!(is_near, "{name}({x}): {found} instead of {expected}");
            }
        }
    }
}
