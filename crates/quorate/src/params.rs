//! Parameters of statements, by position or by name.

use quorate_model::{Bulk, Command, Failure, FailureKind, PackedRows, Param, RowPacker, SqlCommand, Statement};
use quorate_sql::validate::is_vacuum;
use std::borrow::Cow;

/// The parameters of one statement. They are usually created from a tuple, or with [`params!`](crate::params) or
/// [`named!`](crate::named).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    values: Vec<Param>,
    names: Vec<String>,
}

impl Params {
    /// Creates parameters by position; the first value is parameter 1.
    pub fn positional(values: Vec<Param>) -> Self {
        Self { values, names: Vec::new() }
    }

    /// Creates parameters by name, as the statement spells them: `:a`, `@a` or `$a`. A name without a prefix stands for
    /// `:name`.
    pub fn named<N: AsRef<str>>(params: impl IntoIterator<Item = (N, Param)>) -> Self {
        let (names, values) = params.into_iter().map(|(name, value)| (with_prefix(name.as_ref()), value)).unzip();
        Self { values, names }
    }
}

fn with_prefix(name: &str) -> String {
    if name.starts_with([':', '@', '$']) { name.to_owned() } else { format!(":{name}") }
}

/// A type that can be used as the parameters of a statement: `()` for no parameters, a tuple of up to twelve values, an
/// array, slice or vector of values of one type, or [`Params`].
pub trait IntoParams {
    /// Converts the value into parameters.
    fn into_params(self) -> Params;
}

impl IntoParams for Params {
    fn into_params(self) -> Params {
        self
    }
}

impl IntoParams for () {
    fn into_params(self) -> Params {
        Params::default()
    }
}

