//! Conversions between values and their text forms: texts, sizes, times, lists of members.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use super::schema::{Shown, Wrong};

/// A given value, with its source.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// A value in a file of TOML; relative paths are relative to this directory.
    File(&'a Value, &'a Path),
    /// The text of an environment variable.
    Variable(&'a str),
}

const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

impl Given<'_> {
    /// Returns a text.
    ///
    /// # Errors
    ///
    /// Like the other conversions, returns a [`Wrong`] that says what was expected.
    pub fn text(self) -> Result<String, Wrong> {
        match self {
            Self::File(Value::String(text), _) => Ok(text.clone()),
            Self::Variable(text) => Ok(text.to_owned()),
            Self::File(..) => Err(Wrong::Kind("a text in quotes")),
        }
    }

    /// Returns a path; a relative one in a file is relative to the directory of the file.
    pub fn path(self) -> Result<PathBuf, Wrong> {
        let text = self.text()?;
        Ok(match self {
            Self::File(_, base) => base.join(text),
            Self::Variable(_) => text.into(),
        })
    }

    /// Returns a Boolean.
    pub fn flag(self) -> Result<bool, Wrong> {
        let flag = match self {
            Self::File(value, _) => value.as_bool(),
            Self::Variable(text) => text.parse().ok(),
        };
        flag.ok_or(Wrong::Kind("true or false"))
    }

    /// Returns a whole number.
    pub fn count(self) -> Result<u64, Wrong> {
        self.whole().ok_or(Wrong::Kind("a whole number"))
    }

    /// Returns a size in bytes, given as a number or as a text such as `"64 MiB"`.
    pub fn bytes(self) -> Result<u64, Wrong> {
        let size = self.whole().or_else(|| with_unit(self.as_text()?, &SIZES));
        size.ok_or(Wrong::Kind(r#"a size such as "64 MiB""#))
    }

    /// Returns a time, given as a text such as `"80 ms"`.
    pub fn time(self) -> Result<Duration, Wrong> {
        let millis = self.as_text().and_then(|text| with_unit(text, &TIMES));
        millis.map(Duration::from_millis).ok_or(Wrong::Kind(r#"a time such as "80 ms""#))
    }

    /// Returns texts, given as an array, or with commas between them in a variable.
    pub fn texts(self) -> Result<Vec<String>, Wrong> {
        match self {
            Self::File(Value::Array(texts), _) => {
                let text =
                    |text: &Value| text.as_str().map(str::to_owned).ok_or(Wrong::Kind("a list of texts in quotes"));
                texts.iter().map(text).collect()
            }
            Self::File(..) => Err(Wrong::Kind("a list of texts in quotes")),
            Self::Variable(texts) => {
                let texts = texts.split(',').map(str::trim).filter(|text| !text.is_empty());
                Ok(texts.map(str::to_owned).collect())
            }
        }
    }

    /// Returns names and addresses, given as a table, or as `name=host:port,...` in a variable.
    pub fn addresses(self) -> Result<BTreeMap<String, String>, Wrong> {
        match self {
            Self::File(Value::Table(table), _) => table.iter().map(address).collect(),
            Self::File(..) => Err(Wrong::Kind("a table")),
            Self::Variable(text) => {
                let members = text.split(',').map(str::trim).filter(|member| !member.is_empty());
                let pair = |member: &str| {
                    let (name, addr) =
                        member.split_once('=').ok_or(Wrong::Kind("name=host:port, with commas between"))?;
                    Ok((name.trim().to_owned(), addr.trim().to_owned()))
                };
                members.map(pair).collect()
            }
        }
    }

    /// Returns the kind of the value, but not the value itself, which may be a secret.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::File(value, _) => value.type_str(),
            Self::Variable(_) => "what the variable holds",
        }
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self::File(value, _) => value.as_str(),
            Self::Variable(text) => Some(text),
        }
    }

    fn whole(self) -> Option<u64> {
        match self {
            Self::File(value, _) => value.as_integer()?.try_into().ok(),
            Self::Variable(text) => text.parse().ok(),
        }
    }
}

