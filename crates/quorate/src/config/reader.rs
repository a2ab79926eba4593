//! Reads the keys of a TOML table, and refuses those that nobody asked for.
//!
//! Invariant: every key that is known is asked for exactly once before [`Reader::finish`], so that the keys that are
//! known and the keys that are read can't drift apart.

use std::time::Duration;

use toml::{Table, Value};

use super::error::ConfigError;

/// A table that is being read.
pub(super) struct Reader {
    /// Names of the tables around it, with a dot behind each.
    path: String,
    table: Table,
    known: Vec<&'static str>,
}

impl Reader {
    /// Parses a text.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let table = text.parse::<Table>().map_err(|error| {
            // The error's own text would quote the line, which may hold the secret.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            ConfigError::Syntax { line, message: error.message().to_owned() }
        })?;
        Ok(Self { path: String::new(), table, known: Vec::new() })
    }

    /// The table under a key; empty where there is none.
    pub(super) fn table(&mut self, key: &'static str) -> Result<Self, ConfigError> {
        let path = format!("{}{key}.", self.path);
        let table = match self.take(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(other) => return Err(self.wrong(key, "a table", &other)),
        };
        Ok(Self { path, table, known: Vec::new() })
    }

    /// A text.
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, ConfigError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a text in quotes", &other)),
        }
    }

    /// A number of things.
    pub(super) fn count(&mut self, key: &'static str) -> Result<Option<u64>, ConfigError> {
        self.take(key).map(|value| whole(&value).ok_or_else(|| self.wrong(key, "a whole number", &value))).transpose()
    }

    /// A size: a number of bytes, or a text such as `"64 MiB"`.
    pub(super) fn bytes(&mut self, key: &'static str) -> Result<Option<u64>, ConfigError> {
        const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
        let expected = r#"a size such as "64 MiB""#;
        let read = |value: &Value| whole(value).or_else(|| with_unit(value.as_str()?, &UNITS));
        self.take(key).map(|value| read(&value).ok_or_else(|| self.wrong(key, expected, &value))).transpose()
    }

    /// A time: a text such as `"80 ms"`.
    pub(super) fn time(&mut self, key: &'static str) -> Result<Option<Duration>, ConfigError> {
        const UNITS: [(&str, u64); 3] = [("ms", 1), ("s", 1_000), ("min", 60_000)];
        let expected = r#"a time such as "80 ms""#;
        let read = |value: &Value| with_unit(value.as_str()?, &UNITS).map(Duration::from_millis);
        self.take(key).map(|value| read(&value).ok_or_else(|| self.wrong(key, expected, &value))).transpose()
    }

    /// All keys, whatever they are, with their texts.
    pub(super) fn texts(mut self) -> Result<Vec<(String, String)>, ConfigError> {
        let table = std::mem::take(&mut self.table);
        let text = |(key, value): (String, Value)| match value {
            Value::String(text) => Ok((key, text)),
            other => Err(self.wrong(&key, "a text in quotes", &other)),
        };
        table.into_iter().map(text).collect()
    }

    /// Fails if a key is left that was not asked for.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let Some(key) = self.table.keys().next() else { return Ok(()) };
        let nearest = self.known.iter().min_by_key(|known| distance(key, known)).copied().unwrap_or_default();
        let path = &self.path;
        Err(ConfigError::UnknownKey { key: format!("{path}{key}"), nearest: format!("{path}{nearest}") })
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    fn wrong(&self, key: &str, expected: &'static str, found: &Value) -> ConfigError {
        ConfigError::Value { key: format!("{}{key}", self.path), expected, found: found.type_str() }
    }
}

fn whole(value: &Value) -> Option<u64> {
    value.as_integer()?.try_into().ok()
}

/// A whole number and its unit, with or without a space between them.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// How many letters have to be inserted, removed or replaced to make one word from the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut next = vec![i.saturating_add(1)];
        for ((right, diagonal), above) in b.iter().zip(&row).zip(row.iter().skip(1)) {
            let replaced = diagonal.saturating_add(usize::from(left != *right));
            let inserted = next.last().copied().unwrap_or_default().min(*above).saturating_add(1);
            next.push(replaced.min(inserted));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn distances_between_words() {
        for (a, b, expected) in [("", "", 0), ("", "ab", 2), ("lisen", "listen", 1), ("nmae", "name", 2), ("a", "b", 1)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn sizes_and_times_have_units() {
        let mut reader = Reader::parse("a = 5\nb = \"2 KiB\"\nc = \"3GiB\"\nd = \"80 ms\"\ne = \"2min\"").unwrap();
        assert_eq!(["a", "b", "c"].map(|key| reader.bytes(key).unwrap()), [Some(5), Some(2048), Some(3 << 30)]);
        assert_eq!(reader.time("d").unwrap(), Some(Duration::from_millis(80)));
        assert_eq!(reader.time("e").unwrap(), Some(Duration::from_secs(120)));
        for bad in ["\"5\"", "\"ms\"", "\"-1 ms\"", "\"1 year\"", "80", "\"99999999999999999999 s\"", "true"] {
            assert!(Reader::parse(&format!("t = {bad}")).unwrap().time("t").is_err(), "{bad}");
        }
    }
}
