//! Checks that the given parameters of a statement match those in its text, and maps them to their numbers.

use std::collections::HashMap;

use quorate_model::{Failure, FailureKind, Statement};

/// The parameters in the text of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    count: usize,
    /// The number, from 1, of each parameter that has a name.
    names: HashMap<Box<str>, usize>,
}

impl Parameters {
    /// Returns the parameters of a prepared statement.
    pub fn of(statement: &rusqlite::Statement<'_>) -> Self {
        let count = statement.parameter_count();
        let named = (1..=count).filter_map(|number| Some((statement.parameter_name(number)?.into(), number)));
        Self { count, names: named.collect() }
    }

    /// Fails unless the given parameters match those of the text.
    pub fn check<P>(&self, statement: &Statement<P>) -> Result<(), Failure> {
        self.check_count(statement.params.len())?;
        if !statement.names.is_empty() {
            self.check_names(&statement.names)?;
        }
        Ok(())
    }

    /// Fails unless the number of given parameters matches the text.
    pub fn check_count(&self, given: usize) -> Result<(), Failure> {
        if given == self.count {
            return Ok(());
        }
        let text = format!("the statement has {} parameters, {given} are given", self.count);
        Err(Failure::new(FailureKind::Sql, text))
    }

    /// Returns the number, from 1, of each given parameter. The statement must have passed [`Parameters::check`].
    pub fn numbers<'a, P>(&'a self, statement: &'a Statement<P>) -> impl Iterator<Item = usize> + 'a {
        let named = |name: &String| self.names.get(name.as_str()).copied().unwrap_or(0);
        let positional = if statement.names.is_empty() { self.count } else { 0 };
        (1..=positional).chain(statement.names.iter().map(named))
    }

    fn check_names(&self, names: &[String]) -> Result<(), Failure> {
        if names.len() != self.count {
            let text = format!("the statement has {} parameters, {} names are given", self.count, names.len());
            return Err(Failure::new(FailureKind::Sql, text));
        }
        let mut given = vec![false; self.count];
        for name in names {
            let number = self.names.get(name.as_str());
            match number.and_then(|number| given.get_mut(number.checked_sub(1)?)) {
                Some(slot) if !*slot => *slot = true,
                Some(_) => return Err(Failure::new(FailureKind::Sql, format!("parameter {name} is given twice"))),
                None => return Err(Failure::new(FailureKind::Sql, format!("the statement has no parameter {name}"))),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    fn parameters(sql: &str) -> Parameters {
        Parameters::of(&rusqlite::Connection::open_in_memory().unwrap().prepare(sql).unwrap())
    }

    fn given(names: &[&str], count: usize) -> Statement {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Statement { sql: "".into(), params: vec![1.into(); count], names }
    }

    #[test]
    fn positional_parameters_are_counted() {
        let two = parameters("SELECT ?, ?2");
        assert_eq!(two.check(&given(&[], 2)), Ok(()));
        assert_eq!(two.numbers(&given(&[], 2)).collect::<Vec<_>>(), [1, 2]);
        for wrong in [0, 1, 3] {
            assert!(two.check(&given(&[], wrong)).is_err());
        }
        assert_eq!(parameters("SELECT ?3").check(&given(&[], 3)), Ok(()));
    }

    #[test]
    fn names_may_have_any_order_but_must_be_unique() {
        let named = parameters("SELECT :a, @b, $c, :a");
        let statement = given(&["$c", ":a", "@b"], 3);
        assert_eq!(named.check(&statement), Ok(()));
        assert_eq!(named.numbers(&statement).collect::<Vec<_>>(), [3, 1, 2]);
        for wrong in [&[":a", "@b"][..], &[":a", ":a", "@b"], &[":a", "@b", ":c"], &[":a", "@b", "$c", "$d"]] {
            assert!(named.check(&given(wrong, 3)).is_err(), "{wrong:?}");
        }
        assert!(parameters("SELECT ?").check(&given(&["?"], 1)).is_err());
    }
}
