//! Migrations: each one runs once, however many programs run it and however often. Files that contradict the migrations
//! that were run are errors.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use quorate::sql::{MigrateError, Migration};
use quorate::{Error, Level, Migrations, Sql};
use support::{Cluster, Single, on_both, run};

const FIRST: (&str, &str) =
    ("0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;");
const SECOND: (&str, &str) = (
    "0002_first users.sql",
    "-- Everybody knows them; they come first.
     INSERT INTO users (name) VALUES ('ann;'), ('bob');
     CREATE TRIGGER lower AFTER INSERT ON users BEGIN
         UPDATE users SET name = lower(name) WHERE id = new.id;
         SELECT 1;
     END;
     INSERT INTO users (name) VALUES ('CID')",
);
const THIRD: (&str, &str) = ("0010_tags.sql", "CREATE TABLE tags (user INTEGER REFERENCES users, tag TEXT)");

fn migrations(files: &[(&'static str, &'static str)]) -> Migrations {
    Migrations::new(files.iter().map(|(file, sql)| Migration::new(*file, *sql).unwrap())).unwrap()
}

fn files(run: Result<Vec<Migration>, MigrateError>) -> Vec<String> {
    run.unwrap().iter().map(|migration| migration.file().to_owned()).collect()
}

async fn names(sql: &Sql) -> Result<Vec<String>, Error> {
    sql.at(Level::Linearizable).query_as("SELECT name FROM users ORDER BY id", ()).await
}

#[test]
fn each_migration_runs_once_in_order() {
    on_both(async |sql| {
        let (two, three) = (migrations(&[SECOND, FIRST]), migrations(&[FIRST, SECOND, THIRD]));
        let status = sql.migration_status(&three).await.unwrap();
        assert_eq!((status.done.len(), status.pending.len()), (0, 3));
        assert_eq!(files(sql.migrate(&two).await), [FIRST.0, SECOND.0]);
        assert_eq!(sql.at(Level::Local).query_one("SELECT count(*) FROM users", ()).await, Ok(3_i64));
        assert_eq!(sql.migrate(&two).await, Ok(Vec::new()));
        let status = sql.migration_status(&three).await.unwrap();
        assert_eq!(files(Ok(status.pending)), [THIRD.0]);
        assert_eq!(files(sql.migrate(&three).await), [THIRD.0]);
        assert_eq!(sql.migrate(&two).await, Ok(Vec::new()), "an older program starts next to a newer one");
        assert_eq!(names(&sql).await?, ["ann;", "bob", "cid"]);
        let windows = Migration::new(SECOND.0, SECOND.1.replace('\n', "\r\n")).unwrap();
        let same = Migrations::new([Migration::new(FIRST.0, FIRST.1).unwrap(), windows]).unwrap();
        assert_eq!(sql.migrate(&same).await, Ok(Vec::new()));
        Ok(())
    });
}

#[test]
fn contradicting_files_are_errors() {
    on_both(async |sql| {
        sql.migrate(&migrations(&[FIRST, SECOND, THIRD])).await.unwrap();
        let late = ("0003_late.sql", "CREATE TABLE late (a)");
        let cases: [(&[_], _); 3] = [
            (
                &[FIRST, (SECOND.0, "SELECT 1"), THIRD],
                "0002_first users.sql was changed after it was run: restore its text, and put the change into a \
                 new migration",
            ),
            (&[FIRST, THIRD], "0002_first users.sql was run but is missing: restore its file"),
            (
                &[FIRST, SECOND, late, THIRD],
                "0003_late.sql was not run, but 0010_tags.sql, which comes after it, was: give 0003_late.sql a number \
                 higher than all others",
            ),
        ];
        for (files, expected) in cases {
            assert_eq!(sql.migrate(&migrations(files)).await.unwrap_err().to_string(), expected);
            assert_eq!(sql.migration_status(&migrations(files)).await.unwrap_err().to_string(), expected);
        }
        let bad = ("0011_bad.sql", "CREATE TABLE good (a); INSERT INTO nowhere VALUES (1)");
        let error = sql.migrate(&migrations(&[FIRST, SECOND, THIRD, bad])).await.unwrap_err();
        assert_eq!(error.to_string(), "0011_bad.sql: statement 2: no such table: nowhere");
        let alone = ("0011_vacuum.sql", "VACUUM");
        let error = sql.migrate(&migrations(&[FIRST, SECOND, THIRD, alone])).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "0011_vacuum.sql: VACUUM can't be combined with other statements; run it by itself"
        );
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('good', 'late')";
        assert_eq!(sql.at(Level::Linearizable).query_one(tables, ()).await, Ok(0_i64));
        Ok(())
    });
}

