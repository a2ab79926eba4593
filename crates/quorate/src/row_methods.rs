//! The methods of all handles with queries that convert rows to values.

/// Defines the methods for a type that has a method `query` with the given receiver.
macro_rules! row_methods {
    (&$this:ident) => {
        $crate::row_methods::row_methods!($this, &$this);
    };
    (&mut $this:ident) => {
        $crate::row_methods::row_methods!($this, &mut $this);
    };
    ($this:ident, $($receiver:tt)+) => {
        /// Runs a query that returns exactly one row, and reads the row as a `T`: a single value, a tuple, or a struct.
        ///
        /// # Errors
        ///
        /// Returns the errors of `query`, and [`Error::Row`](crate::Error::Row) if the result does not have exactly one
        /// row or the row can't be read as a `T`.
        pub async fn query_one<T: quorate_sql::query::FromRowOwned>(
            $($receiver)+,
            sql: impl Into<std::borrow::Cow<'static, str>>,
            params: impl $crate::params::IntoParams,
        ) -> Result<T, $crate::error::Error> {
            Ok($this.query(sql, params).await?.one()?)
        }

        /// Runs a query that returns at most one row, and reads the row as a `T`. Returns `None` if there is no row.
        ///
        /// # Errors
        ///
        /// Returns the errors of `query`, and [`Error::Row`](crate::Error::Row) if the result has several rows or the
        /// row can't be read as a `T`.
        pub async fn query_optional<T: quorate_sql::query::FromRowOwned>(
            $($receiver)+,
            sql: impl Into<std::borrow::Cow<'static, str>>,
            params: impl $crate::params::IntoParams,
        ) -> Result<Option<T>, $crate::error::Error> {
            Ok($this.query(sql, params).await?.optional()?)
        }

        /// Runs a query and reads each of its rows as a `T`: a single value, a tuple, or a struct.
        ///
        /// # Errors
        ///
        /// Returns the errors of `query`, and [`Error::Row`](crate::Error::Row) if a row can't be read as a `T`.
        pub async fn query_as<T: quorate_sql::query::FromRowOwned>(
            $($receiver)+,
            sql: impl Into<std::borrow::Cow<'static, str>>,
            params: impl $crate::params::IntoParams,
        ) -> Result<Vec<T>, $crate::error::Error> {
            Ok($this.query(sql, params).await?.all()?)
        }
    };
}

pub(crate) use row_methods;
