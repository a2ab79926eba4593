//! The statements: they depend on the seed alone, they differ, and SQLite understands most of them.

use std::collections::{BTreeMap, HashSet};

use rusqlite::Connection;

use super::run::schema::SCHEMA;
use super::run::statements::{Category, Corpus, Hostile, functions};

/// A statement with more bytes than this may take SQLite long to prepare.
const WIDE_BYTES: usize = 20_000;

fn corpus(seed: u64, only: Option<Category>) -> Corpus {
    Corpus::new(seed, only, functions().unwrap())
}

fn statements(corpus: &Corpus, count: u64) -> Vec<Hostile> {
    (0..count).map(|number| corpus.statement(number)).collect()
}

/// Returns a database with the tables that statements use.
fn database() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    for statement in SCHEMA {
        conn.execute_batch(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    conn
}

#[test]
fn the_same_seed_makes_the_same_statements() {
    let same = statements(&corpus(7, None), 500);
    assert_eq!(same, statements(&corpus(7, None), 500));
    // Each statement can also be generated alone.
    assert_eq!(same[321], corpus(7, None).statement(321));
    assert_ne!(same, statements(&corpus(8, None), 500));
}

#[test]
fn a_statement_survives_being_written_to_a_file() {
    for hostile in statements(&corpus(3, None), 300) {
        let line = serde_json::to_string(&hostile).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Hostile>(&line).unwrap(), hostile);
    }
}

#[test]
fn almost_all_statements_of_the_grammar_differ() {
    let all = statements(&corpus(1, Some(Category::Grammar)), 5000);
    let different: HashSet<&str> = all.iter().map(|hostile| hostile.sql.as_str()).collect();
    assert!(different.len() > 4900, "{}", different.len());
}

#[test]
fn sqlite_understands_most_statements() {
    let conn = database();
    let mut shares = BTreeMap::new();
    for (category, _) in Category::ALL {
        let mut all = statements(&corpus(5, Some(category)), 600);
        // Some wide statements take SQLite a minute to prepare.
        all.retain(|hostile| category != Category::Deep || hostile.sql.len() < WIDE_BYTES);
        let (mut prepared, mut wrong) = (0, 0);
        for hostile in &all {
            match conn.prepare(&hostile.sql) {
                Ok(_) => prepared += 1,
                Err(error) => {
                    let text = error.to_string();
                    let syntax = ["syntax error", "incomplete input", "unrecognized token"];
                    wrong += usize::from(syntax.iter().any(|part| text.contains(part)));
                }
            }
        }
        shares.insert(category, (100 * prepared / all.len(), 100 * wrong / all.len()));
    }
    println!("prepared, and syntax errors, in percent: {shares:?}");
    let demands = [
        (Category::Grammar, 45, 8),
        (Category::Functions, 60, 6),
        (Category::Heavy, 90, 2),
        (Category::Deep, 60, 5),
        (Category::Issue, 90, 5),
        (Category::Names, 35, 25),
        (Category::Control, 65, 20),
    ];
    for (category, prepared, wrong) in demands {
        let (is_prepared, is_wrong) = shares[&category];
        assert!(is_prepared >= prepared && is_wrong <= wrong, "{category:?}: {is_prepared} %, {is_wrong} %");
    }
}
