//! The values of named parameters that `.param` sets, for the statements that follow.

use std::collections::BTreeMap;

use quorate::sql::Param;
use quorate::{Params, Value};

use crate::format::literal;
use crate::statements::tokens;

/// The most parameters.
const PARAMETERS_MAX: usize = 1_000;

/// The values by the names of the parameters, with their prefix.
#[derive(Clone, Debug, Default)]
pub struct Parameters(BTreeMap<String, Value>);

/// What `.param` does.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Clear,
    List,
    Set(String, Value),
    Unset(String),
}

impl Change {
    /// Parses the arguments of `.param`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (verb, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (name, value) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
        match (verb, name, value.trim()) {
            ("" | "list", "", _) => Ok(Self::List),
            ("clear", "", _) => Ok(Self::Clear),
            ("unset", name, "") if !name.is_empty() => Ok(Self::Unset(prefixed(name))),
            ("set", name, text) if !name.is_empty() && !text.is_empty() => {
                Ok(Self::Set(prefixed(name), value_of(text)?))
            }
            _ => Err("it takes set NAME VALUE, unset NAME, list, or clear".to_owned()),
        }
    }
}

impl Parameters {
    /// Makes a change. Returns the list that [`Change::List`] asks for.
    pub fn change(&mut self, change: Change) -> Result<String, String> {
        match change {
            Change::Clear => self.0.clear(),
            Change::Unset(name) => _ = self.0.remove(&name).ok_or_else(|| format!("{name} is not set"))?,
            Change::Set(name, value) => {
                if self.0.len() >= PARAMETERS_MAX {
                    return Err(format!("there may be {PARAMETERS_MAX} parameters; clear them first"));
                }
                self.0.insert(name, value);
            }
            Change::List => {
                let line = |(name, value): (&String, &Value)| format!("{name} {}\n", literal::value(value));
                return Ok(self.0.iter().map(line).collect());
            }
        }
        Ok(String::new())
    }

    /// The values of those parameters that a statement names.
    pub fn of(&self, statement: &str) -> Params {
        if self.0.is_empty() {
            return Params::default();
        }
        let names = names(statement).filter_map(|name| Some((name.clone(), self.0.get(&name)?.clone())));
        let named: BTreeMap<String, Value> = names.collect();
        Params::named(named.into_iter().map(|(name, value)| (name, Param::from(value))))
    }
}

/// The names of the parameters of a statement.
fn names(statement: &str) -> impl Iterator<Item = String> {
    let mut before: Option<(usize, &str)> = None;
    tokens(statement).filter_map(move |(at, token)| {
        let prefix = before.replace((at, token)).filter(|(at_prefix, prefix)| *at_prefix + prefix.len() == at);
        match prefix {
            Some((_, prefix @ (":" | "@"))) => Some(format!("{prefix}{token}")),
            _ => token.starts_with('$').then(|| token.to_owned()),
        }
    })
}

fn prefixed(name: &str) -> String {
    if name.starts_with([':', '@', '$']) { name.to_owned() } else { format!(":{name}") }
}

/// A value as typed: a literal of SQL, or a text without quotes.
fn value_of(text: &str) -> Result<Value, String> {
    if text.eq_ignore_ascii_case("null") {
        return Ok(Value::Null);
    }
    if let Ok(number) = text.parse() {
        return Ok(Value::Integer(number));
    }
    if let Some(number) = text.parse().ok().filter(|number: &f64| number.is_finite()) {
        return Ok(Value::Real(number));
    }
    let quoted = |text: &str| text.strip_prefix('\'')?.strip_suffix('\'').map(str::to_owned);
    if let Some(hex) = text.strip_prefix(['x', 'X']).and_then(quoted) {
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2));
        let bytes: Option<Vec<u8>> = digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
        return bytes
            .map(|bytes| Value::Blob(bytes.into()))
            .ok_or_else(|| format!("{text} has a digit that is not hexadecimal, or an odd number of them"));
    }
    Ok(Value::Text(quoted(text).map_or_else(|| text.to_owned(), |text| text.replace("''", "'"))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn values_are_read_as_literals_or_as_text() {
        for (text, value) in [
            ("5", Value::Integer(5)),
            ("-2.5", Value::Real(-2.5)),
            ("null", Value::Null),
            ("x'00fF'", Value::Blob(vec![0, 255].into())),
            ("'it''s'", Value::Text("it's".to_owned())),
            ("two words", Value::Text("two words".to_owned())),
        ] {
            assert_eq!(Change::parse(&format!("set a {text}")), Ok(Change::Set(":a".to_owned(), value)), "{text}");
        }
        assert!(value_of("x'0'").is_err() && Change::parse("set a").is_err() && Change::parse("clear x").is_err());
    }

    #[test]
    fn a_statement_gets_the_values_of_the_parameters_that_it_names() {
        let mut set = Parameters::default();
        for name in [":a", "@b", "$c", ":unused"] {
            set.change(Change::Set(name.to_owned(), 1.into())).unwrap();
        }
        let named = |names: &[&str]| Params::named(names.iter().map(|name| (*name, Param::from(1))));
        assert_eq!(set.of("SELECT :a, @b, $c, ':unused', : unused -- :unused"), named(&["$c", ":a", "@b"]));
        assert_eq!(set.of("SELECT :a || :a, :other"), named(&[":a"]));
        set.change(Change::Unset(":a".to_owned())).unwrap();
        assert!(set.change(Change::Unset(":a".to_owned())).is_err());
        assert_eq!(set.change(Change::List), Ok("$c 1\n:unused 1\n@b 1\n".to_owned()));
    }
}
