//! The methods that read rows as values, which all handles have that run queries.

/// Adds the methods to a type that has a method `query` with the given receiver.
macro_rules! row_methods {
    (&$this:ident) => {
        $crate::row_methods::row_methods!($this, &$this);
    };
    (&mut $this:ident) => {
        $crate::row_methods::row_methods!($this, &mut $this);
    };
    ($this:ident, $($receiver:tt)+) => {
        /// Runs a query that returns exactly one row: as one value, or as a tuple of them.
        pub async fn query_one<T: quorate_sql::query::FromRowOwned>(
            $($receiver)+,
            sql: impl Into<std::borrow::Cow<'static, str>>,
            params: impl $crate::params::IntoParams,
        ) -> Result<T, $crate::error::Error> {
            Ok($this.query(sql, params).await?.one()?)
        }

        /// Runs a query that returns one row or none.
        pub async fn query_optional<T: quorate_sql::query::FromRowOwned>(
            $($receiver)+,
            sql: impl Into<std::borrow::Cow<'static, str>>,
            params: impl $crate::params::IntoParams,
        ) -> Result<Option<T>, $crate::error::Error> {
            Ok($this.query(sql, params).await?.optional()?)
        }

        /// Runs a query and reads each of its rows as one value, or as a tuple of them.
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
