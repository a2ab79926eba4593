//! The parts of a configuration in YAML, and the values that Litestream writes in it.
//!
//! Invariant: a key is either taken or an error, so none is ignored.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// What names the variable with the id of this process.
const PROCESS_ID: &str = "PID";

/// The mode of a file that lets everybody do everything.
const MODE_MAX: u32 = 0o777;

/// A mapping of the configuration.
#[derive(Clone, Default)]
pub struct Section {
    /// Where it is, for errors; empty for the whole file.
    at: String,
    keys: Map<String, Value>,
}

impl Section {
    /// Parses a file.
    pub fn parse(text: &str) -> Result<Self> {
        // As in Go, 0600 is an octal number.
        let options = serde_saphyr::options! { with_snippet: false, legacy_octal_numbers: true };
        let value: Option<Value> = serde_saphyr::from_str_with_options(text, options).map_err(Error::of)?;
        Self::of(String::new(), value.unwrap_or_default())
    }

    fn of(at: String, value: Value) -> Result<Self> {
        match value {
            Value::Object(keys) => Ok(Self { at, keys }),
            Value::Null => Ok(Self { at, keys: Map::new() }),
            _ => Err(Error::new(format!("'{at}' must have keys of its own"))),
        }
    }

    /// Returns an error about a key.
    pub fn wrong(&self, key: &str, what: impl AsRef<str>) -> Error {
        Error::new(format!("'{}' {}", self.name(key), what.as_ref()))
    }

    /// Returns the name of a key, with where it is.
    fn name(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    /// Takes the value of a key. A key without a value is not there.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.keys.remove(key).filter(|value| !value.is_null())
    }

    /// Takes a text; an empty one is not there.
    pub fn text(&mut self, key: &str) -> Result<Option<String>> {
        let text = match self.take(key) {
            None => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => return Err(self.wrong(key, "must be a text; put it in quotes")),
        };
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// Takes `true` or `false`.
    pub fn flag(&mut self, key: &str) -> Result<Option<bool>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(key, "must be true or false")),
        }
    }

    /// Takes a number.
    pub fn count(&mut self, key: &str) -> Result<Option<u32>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        count.map(Some).ok_or_else(|| self.wrong(key, "must be a number"))
    }

    /// Takes the mode of a file.
    pub fn mode(&mut self, key: &str) -> Result<Option<u32>> {
        let mode = self.count(key)?;
        match mode.is_some_and(|mode| mode > MODE_MAX) {
            true => Err(self.wrong(key, "must be the mode of a file, such as 0600")),
            false => Ok(mode),
        }
    }

    /// Takes a time such as `1m30s`.
    pub fn time(&mut self, key: &str) -> Result<Option<Duration>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let wrong = || self.wrong(key, format!("must be a time such as 30s, 5m or 24h, not '{text}'"));
        duration(&text).map(Some).ok_or_else(wrong)
    }

    /// Takes a mapping.
    pub fn section(&mut self, key: &str) -> Result<Option<Self>> {
        let at = self.name(key);
        self.take(key).map(|value| Self::of(at, value)).transpose()
    }

    /// Takes a list of mappings.
    pub fn sections(&mut self, key: &str) -> Result<Vec<Self>> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => {
                let at = self.name(key);
                values.into_iter().zip(1..).map(|(value, number)| Self::of(format!("{at}[{number}]"), value)).collect()
            }
            Some(_) => Err(self.wrong(key, "must be a list")),
        }
    }

    /// Takes the keys with these names, for what is below to inherit.
    pub fn split_off(&mut self, names: &[&str]) -> Self {
        let taken = names.iter().filter_map(|name| Some(((*name).to_owned(), self.take(name)?)));
        Self { keys: taken.collect(), ..Self::default() }
    }

    /// Adds the keys that this mapping does not have.
    pub fn inherit(&mut self, from: &Self) {
        for (key, value) in &from.keys {
            self.keys.entry(key).or_insert_with(|| value.clone());
        }
    }

    /// Takes a key that may only have the value that stands for what happens without it.
    pub fn only(&mut self, key: &str, value: bool, why: &str) -> Result<()> {
        match self.flag(key)? {
            Some(flag) if flag != value => Err(self.wrong(key, format!("can't be {flag}: {why}"))),
            _ => Ok(()),
        }
    }

    /// Checks that all keys were taken. `refused` says of keys of Litestream why they can't be.
    pub fn end(mut self, refused: &[(&str, &str)]) -> Result<()> {
        let left = std::mem::take(&mut self.keys);
        let Some((key, _)) = left.into_iter().find(|(_, value)| !value.is_null()) else { return Ok(()) };
        match refused.iter().find(|(name, _)| *name == key) {
            Some((_, why)) => Err(self.wrong(&key, format!("is not supported: {why}"))),
            None => Err(self.wrong(&key, "is not supported: docs/replicate.md lists the keys that are")),
        }
    }
}

/// Parses a time as Go writes it: numbers, perhaps with a fraction, each with a unit.
fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("\u{b5}s", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * scale;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

/// Replaces `$NAME` and `${NAME}` by the values of variables, everywhere in a text, as Litestream does: a variable that
/// is not set is empty. A `$` before anything else stays.
pub fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let value = |name: &str| match name {
        PROCESS_ID => std::process::id().to_string(),
        name => variable(name).unwrap_or_default(),
    };
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let braced = after.strip_prefix('{').and_then(|braced| braced.split_once('}'));
        if let Some((name, after)) = braced {
            expanded.push_str(&value(name));
            rest = after;
            continue;
        }
        let (name, after) = after.split_at(name_length(after));
        if name.is_empty() {
            expanded.push('$');
        } else {
            expanded.push_str(&value(name));
        }
        rest = after;
    }
    expanded.push_str(rest);
    expanded
}

/// Returns how many bytes of a text are the name of a variable.
fn name_length(text: &str) -> usize {
    match text.chars().next() {
        // The parameters of a shell have one character. No variable has such a name, so they are empty.
        Some('0'..='9' | '*' | '#' | '$' | '@' | '!' | '?' | '-') => 1,
        _ => text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_go() {
        assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("1.5h"), Some(Duration::from_secs(5_400)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        for wrong in ["", "1", "s", "1 s", "-1s", "1d", "1s2"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn variables_are_replaced() {
        let variable = |name: &str| (name == "A_1").then(|| "x$y".to_owned());
        for (text, expanded) in [
            ("a $A_1/b", "a x$y/b"),
            ("${A_1}b", "x$yb"),
            ("$A_12$B.", "."),
            ("100$ and $.", "100$ and $."),
            ("$$A_1", "A_1"),
        ] {
            assert_eq!(expand(text, variable), expanded, "{text}");
        }
        assert_eq!(expand("$PID", variable), std::process::id().to_string());
    }
}
