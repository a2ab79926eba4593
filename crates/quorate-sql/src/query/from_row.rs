//! Conversion of rows to Rust types.

use quorate_model::Value;

use super::{FromValue, RowError, RowRef};

/// A type that can be read from a row: a single value from a row with one column, a tuple from a row with as many
/// columns as the tuple has elements.
pub trait FromRow<'a>: Sized {
    /// Reads a row.
    fn from_row(row: RowRef<'a>) -> Result<Self, RowError>;
}

/// A type that can be read from a row and borrows nothing from it.
pub trait FromRowOwned: for<'a> FromRow<'a> {}

impl<T: for<'a> FromRow<'a>> FromRowOwned for T {}

/// Returns the row itself.
impl<'a> FromRow<'a> for RowRef<'a> {
    fn from_row(row: RowRef<'a>) -> Result<Self, RowError> {
        Ok(row)
    }
}

/// Copies all values of the row.
impl FromRow<'_> for Vec<Value> {
    fn from_row(row: RowRef<'_>) -> Result<Self, RowError> {
        Ok(row.values().to_vec())
    }
}

macro_rules! single {
    ($($type:ty),*) => {$(
        impl<'a> FromRow<'a> for $type {
            fn from_row(row: RowRef<'a>) -> Result<Self, RowError> {
                row.expect_columns(1)?;
                row.get(0)
            }
        }
    )*};
}

pub(super) use single;

single!(i64, i32, i16, i8, u64, u32, u16, u8, usize, f64, bool, String, &'a str, Vec<u8>, &'a [u8], Value, &'a Value);

impl<'a, T: FromValue<'a>> FromRow<'a> for Option<T> {
    fn from_row(row: RowRef<'a>) -> Result<Self, RowError> {
        row.expect_columns(1)?;
        row.get(0)
    }
}

macro_rules! tuple {
    ($count:literal: $($part:ident $number:literal),*) => {
        impl<'a, $($part: FromValue<'a>),*> FromRow<'a> for ($($part,)*) {
            fn from_row(row: RowRef<'a>) -> Result<Self, RowError> {
                row.expect_columns($count)?;
                Ok(($(row.get::<$part>($number)?,)*))
            }
        }
    };
}

tuple!(1: A 0);
tuple!(2: A 0, B 1);
tuple!(3: A 0, B 1, C 2);
tuple!(4: A 0, B 1, C 2, D 3);
tuple!(5: A 0, B 1, C 2, D 3, E 4);
tuple!(6: A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
