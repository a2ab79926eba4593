//! How SQLite runs the statements: each seeks its rows in the wanted index, and none sorts.

use quorate_keys::{Order, Part};
use rusqlite::{Connection, params_from_iter};

use super::Files;
use crate::keys::statements as sql;

const ROWID: &str = "INTEGER PRIMARY KEY (rowid=?)";
/// How a statement finds the generation of a space.
const SPACE: &str = "INDEX sqlite_autoindex__quorate_keys_generations_1 (space=?)";

fn plan(conn: &Connection, sql: &str) -> String {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let values = vec![1; statement.parameter_count()];
    let steps = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
    steps.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
}

/// Returns how the rows of a span are sought by the columns of an index.
fn span(index: &str, columns: &str) -> String {
    let places = vec!["?"; columns.split(',').count()].join(",");
    format!("{index} (({columns})>({places}) AND ({columns})<({places}))")
}

#[test]
fn rows_are_sought_in_an_index() {
    let conn = Files::new().connect();
    let name = "INDEX sqlite_autoindex__quorate_keys_1 (generation=? AND key=?)";
    let place = "COVERING INDEX sqlite_autoindex__quorate_keys_members_2";
    let expiry = |columns| format!("COVERING INDEX _quorate_keys_expiry (key_id=? AND expires_at{columns}?)");
    let block = "PRIMARY KEY (key_id=? AND level=? AND score=? AND member=?)";
    let blocks = span("PRIMARY KEY", "key_id,level,score,member");
    let ordered = [
        (&sql::KEYS, "keys", span("INDEX sqlite_autoindex__quorate_keys_1", "generation,key")),
        (&sql::ELEMENTS, "keys_elements", span("PRIMARY KEY", "key_id,field")),
        (&sql::EXPIRIES, "keys_elements", expiry(">")),
        (&sql::MEMBERS, "keys_members", span(place, "key_id,score,member")),
        (&sql::BLOCKS, "keys_blocks", blocks.clone()),
        (&sql::ITEMS, "keys_items", span("PRIMARY KEY", "key_id,position")),
    ];
    let both = |(query, table, by): (&sql::Ordered, _, String)| {
        [Order::Up, Order::Down].map(|order| (query.of(order), table, by.clone()))
    };
    let others = [
        (sql::FIND_KEY, "keys", name),
        (sql::GROW_SPACE, "keys_generations", SPACE),
        (sql::DETACH, "keys_generations", SPACE),
        (sql::COUNT_KEYS, "keys_generations", SPACE),
        (sql::FORGET_EMPTY, "keys_generations", SPACE),
        (sql::SHRINK, "keys_generations", ROWID),
        (sql::FIRST_DETACHED, "keys", "INDEX sqlite_autoindex__quorate_keys_1 (generation=?)"),
        (sql::KEY, "keys", ROWID),
        (sql::LAST_ID, "keys_ids", ROWID),
        (sql::UPDATE_KEY, "keys", ROWID),
        (sql::RENAME_KEY, "keys", ROWID),
        (sql::REMOVE_KEY, "keys", ROWID),
        (sql::ELEMENT, "keys_elements", "PRIMARY KEY (key_id=? AND field=?)"),
        (sql::REMOVE_ELEMENT, "keys_elements", "PRIMARY KEY (key_id=? AND field=?)"),
        (sql::COUNT_EXPIRED, "keys_elements", &expiry("<")),
        (sql::SCORE, "keys_members", "PRIMARY KEY (key_id=? AND member=?)"),
        (sql::REMOVE_MEMBER, "keys_members", "PRIMARY KEY (key_id=? AND member=?)"),
        (sql::SCORES, "keys_members", &span("PRIMARY KEY", "key_id,member")),
        (sql::COUNT_MEMBERS, "keys_members", &span(place, "key_id,score,member")),
        (sql::SUM_BLOCKS, "keys_blocks", &blocks),
        (sql::REMOVE_BLOCK, "keys_blocks", block),
        (sql::ITEM, "keys_items", "PRIMARY KEY (key_id=? AND position=?)"),
        (sql::REMOVE_ITEM, "keys_items", "PRIMARY KEY (key_id=? AND position=?)"),
        (sql::REMOVE_DUE, "keys_due", "PRIMARY KEY (due=? AND id=?)"),
        (sql::REMOVE_TRASH, "keys_trash", ROWID),
    ];
    let others = others.into_iter().map(|(sql, table, by)| (sql, table, by.to_owned()));
    for (sql, table, by) in ordered.into_iter().flat_map(both).chain(others) {
        let plan = plan(&conn, sql);
        let (own, others) = plan.split_once("; ").unwrap_or((&plan, ""));
        assert_eq!(own, format!("SEARCH _quorate_{table} USING {by}"), "{sql}");
        // The generation of the space or of the key.
        for step in others.split("; ").filter(|step| !step.is_empty() && !step.contains("SUBQUERY")) {
            assert!(step.starts_with("SEARCH _quorate_keys") && step.ends_with("=?)"), "{sql}: {step}");
        }
    }
}

#[test]
fn the_first_row_is_read_in_the_order_of_the_table() {
    let conn = Files::new().connect();
    assert_eq!(plan(&conn, sql::FIRST_DUE), "SCAN _quorate_keys_due");
    assert_eq!(plan(&conn, sql::FIRST_TRASH), "SCAN _quorate_keys_trash");
}

#[test]
fn views_are_searched_by_the_name_of_a_key_and_of_what_is_in_it() {
    let conn = Files::new().connect();
    let inside = [("hashes", "field", "e"), ("sets", "member", "e"), ("sorted_sets", "member", "m")];
    for (view, column, alias) in inside {
        let query = format!("SELECT * FROM quorate_{view} WHERE space = ?1 AND key = ?2 AND {column} = ?3");
        let (plan, row) = (plan(&conn, &query), format!("SEARCH {alias} USING PRIMARY KEY (key_id=? AND "));
        assert!(plan.contains("(generation=? AND key=?)") && plan.contains(&row), "{plan}");
    }
    for view in ["keys", "lists"] {
        let plan = plan(&conn, &format!("SELECT * FROM quorate_{view} WHERE space = ?1 AND key = ?2"));
        assert!(plan.contains("(generation=? AND key=?)") && !plan.contains("SCAN"), "{plan}");
    }
}

#[test]
fn rows_are_cleared_by_a_range() {
    let conn = Files::new().connect();
    for (part, table, column) in [
        (Part::Elements, "elements", "field"),
        (Part::Members, "members", "member"),
        (Part::Items, "items", "position"),
    ] {
        let plan = plan(&conn, sql::clear(part));
        let range = format!("SEARCH _quorate_keys_{table} USING PRIMARY KEY (key_id=? AND {column}<?); ");
        let inner = format!("SEARCH _quorate_keys_{table} USING PRIMARY KEY (key_id=?)");
        assert!(plan.starts_with(&range) && plan.contains(&inner) && !plan.contains("TEMP"), "{plan}");
    }
    let plan = plan(&conn, sql::clear(Part::Blocks));
    assert!(!plan.contains("SCAN") && !plan.contains("TEMP"), "{plan}");
}
