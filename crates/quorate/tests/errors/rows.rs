//! Errors of rows that do not match the program's types.

use quorate::{Error, FromRow, Sql};

use crate::fails;
use crate::support::on_both;

#[derive(Debug, FromRow)]
struct Person {
    #[allow(dead_code, reason = "it is read")]
    id: u8,
    #[allow(dead_code, reason = "it is read")]
    #[quorate(json)]
    tags: Vec<String>,
}

#[derive(Debug, serde::Deserialize)]
struct Item {
    #[allow(dead_code, reason = "it is read")]
    id: u8,
}

async fn item(sql: &Sql, query: &'static str) -> Result<Vec<Item>, Error> {
    Ok(sql.query(query, ()).await?.deserialize()?)
}

#[test]
fn rows_that_do_not_fit() {
    on_both(async |sql| {
        let none = "one row was expected, the result has 0; query_optional allows for none";
        fails(sql.query_one::<i64>("SELECT 1 WHERE 0", ()).await, none);
        let two = "one row was expected, the result has 2; query_as takes them all";
        fails(sql.query_one::<i64>("VALUES (1), (2)", ()).await, two);
        fails(sql.query_optional::<i64>("VALUES (1), (2)", ()).await, two);
        fails(sql.query_as::<i64>("SELECT 1, 2", ()).await, "1 column was expected, the result has 2; select as many");
        let three = "3 columns were expected, the result has 2; select as many";
        fails(sql.query_as::<(i64, i64, i64)>("SELECT 1, 2", ()).await, three);
        Ok(())
    });
}

#[test]
fn values_that_do_not_fit() {
    on_both(async |sql| {
        let text = r#"column "a": an INTEGER was expected, it holds TEXT"#;
        fails(sql.query_one::<i64>("SELECT 'x' AS a", ()).await, text);
        let null = r#"column "a": TEXT was expected, it holds NULL; read it as an Option"#;
        fails(sql.query_one::<String>("SELECT NULL AS a", ()).await, null);
        let wide = r#"column "id": an INTEGER of 8 bits without sign was expected, it holds INTEGER 256"#;
        fails(sql.query_one::<Person>("SELECT 256 AS id, '[]' AS tags", ()).await, wide);
        fails(sql.query_one::<Person>("SELECT 1 AS id, 2 AS tag", ()).await, "no column tags: the result has id, tag");
        let json = r#"column "tags": EOF while parsing a list at line 1 column 1"#;
        fails(sql.query_one::<Person>("SELECT 1 AS id, '[' AS tags", ()).await, json);
        Ok(())
    });
}

#[test]
fn rows_that_serde_can_not_read() {
    on_both(async |sql| {
        fails(item(&sql, "SELECT 1 AS a, 2 AS b").await, "missing field `id`: the result has a, b");
        let text = r#"column "id": invalid type: string "x", expected u8"#;
        fails(item(&sql, "SELECT 'x' AS id").await, text);
        Ok(())
    });
}
