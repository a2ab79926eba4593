//! The parameters in the text of a statement, and the values that a client gives for them.
//!
//! Clients give values by position, by name with or without the sign before it, or both. The library takes them by
//! position, so each gets the number that SQLite would give its parameter.

use quorate::sql::Param;
use quorate::{Params, Value, limits::PARAMETERS_MAX};

use super::token::{Token, tokens};
use crate::error::Problem;

/// A parameter in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slot<'a> {
    /// Its spelling, unless it is a bare `?`.
    name: Option<&'a str>,
    /// Whether the text uses it. `?3` makes three parameters, two of which may be unused.
    is_used: bool,
}

/// Returns the parameters of a statement in the order of their numbers.
fn parameters(sql: &str) -> Result<Vec<Slot<'_>>, Problem> {
    let mut slots: Vec<Slot<'_>> = Vec::new();
    for (token, _) in tokens(sql) {
        let Token::Variable(name) = token else { continue };
        let number = match name.strip_prefix('?') {
            Some("") => slots.len().saturating_add(1),
            Some(digits) => digits.parse().unwrap_or(usize::MAX),
            None => {
                let known = slots.iter().position(|slot| slot.name == Some(name));
                known.unwrap_or(slots.len()).saturating_add(1)
            }
        };
        if !(1..=PARAMETERS_MAX).contains(&number) {
            return Err(Problem::Arguments(format!("parameter {name}: numbers are from 1 to {PARAMETERS_MAX}")));
        }
        if slots.len() < number {
            slots.resize(number, Slot::default());
        }
        if let Some(slot) = slots.get_mut(number.saturating_sub(1)) {
            *slot = Slot { name: Some(name).filter(|name| *name != "?"), is_used: true };
        }
    }
    Ok(slots)
}

/// Returns the names of the parameters, as Hrana describes them.
pub(crate) fn names(sql: &str) -> Result<Vec<Option<&str>>, Problem> {
    Ok(parameters(sql)?.into_iter().map(|slot| slot.name).collect())
}

/// Gives values to the parameters of a statement. A value by name takes precedence over one by position.
pub(crate) fn bind(sql: &str, by_position: Vec<Value>, by_name: Vec<(String, Value)>) -> Result<Params, Problem> {
    let slots = parameters(sql)?;
    if by_position.len() > slots.len() {
        let text = format!("the statement has {} parameters, {} are given", slots.len(), by_position.len());
        return Err(Problem::Arguments(text));
    }
    let mut values: Vec<Option<Value>> = by_position.into_iter().map(Some).collect();
    values.resize(slots.len(), None);
    if !by_name.is_empty() {
        give_by_name(&slots, &mut values, by_name)?;
    }
    let mut given = Vec::with_capacity(values.len());
    for ((slot, value), number) in slots.iter().zip(values).zip(1_usize..) {
        match value {
            Some(value) => given.push(Param::Value(value)),
            None if !slot.is_used => given.push(Param::Value(Value::Null)),
            None => {
                let name = slot.name.map_or_else(|| format!("number {number}"), str::to_owned);
                return Err(Problem::Arguments(format!("parameter {name} has no value: give it one")));
            }
        }
    }
    Ok(Params::positional(given))
}

/// Finds each name among many parameters: with its sign, or else without.
fn give_by_name(
    slots: &[Slot<'_>],
    values: &mut [Option<Value>],
    by_name: Vec<(String, Value)>,
) -> Result<(), Problem> {
    let mut numbers = std::collections::HashMap::new();
    for (number, slot) in slots.iter().enumerate().rev() {
        let Some(name) = slot.name else { continue };
        numbers.insert(name, number);
        // A name without a sign stands for the first parameter with that name, unless one is spelled so.
        let bare = name.get(1..).unwrap_or_default();
        numbers.insert(bare, number);
    }
    for (name, value) in by_name {
        let slot = numbers.get(name.as_str()).and_then(|number| values.get_mut(*number));
        match slot {
            Some(slot) => *slot = Some(value),
            None => return Err(Problem::Arguments(format!("the statement has no parameter {name}"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    fn bound(sql: &str, by_position: &[i64], by_name: &[(&str, i64)]) -> Result<Params, String> {
        let by_position = by_position.iter().copied().map(Value::Integer).collect();
        let by_name = by_name.iter().map(|(name, value)| ((*name).to_owned(), Value::Integer(*value))).collect();
        bind(sql, by_position, by_name).map_err(|problem| problem.to_string())
    }

    fn numbers(values: &[i64]) -> Result<Params, String> {
        Ok(Params::positional(values.iter().copied().map(Param::from).collect()))
    }

    #[test]
    fn values_get_the_numbers_that_sqlite_gives_their_parameters() {
        assert_eq!(bound("SELECT ?, ?", &[1, 2], &[]), numbers(&[1, 2]));
        assert_eq!(bound("SELECT ?2, ?1", &[1, 2], &[]), numbers(&[1, 2]));
        assert_eq!(bound("SELECT :a, @b, $c, :a", &[1, 2, 3], &[]), numbers(&[1, 2, 3]));
        assert_eq!(bound("SELECT :a, @b, $c", &[], &[("$c", 3), ("a", 1), ("b", 2)]), numbers(&[1, 2, 3]));
        assert_eq!(bound("SELECT ?, :a", &[1, 2], &[(":a", 7)]), numbers(&[1, 7]), "names take precedence");
        assert_eq!(bound("SELECT '?', \"?\", /* ? */ [?], `:x`, ?", &[5], &[]), numbers(&[5]));
        assert_eq!(bound("SELECT ?1", &[], &[("?1", 4)]), numbers(&[4]));
        assert_eq!(bound("SELECT $a::b(c)", &[], &[("a::b(c)", 4)]), numbers(&[4]));
    }

    #[test]
    fn values_must_match_the_parameters() {
        for (sql, by_position, by_name) in [
            ("SELECT ?", &[][..], &[][..]),
            ("SELECT ?", &[1, 2], &[]),
            ("SELECT :a", &[], &[("b", 1)]),
            ("SELECT ?0", &[1], &[]),
            ("SELECT ?99999999999999999999", &[1], &[]),
        ] {
            assert!(bound(sql, by_position, by_name).is_err(), "{sql}");
        }
        let unused = Params::positional(vec![Value::Null.into(), 2.into()]);
        assert_eq!(bind("SELECT ?2", vec![], vec![("2".to_owned(), Value::Integer(2))]).unwrap(), unused);
    }

    proptest! {
        #[test]
        fn any_text_and_values_give_parameters_or_an_error(
            sql in "[ ?:@$a-c0-9()'\"/*-]{0,40}",
            count in 0_usize..4,
            names in proptest::collection::vec("[:@$?]?[a-c1-3]{0,2}", 0..3)
        ) {
            let by_name = names.into_iter().map(|name| (name, Value::Null)).collect();
            let _ = bind(&sql, vec![Value::Null; count], by_name);
        }
    }
}
