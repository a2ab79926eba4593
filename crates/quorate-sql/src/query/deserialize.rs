//! Reads rows with `serde`: structs and maps by the names of columns, tuples and sequences by position, and any other
//! type from a single column.
//!
//! Values are read by their storage class: a `bool` from the INTEGER 0 or 1, an `f64` also from an INTEGER that it can
//! represent exactly, bytes from a BLOB, an enum of unit variants from a TEXT with the name of a variant. An `Option`
//! is `None` if the value is NULL.

use std::fmt;

use quorate_model::Value;
use serde::de::value::{BorrowedStrDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::{FromValue, RowError, RowRef, Rows, columns_expected};

impl Rows {
    /// Returns all rows as `T`.
    ///
    /// ```
    /// # use quorate_sql::query::{RowError, Rows};
    /// #[derive(serde::Deserialize)]
    /// struct User {
    ///     id: i64,
    ///     name: Option<String>,
    /// }
    ///
    /// # fn f(rows: &Rows) -> Result<(), RowError> {
    /// let users: Vec<User> = rows.deserialize()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn deserialize<'a, T: Deserialize<'a>>(&'a self) -> Result<Vec<T>, RowError> {
        self.iter().map(RowRef::deserialize).collect()
    }
}

impl<'a> RowRef<'a> {
    /// Returns the row as `T`.
    pub fn deserialize<T: Deserialize<'a>>(self) -> Result<T, RowError> {
        T::deserialize(Row(self)).map_err(|Failed { column, error }| match column {
            Some(column) => RowError::Conversion { column, error: error.into() },
            None => RowError::Shape { error, columns: self.columns().join(", ") },
        })
    }
}

/// Why a row could not be read, and the column, if a value was the reason.
#[derive(Debug)]
struct Failed {
    column: Option<String>,
    error: String,
}

impl Failed {
    fn of(column: &str) -> impl FnOnce(Self) -> Self {
        move |failed| Self { column: Some(column.to_owned()), ..failed }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Failed {}

impl de::Error for Failed {
    fn custom<T: fmt::Display>(error: T) -> Self {
        Self { column: None, error: error.to_string() }
    }
}

#[derive(Clone, Copy)]
struct Row<'de>(RowRef<'de>);

impl<'de> Row<'de> {
    /// Returns the value of the only column.
    fn only(self) -> Result<(Cell<'de>, &'de str), Failed> {
        match (self.0.columns(), self.0.values()) {
            ([column], [value]) => Ok((Cell(value), column)),
            _ => Err(de::Error::custom(columns_expected(1))),
        }
    }
}

/// Methods that read the value of the only column.
macro_rules! single {
    ($($method:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
            let (cell, column) = self.only()?;
            cell.$method(visitor).map_err(Failed::of(column))
        }
    )*};
}

impl<'de> Deserializer<'de> for Row<'de> {
    type Error = Failed;

    single!(deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_i128);
    single!(deserialize_u8, deserialize_u16, deserialize_u32, deserialize_u64, deserialize_u128);
    single!(deserialize_f32, deserialize_f64, deserialize_char, deserialize_str, deserialize_string);
    single!(deserialize_bytes, deserialize_byte_buf, deserialize_identifier);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let columns = self.0.columns().iter().map(String::as_str);
        visitor.visit_map(Columns { left: columns.zip(self.0.values()), value: None })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_seq(Cells(self.0.columns().iter().zip(self.0.values())))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Failed> {
        if self.0.columns().len() != len {
            return Err(de::Error::custom(columns_expected(len)));
        }
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        match self.0.values() {
            [Value::Null] => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        let (cell, column) = self.only()?;
        cell.deserialize_enum(name, variants, visitor).map_err(Failed::of(column))
    }

    forward_to_deserialize_any! { unit unit_struct map struct ignored_any }
}

/// The columns of a row, by their names.
struct Columns<'de, I> {
    left: I,
    value: Option<(&'de str, &'de Value)>,
}

impl<'de, I: Iterator<Item = (&'de str, &'de Value)>> MapAccess<'de> for Columns<'de, I> {
    type Error = Failed;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failed> {
        self.value = self.left.next();
        self.value.map(|(column, _)| seed.deserialize(BorrowedStrDeserializer::new(column))).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Failed> {
        let (column, value) = self.value.take().ok_or_else(|| de::Error::custom("a value without a key"))?;
        seed.deserialize(Cell(value)).map_err(Failed::of(column))
    }
}

/// The values of a row, by position.
struct Cells<I>(I);

