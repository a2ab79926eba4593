//! What SQL sees of keys, and what it may not do with them.

use super::*;

/// When the field of the hash expires; the string does a second later.
const EXPIRY: u64 = START + 1_000 * 3600 * SECOND;

/// A node with one key of each kind.
fn with_each(setup: &[&str]) -> Node {
    let mut node = Node::with(setup);
    for command in one_of_each(EXPIRY) {
        node.propose(&alone(command)).unwrap();
    }
    node
}

/// The rows of a query, as one text for each.
fn lines(node: &mut Node, sql: &str) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) => value.to_string(),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => format!("x{}", String::from_utf8_lossy(bytes)),
    };
    node.ok(sql).rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn each_kind_of_key_has_a_view() {
    let mut node = with_each(&[]);
    let expected = [
        "xhash hash - -",
        "xlist list - -",
        "xset set - -",
        "xsorted sorted set - -",
        "xstring string 2023-12-26 14:13:21.000 xvalue",
    ];
    assert_eq!(lines(&mut node, "SELECT key, type, expires_at, value FROM quorate_keys ORDER BY key"), expected);
    let hash = "SELECT space, key, field, version, expires_at, value FROM quorate_hashes ORDER BY field";
    let version = 2 << 16;
    let expected = ["f", "g"].map(|field| {
        let value = if field == "f" { "v" } else { "w" };
        format!("0 xhash x{field} {version} 2023-12-26 14:13:20.000 x{value}")
    });
    assert_eq!(lines(&mut node, hash), expected);
    let sets = "SELECT key, member, version, expires_at FROM quorate_sets";
    assert_eq!(lines(&mut node, sets), [format!("xset xm {} -", 3 << 16)]);
    assert_eq!(
        lines(&mut node, "SELECT key, member, score FROM quorate_sorted_sets ORDER BY score"),
        ["xsorted xm 1.5", "xsorted xn inf"]
    );
    let list = "SELECT key, position, value FROM quorate_lists ORDER BY position";
    assert_eq!(lines(&mut node, list), ["xlist 0 xy", "xlist 1 xx"]);
}

#[test]
fn what_has_expired_is_not_shown_whether_or_not_it_was_swept() {
    let mut node = with_each(&[]);
    let count = "SELECT (SELECT count(*) FROM quorate_keys), (SELECT count(*) FROM quorate_hashes)";
    let mut at = |now: u64| {
        let outcome = node.apply(&[stamped(node.next, now, &single(count))]).remove(0);
        only(&outcome.unwrap()).rows.remove(0)
    };
    assert_eq!(at(EXPIRY - 1_000_000), [5.into(), 2.into()]);
    assert_eq!(at(EXPIRY), [4.into(), 0.into()], "the hash is gone with its last field");
    assert_eq!(at(EXPIRY + SECOND), [3.into(), 0.into()]);
}

#[test]
fn a_member_of_a_sorted_set_is_shown_until_it_expires() {
    let mut node = with_each(&[]);
    let (key, members, condition) = ("sorted".into(), vec!["m".into()], ExpiryCondition::Always);
    let expire = SortedSetCommand::Expire { key, members, at: Some(EXPIRY), condition, relative: false };
    node.propose(&alone(KeysCommand::SortedSet(expire))).unwrap();
    let expected = ["xm 1.5 2023-12-26 14:13:20.000", "xn inf -"];
    let all = "SELECT member, score, expires_at FROM quorate_sorted_sets ORDER BY score";
    assert_eq!(lines(&mut node, all), expected);
    let outcome =
        node.apply(&[stamped(node.next, EXPIRY, &single("SELECT member FROM quorate_sorted_sets"))]).remove(0);
    assert_eq!(only(&outcome.unwrap()).rows, [[Value::from(b"n".to_vec())]]);
}

#[test]
fn statements_triggers_and_views_may_read_the_views() {
    let mut node = with_each(&[
        "CREATE TABLE t (a, b)",
        "CREATE VIEW mine AS SELECT key FROM quorate_keys WHERE type = 'list'",
        "CREATE TRIGGER g AFTER INSERT ON t WHEN new.b IS NULL BEGIN
            UPDATE t SET b = (SELECT score FROM quorate_sorted_sets WHERE member = x'6d') WHERE a = new.a; END",
    ]);
    node.ok("INSERT INTO t VALUES (1, NULL)");
    assert_eq!(node.value("SELECT b FROM t"), Value::Real(1.5));
    assert_eq!(lines(&mut node, "SELECT * FROM mine"), ["xlist"]);
    assert_eq!(lines(&mut node, "WITH w AS (SELECT * FROM quorate_sets) SELECT key FROM w"), ["xset"]);
    node.ok("ALTER TABLE t RENAME TO u");
    assert_eq!(lines(&mut node, "SELECT * FROM mine"), ["xlist"]);
}

#[test]
fn sql_neither_reads_the_tables_nor_changes_anything_of_them() {
    let mut node = with_each(&["CREATE TABLE t (a)"]);
    let before = node.hashes().0;
    for sql in [
        "SELECT * FROM _quorate_keys",
        "INSERT INTO t SELECT value FROM _quorate_keys_items",
        "CREATE VIEW v AS SELECT * FROM _quorate_keys",
        "INSERT INTO _quorate_keys_trash VALUES (1, 1)",
        "DELETE FROM _quorate_keys_elements",
        "UPDATE quorate_keys SET value = x'00'",
        "DELETE FROM quorate_lists",
        "INSERT INTO quorate_sets (key, member) VALUES (x'61', x'62')",
        "CREATE TRIGGER g INSTEAD OF INSERT ON quorate_sets BEGIN DELETE FROM t; END",
        "DROP VIEW quorate_keys",
        "DROP TABLE _quorate_keys_ids",
        "DROP INDEX _quorate_keys_expiry",
        "CREATE INDEX i ON _quorate_keys (value)",
        "ALTER TABLE quorate_keys RENAME TO mine",
        "ALTER TABLE t RENAME TO quorate_hashes",
        "CREATE TABLE Quorate_Lists (a)",
        "CREATE TEMP VIEW quorate_keys AS SELECT 1",
    ] {
        let failure = node.fails(sql);
        assert!(matches!(failure.kind, FailureKind::Refused | FailureKind::Sql), "{sql}: {failure:?}");
    }
    assert_eq!(node.hashes().0, before);
    node.ok("REINDEX");
    node.ok("ANALYZE");
    assert_eq!(node.value("SELECT count(*) FROM sqlite_stat1 WHERE tbl LIKE '%quorate%'"), Value::Integer(0));
}

/// The hash of data is that of nodes which do not have the tables yet, until there are keys.
#[test]
fn keys_count_as_data_when_nodes_are_compared() {
    let mut node = Node::new();
    let (empty, records, _) = node.hashes();
    node.propose(&alone(set("k", "v", Expiry::Never))).unwrap();
    let (first, same, _) = node.hashes();
    assert!(first != empty && same == records);
    node.propose(&alone(set("k", "w", Expiry::Never))).unwrap();
    assert_ne!(node.hashes().0, first);
    let names: Vec<String> = logical_hash::by_table(node.conn()).unwrap().into_iter().map(|(name, _)| name).collect();
    let of_keys: Vec<&String> = names.iter().filter(|name| name.starts_with("_quorate_keys")).collect();
    assert_eq!(of_keys, ["_quorate_keys", "_quorate_keys_generations", "_quorate_keys_ids"]);
}