impl<T: Into<Param>, const N: usize> IntoParams for [T; N] {
    fn into_params(self) -> Params {
        Params::positional(self.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Param>> IntoParams for Vec<T> {
    fn into_params(self) -> Params {
        Params::positional(self.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Param> + Clone> IntoParams for &[T] {
    fn into_params(self) -> Params {
        Params::positional(self.iter().cloned().map(Into::into).collect())
    }
}

macro_rules! tuples {
    ($($($part:ident)+;)*) => {$(
        impl<$($part: Into<Param>),+> IntoParams for ($($part,)+) {
            fn into_params(self) -> Params {
                #[expect(non_snake_case, reason = "a variable for each type")]
                let ($($part,)+) = self;
                Params::positional(vec![$($part.into()),+])
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
}

/// Creates parameters by position, of any number and types.
///
/// ```
/// let params = quorate::params![1, "two", 3.0, None::<i64>];
/// ```
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        $crate::Params::positional(::std::vec![$($crate::sql::Param::from($value)),*])
    };
}

/// Creates parameters by name. An identifier `name` stands for `:name`; a string literal is used as it is.
///
/// ```
/// let params = quorate::named! { id: 1, "@city": "Bern" };
/// ```
#[macro_export]
macro_rules! named {
    (@name $name:ident) => { ::std::stringify!($name) };
    (@name $name:literal) => { $name };
    ($($name:tt : $value:expr),* $(,)?) => {
        $crate::Params::named::<&str>([$(($crate::named!(@name $name), $crate::sql::Param::from($value))),*])
    };
}

/// A type that can be used as a statement: a SQL text, or a SQL text with its parameters.
pub trait IntoStatement {
    /// Converts the value into a statement.
    fn into_statement(self) -> Statement<Param>;
}

impl IntoStatement for Statement<Param> {
    fn into_statement(self) -> Self {
        self
    }
}

impl IntoStatement for Statement {
    fn into_statement(self) -> Statement<Param> {
        self.into()
    }
}

impl IntoStatement for &'static str {
    fn into_statement(self) -> Statement<Param> {
        (self, ()).into_statement()
    }
}

impl IntoStatement for Cow<'static, str> {
    fn into_statement(self) -> Statement<Param> {
        (self, ()).into_statement()
    }
}

impl IntoStatement for String {
    fn into_statement(self) -> Statement<Param> {
        (self, ()).into_statement()
    }
}

impl<S: Into<Cow<'static, str>>, P: IntoParams> IntoStatement for (S, P) {
    fn into_statement(self) -> Statement<Param> {
        let Params { values, names } = self.1.into_params();
        Statement { sql: self.0.into(), params: values, names }
    }
}

/// One step of a batch: a statement, a [`Bulk`] of one statement with many rows of parameters, a command on keys
/// ([`KeysCall`](crate::keys::KeysCall)) or on locks ([`LocksCall`](crate::locks::LocksCall)), or an event
/// ([`Notify`](crate::events::Notify)).
#[derive(Clone, Debug, PartialEq)]
pub struct BatchStep(pub(crate) Command);

impl<S: IntoStatement> From<S> for BatchStep {
    fn from(statement: S) -> Self {
        let statement = statement.into_statement();
        let is_vacuum = is_vacuum(&statement.sql);
        Self(if is_vacuum { SqlCommand::Vacuum } else { SqlCommand::Statement(statement) }.into())
    }
}

impl From<Bulk> for BatchStep {
    fn from(bulk: Bulk) -> Self {
        Self(SqlCommand::Bulk(bulk).into())
    }
}

/// Creates an array of steps of different kinds, for [`Sql::batch`](crate::Sql::batch) and
/// [`Sql::pipeline`](crate::Sql::pipeline).
///
/// ```
/// # fn f(keys: quorate::Keys) {
/// use quorate::{params, steps};
///
/// let steps = steps![("INSERT INTO visits (name) VALUES (?)", params!["ann"]), keys.increment("visits", 1)];
/// # }
/// ```
#[macro_export]
macro_rules! steps {
    ($($step:expr),* $(,)?) => { [$($crate::sql::BatchStep::from($step)),*] };
}

/// Packs rows of parameters, which must be positional.
pub(crate) fn pack<P: IntoParams>(rows: impl IntoIterator<Item = P>) -> Result<PackedRows, Failure> {
    let mut packer = None;
    for (number, row) in (0..).zip(rows) {
        let of_row = |failure| Failure { row: Some(number), ..failure };
        let Params { values, names } = row.into_params();
        if !names.is_empty() || values.is_empty() {
            let text = "the parameters of many rows are given by position, at least one for each row";
            return Err(of_row(Failure::new(FailureKind::Refused, text)));
        }
        let packer = packer.get_or_insert_with(|| RowPacker::new(values.len()));
        for param in values {
            packer.push((&param.into_value().map_err(of_row)?).into());
        }
        packer.end_row().map_err(of_row)?;
    }
    packer
        .map(RowPacker::finish)
        .ok_or_else(|| Failure::new(FailureKind::Refused, "there is no row of parameters; give at least one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Step, Value};

    #[test]
    fn tuples_arrays_and_macros_give_the_same_parameters() {
        let expected = Params::positional(vec![1.into(), 2.into()]);
        assert_eq!((1, 2_i64).into_params(), expected);
        assert_eq!([1, 2].into_params(), expected);
        assert_eq!(vec![1, 2].into_params(), expected);
        assert_eq!([1, 2].as_slice().into_params(), expected);
        assert_eq!(params![1, 2_u8,], expected);
        assert_eq!(params![], ().into_params());
    }

    #[test]
    fn names_without_a_prefix_get_a_colon() {
        let statement = ("SELECT 1", named! { a: 1, "@b": "x", "$c": Value::Null, "d": 2.5 }).into_statement();
        assert_eq!(statement.names, [":a", "@b", "$c", ":d"]);
        assert_eq!(statement.params, [1.into(), "x".into(), Value::Null.into(), 2.5.into()]);
        assert_eq!(named! {}, ().into_params());
    }

    #[test]
    fn a_step_column_is_a_parameter_in_batches_only() {
        let step = ("SELECT ?", (Step(0).column("id"),)).into_statement();
        assert_eq!(step, ("SELECT ?", params![Step(0).column("id".to_owned())]).into_statement());
        let text = "what a step returned can be a parameter only of a later statement of the same batch";
        assert_eq!(step.into_query().map_err(|failure| failure.to_string()), Err(text.to_owned()));
        let rows = pack([params![1], params![Step(0).column(0)]]);
        assert_eq!(rows.map_err(|failure| failure.to_string()), Err(format!("row 2: {text}")));
    }
}