impl<'de, I: Iterator<Item = (&'de String, &'de Value)>> SeqAccess<'de> for Cells<I> {
    type Error = Failed;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Failed> {
        let Some((column, value)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Cell(value)).map(Some).map_err(Failed::of(column))
    }
}

/// One value.
#[derive(Clone, Copy)]
struct Cell<'de>(&'de Value);

impl<'de> Deserializer<'de> for Cell<'de> {
    type Error = Failed;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Integer(value) => visitor.visit_i64(*value),
            Value::Real(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Blob(bytes) => visitor.visit_borrowed_bytes(bytes),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_bool(bool::from_value(self.0).map_err(de::Error::custom)?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_f64(f64::from_value(self.0).map_err(de::Error::custom)?)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        if *self.0 == Value::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }

    /// A BLOB is also a sequence, for types that do not ask for bytes, such as `Vec<u8>`.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        match self.0 {
            Value::Blob(bytes) => visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied())),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        match self.0 {
            Value::Text(variant) => visitor.visit_enum(variant.as_str().into_deserializer()),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string bytes byte_buf unit unit_struct tuple_struct map struct
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use std::collections::BTreeMap;

    use super::*;

    fn rows(columns: &[&str], values: Vec<Value>) -> Rows {
        Rows::new(columns.iter().map(|name| (*name).to_owned()).collect(), values)
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum State {
        Open,
        Sold,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Item<'a> {
        id: u32,
        name: &'a str,
        note: Option<String>,
        price: f64,
        is_new: bool,
        state: State,
        #[serde(default)]
        weight: i64,
        image: Vec<u8>,
    }

    const COLUMNS: [&str; 7] = ["id", "name", "note", "price", "is_new", "state", "image"];

    fn item() -> Vec<Value> {
        vec![1.into(), "tea".into(), Value::Null, 2.into(), true.into(), "sold".into(), vec![0_u8, 255].into()]
    }

    #[test]
    fn structs_are_read_by_name() {
        let (name, note, state, image) = ("tea", None, State::Sold, vec![0, 255]);
        let expected = Item { id: 1, name, note, price: 2.0, is_new: true, state, weight: 0, image };
        assert_eq!(rows(&COLUMNS, item()).deserialize(), Ok(vec![expected]));
        let map: Vec<BTreeMap<String, i64>> = rows(&["a", "b"], vec![1.into(), 2.into()]).deserialize().unwrap();
        assert_eq!(map, [[("a".to_owned(), 1), ("b".to_owned(), 2)].into()]);
    }

    #[test]
    fn tuples_are_read_by_position() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Id(i64);
        let two = rows(&["a", "b"], vec![1.into(), "x".into(), 2.into(), Value::Null]);
        assert_eq!(two.deserialize::<(Id, Option<&str>)>(), Ok(vec![(Id(1), Some("x")), (Id(2), None)]));
        let one = rows(&["a"], vec![7.into(), Value::Null]);
        assert_eq!(one.deserialize::<Option<Id>>(), Ok(vec![Some(Id(7)), None]));
        assert_eq!(rows(&["a"], vec!["open".into()]).deserialize::<State>(), Ok(vec![State::Open]));
        assert_eq!(rows(&["a"], vec![vec![1_u8, 2].into()]).deserialize::<(&[u8],)>().unwrap(), [([1, 2].as_slice(),)]);
    }

    #[track_caller]
    fn error<'a, T: Deserialize<'a>>(rows: &'a Rows) -> String {
        rows.deserialize::<T>().map(drop).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_column_and_the_reason() {
        for (column, value, text) in [
            (0, Value::Integer(-1), r#"column "id": invalid value: integer `-1`, expected u32"#),
            (1, 5.into(), r#"column "name": invalid type: integer `5`, expected a borrowed string"#),
            (3, (i64::MAX).into(), r#"column "price": a REAL was expected, it holds INTEGER 9223372036854775807"#),
            (4, 2.into(), r#"column "is_new": 0 or 1 was expected, it holds INTEGER 2"#),
            (5, "lost".into(), r#"column "state": unknown variant `lost`, expected `open` or `sold`"#),
            (6, "text".into(), r#"column "image": invalid type: string "text", expected a sequence"#),
        ] {
            let mut values = item();
            *values.get_mut(column).unwrap() = value;
            assert_eq!(error::<Item<'_>>(&rows(&COLUMNS, values)), text);
        }
        let two = rows(&["a", "b"], vec![1.into(), 2.into()]);
        assert_eq!(error::<Item<'_>>(&two), "missing field `id`: the result has a, b");
        assert_eq!(error::<i64>(&two), "1 column was expected: the result has a, b");
        assert_eq!(error::<(i64,)>(&two), "1 column was expected: the result has a, b");
    }
}