#[test]
fn a_program_can_embed_a_folder() {
    on_both(async |sql| {
        let carried = quorate::migrations!("tests/schema");
        assert_eq!(files(sql.migrate(&carried).await), ["0001_people.sql", "0002_ages.sql"]);
        assert_eq!(
            sql.at(Level::Local).query_one("SELECT name, age FROM people", ()).await,
            Ok(("ann".to_owned(), 42))
        );
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schema/");
        let read =
            |name: &str| Migration::new(name.to_owned(), std::fs::read_to_string(format!("{folder}{name}")).unwrap());
        let same = Migrations::new(["0002_ages.sql", "0001_people.sql"].map(|name| read(name).unwrap())).unwrap();
        assert_eq!(carried, same);
        Ok(())
    });
}

#[test]
fn names_and_texts_are_checked_first() {
    for name in ["users.sql", "1_.sql", "_a.sql", "1_a.txt", "1a_b.sql", "+1_a.sql", "99999999999999999999_a.sql"] {
        let expected =
            format!("{name}: the name of a migration is a number, an underscore and a text, as in 0001_users.sql");
        assert_eq!(Migration::new(name, "SELECT 1").unwrap_err().to_string(), expected);
    }
    let zero = Migration::new("1_a.sql", "SELECT '\0'").unwrap_err();
    let text = "1_a.sql: a statement can't hold a zero byte; pass such text as a parameter";
    assert_eq!((zero.to_string().as_str(), zero.is_retryable()), (text, false));
    let twice = ["1_a.sql", "01_b.sql"].map(|name| Migration::new(name, "SELECT 1").unwrap());
    let expected = "1_a.sql and 01_b.sql have the same number: give the newer one a higher number";
    assert_eq!(Migrations::new(twice).unwrap_err().to_string(), expected);
}

#[test]
fn an_unreachable_cluster_can_migrate_later() {
    run(async {
        let single = Single::start().await;
        // The first attempt may find the connection broken, which is another error.
        let (sql, remote) = (single.node.sql(), single.client().await.sql().with_deadline(Duration::from_secs(2)));
        let addr = single.node.local_addr().to_string();
        single.node.stop().await;
        let all = migrations(&[FIRST]);
        let away = remote.migrate(&all).await.unwrap_err();
        let text = format!(
            "the cluster is not available: cannot connect to {addr}: Connection refused (os error 111); check that a \
             majority of its nodes is up and reachable, and try again"
        );
        assert_eq!((away.to_string(), away.is_retryable()), (text, true));
        let closed = sql.migration_status(&all).await.unwrap_err();
        let text = "closed: the node or this handle was stopped; start the node or connect again";
        assert_eq!((closed.to_string().as_str(), closed.is_retryable()), (text, false));
    });
}

#[test]
fn all_nodes_may_migrate_at_once() {
    run(async {
        let mut cluster = Cluster::start().await;
        let remote = cluster.client().await;
        let handles = ["a", "b", "c"].map(|name| cluster.sql(name)).into_iter().chain([remote.sql()]);
        let all = migrations(&[FIRST, SECOND, THIRD]);
        let runs = join_all(handles.cycle().take(12).map(async |sql| {
            let run = sql.migrate(&all).await;
            assert_eq!(sql.at(Level::Local).query_one("SELECT count(*) FROM tags", ()).await, Ok(0_i64));
            files(run)
        }));
        let mut run = runs.await.concat();
        run.sort_unstable();
        assert_eq!(run, [FIRST.0, SECOND.0, THIRD.0], "each by one of them");
        assert_eq!(names(&remote.sql()).await, Ok(vec!["ann;".to_owned(), "bob".to_owned(), "cid".to_owned()]));
        assert_eq!(remote.sql().migration_status(&all).await.unwrap().done.len(), 3);
        remote.close().await;
        cluster.stop_all().await;
    });
}

/// Both programs check before the other one runs; the conflict is found again in the transaction of the migration.
#[test]
fn one_of_two_different_programs_fails() {
    run(async {
        let single = Single::start().await;
        let sql = single.node.sql();
        let first = "CREATE TABLE a (x)";
        let one = migrations(&[("0001_a.sql", first), ("0002_b.sql", "CREATE TABLE b (x)")]);
        let other = migrations(&[
            ("0001_a.sql", first),
            ("0002_b.sql", "CREATE TABLE c (x)"),
            ("0003_d.sql", "CREATE TABLE d (x)"),
        ]);
        let ended = futures_util::future::join(sql.migrate(&one), sql.migrate(&other)).await;
        let is_changed = |run: &Result<Vec<Migration>, MigrateError>| matches!(run, Err(MigrateError::Changed(_)));
        assert!(is_changed(&ended.0) != is_changed(&ended.1), "{ended:?}");
        let tables = "SELECT name FROM sqlite_schema WHERE name IN ('a', 'b', 'c', 'd') ORDER BY name";
        let tables: Vec<String> = sql.query_as(tables, ()).await.unwrap();
        assert!(tables == ["a", "b"] || tables == ["a", "c", "d"], "{tables:?}");
        single.node.stop().await;
    });
}
