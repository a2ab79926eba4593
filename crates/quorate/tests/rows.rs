//! Reading rows into structs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::num::NonZeroU8;

use quorate::sql::FromValue;
use quorate::{Error, FromRow, Level, Rows, Sql, Value};
use support::on_both;

#[derive(Debug, FromRow, PartialEq)]
#[quorate(rename_all = "camelCase")]
struct Person {
    id: i64,
    full_name: String,
    #[quorate(rename = "age")]
    years: Option<u8>,
    #[quorate(flatten)]
    address: Address,
    #[quorate(default = "nobody")]
    nick_name: String,
    #[quorate(default)]
    friends: u32,
    #[quorate(try_from = "u8")]
    floor: NonZeroU8,
    #[quorate(try_from = "u8", default, rename = "room")]
    room: Room,
    #[quorate(skip)]
    seen: bool,
    r#type: Value,
}

#[derive(Debug, FromRow, PartialEq)]
struct Address {
    street: String,
    city: Option<String>,
}

#[derive(Debug, Default, PartialEq)]
struct Room(u8);

impl From<u8> for Room {
    fn from(number: u8) -> Self {
        Self(number)
    }
}

fn nobody() -> String {
    "nobody".to_owned()
}

#[derive(Debug, FromRow, PartialEq)]
struct Borrowed<'a, T> {
    name: &'a str,
    #[quorate(rename = "value")]
    values: T,
}

#[derive(Debug, FromRow, PartialEq)]
struct Pair(i64, Option<String>);

const PERSON: &str = "SELECT 'text' AS type, 1 AS id, 'Ann Ash' AS fullName, 42 AS age, 'Elm 1' AS street, \
                      NULL AS city, NULL AS nickName, 3 AS floor, 7 AS room, 'not asked for' AS more";

async fn rows(sql: &Sql, query: &str) -> Result<Rows, Error> {
    sql.at(Level::Local).query(query.to_owned(), ()).await
}

#[test]
fn structs_are_read_by_the_names_of_columns() {
    on_both(async |sql| {
        let ann: Person = sql.query_one(PERSON, ()).await?;
        let address = Address { street: "Elm 1".to_owned(), city: None };
        let expected = Person {
            id: 1,
            full_name: "Ann Ash".to_owned(),
            years: Some(42),
            address,
            nick_name: nobody(),
            friends: 0,
            floor: NonZeroU8::new(3).unwrap(),
            room: Room(7),
            seen: false,
            r#type: "text".into(),
        };
        assert_eq!(ann, expected);
        assert_eq!(sql.query_as::<Person>(format!("{PERSON} WHERE 0"), ()).await?, []);
        Ok(())
    });
}

#[test]
fn rows_that_do_not_match_a_struct_are_errors() {
    on_both(async |sql| {
        let of = |from: &str, to: &str| PERSON.replace(from, to);
        let columns = "type, id, fullName, age, street, city, nickName, floor, room, more";
        let cases = [
            (
                of("AS fullName", "AS full_name"),
                format!("no column fullName: the result has {}", columns.replace("fullName", "full_name")),
            ),
            (
                of("'Elm 1' AS street", "1 AS street"),
                "column \"street\": TEXT was expected, it holds INTEGER".to_owned(),
            ),
            (
                of("3 AS floor", "0 AS floor"),
                "column \"floor\": out of range integral type conversion attempted".to_owned(),
            ),
            (
                of("42 AS age", "256 AS age"),
                "column \"age\": an INTEGER of 8 bits without sign was expected, it holds INTEGER 256".to_owned(),
            ),
        ];
        for (query, expected) in cases {
            let error = sql.query_one::<Person>(query, ()).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        Ok(())
    });
}

#[test]
fn structs_may_borrow_and_have_parameters() {
    on_both(async |sql| {
        let rows = rows(&sql, "SELECT 'ann' AS name, 1 AS value UNION ALL SELECT 'bob', 2").await?;
        let found: Vec<Borrowed<'_, Option<u8>>> = rows.all().unwrap();
        assert_eq!(found, [Borrowed { name: "ann", values: Some(1) }, Borrowed { name: "bob", values: Some(2) }]);
        assert_eq!(read_generic::<i64>(&rows), [1, 2]);
        Ok(())
    });
}

fn read_generic<'a, T: FromValue<'a>>(rows: &'a Rows) -> Vec<T> {
    rows.all::<Borrowed<'_, T>>().unwrap().into_iter().map(|borrowed| borrowed.values).collect()
}

#[test]
fn tuple_structs_are_read_by_position() {
    on_both(async |sql| {
        assert_eq!(
            sql.query_as::<Pair>("SELECT 1, 'a' UNION ALL SELECT 2, NULL", ()).await?,
            [Pair(1, Some("a".to_owned())), Pair(2, None)]
        );
        let error = sql.query_one::<Pair>("SELECT 1", ()).await.unwrap_err();
        assert_eq!(error.to_string(), "2 columns were expected, the result has 1; select as many");
        Ok(())
    });
}