fn address((name, addr): (&String, &Value)) -> Result<(String, String), Wrong> {
    let wrong = || Wrong::Invalid(format!("needs a text in quotes for '{name}', not {}", addr.type_str()));
    Ok((name.clone(), addr.as_str().ok_or_else(wrong)?.to_owned()))
}

/// Parses a whole number and its unit, with or without a space between them.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Formats a size.
pub fn size(bytes: u64) -> Shown {
    in_units(bytes, &SIZES)
}

/// Formats a time.
pub fn time(time: Duration) -> Shown {
    in_units(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), &TIMES)
}

/// Formats names and addresses as a table.
pub fn addresses(members: &BTreeMap<String, String>) -> Shown {
    if members.is_empty() {
        return Shown::Nothing;
    }
    let pairs = members.iter().map(|(name, addr)| (name.clone(), Value::String(addr.clone())));
    Shown::Value(Value::Table(pairs.collect::<Table>()))
}

/// Formats an amount in the largest unit that gives a whole number; the units are in descending order.
fn in_units(amount: u64, units: &[(&str, u64)]) -> Shown {
    let fits = |(_, factor): &&(&str, u64)| amount.is_multiple_of(*factor) && (amount > 0 || *factor == 1);
    let (name, factor) = units.iter().find(fits).copied().unwrap_or(("", 1));
    format!("{} {name}", amount.checked_div(factor).unwrap_or(amount)).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        let bytes = ["5", "2 KiB", "3GiB"].map(|text| Given::Variable(text).bytes().unwrap());
        assert_eq!(bytes, [5, 2048, 3 << 30]);
        let times = ["80 ms", "2min", "30 d"].map(|text| Given::Variable(text).time().unwrap());
        assert_eq!(times, [Duration::from_millis(80), Duration::from_secs(120), Duration::from_secs(2_592_000)]);
        for bad in ["5", "ms", "-1 ms", "1 year", "99999999999999999999 s", "true", ""] {
            assert!(Given::Variable(bad).time().is_err(), "{bad}");
        }
        assert!(Given::File(&Value::Integer(-1), Path::new("")).bytes().is_err());
    }

    #[test]
    fn lists_are_arrays_or_have_commas() {
        let texts = ["a", "b"].map(str::to_owned).to_vec();
        assert_eq!(Given::Variable("a, b,").texts().unwrap(), texts);
        let Shown::Value(value) = Shown::from(texts.clone()) else { panic!("texts are shown") };
        assert_eq!(Given::File(&value, Path::new("")).texts(), Ok(texts));
        assert_eq!(Shown::from(Vec::new()), Shown::Nothing);
        for bad in [Value::Integer(1), Value::Array(vec![Value::Integer(1)]), Value::String("a".to_owned())] {
            assert!(Given::File(&bad, Path::new("")).texts().is_err(), "{bad}");
        }
    }

    #[test]
    fn printed_values_read_as_the_same() {
        for bytes in [0, 1, 1023, 1024, 4096, 1 << 20, (1 << 20) + 1, 3 << 30] {
            let Shown::Value(value) = size(bytes) else { panic!("a size is shown") };
            assert_eq!(Given::File(&value, Path::new("")).bytes(), Ok(bytes));
        }
        for millis in [0, 1, 999, 1000, 1500, 60_000, 90_000, 3_600_000] {
            let Shown::Value(value) = time(Duration::from_millis(millis)) else { panic!("a time is shown") };
            assert_eq!(Given::File(&value, Path::new("")).time(), Ok(Duration::from_millis(millis)));
        }
    }

    #[test]
    fn members_come_from_a_variable() {
        let members = Given::Variable("a=x:1, b = y:2,").addresses().unwrap();
        assert_eq!(
            members.into_iter().collect::<Vec<_>>(),
            [("a", "x:1"), ("b", "y:2")].map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
        assert!(Given::Variable("a:1").addresses().is_err());
    }
}
