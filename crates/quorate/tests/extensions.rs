//! Functions and collations that a program registers: writes can use them once every voter has them, and from then on
//! every node must have them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate::sim::SimHooks;
use quorate::sql::Aggregator;
use quorate::types::ValueRef;
use quorate::{ClientConfig, Error, Extensions, FailureKind, Level, Node, Sql, Value, params, verify};
use quorate_env::Env;
use support::{Cluster, Single, run, secret};

/// The extensions of the programs in these tests.
fn extensions() -> Extensions {
    Extensions::default()
        .with_function("slug", 1, |arguments| match arguments {
            [ValueRef::Text(text)] => Ok(Value::Text(text.to_lowercase().replace(' ', "-"))),
            [ValueRef::Null] => Ok(Value::Null),
            _ => Err("slug() takes a text".to_owned()),
        })
        .with_function("breaks", 0, |_| panic!("a function that panics"))
        .with_aggregate("longest", 1, Longest::default)
        .with_collation("by_length", |a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

/// An aggregate: the longest text of a group.
#[derive(Default)]
struct Longest(String);

impl Aggregator for Longest {
    fn step(&mut self, arguments: &[ValueRef<'_>]) -> Result<(), String> {
        if let [ValueRef::Text(text)] = arguments
            && text.len() > self.0.len()
        {
            self.0 = (*text).to_owned();
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value, String> {
        Ok(Value::Text(self.0))
    }
}

const SCHEMA: [&str; 4] = [
    "CREATE TABLE posts (id INTEGER PRIMARY KEY, title TEXT COLLATE by_length CHECK (slug(title) <> ''),
        slug TEXT AS (slug(title)) STORED)",
    "CREATE UNIQUE INDEX posts_by_slug ON posts (slug(title))",
    "CREATE TABLE log (longest TEXT)",
    "CREATE TRIGGER posted AFTER INSERT ON posts BEGIN INSERT INTO log SELECT longest(title) FROM posts; END",
];

/// Starts nodes whose programs have the extensions, except for the named nodes.
async fn cluster(without: &Arc<Mutex<BTreeSet<&'static str>>>) -> Cluster {
    let without = Arc::clone(without);
    Cluster::start_in(Box::new(move |name, config| {
        if !without.lock().unwrap().contains(name) {
            config.extensions = extensions();
        }
        (Env::real(), SimHooks::default())
    }))
    .await
}

async fn titles(sql: &Sql) -> Vec<String> {
    sql.at(Level::Linearizable).query_as("SELECT title FROM posts ORDER BY title", ()).await.unwrap()
}

/// Writes once every voter has announced the functions and collations, and this node has heard of it: a start waits for
/// that only for some seconds.
async fn once_enabled<T, F: Future<Output = Result<T, Error>>>(write: impl Fn() -> F) -> T {
    loop {
        match write().await {
            Err(Error::Failed(failure)) if failure.to_string().contains("not every voter has announced it") => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            written => return written.unwrap(),
        }
    }
}

/// Returns the text of a failed write.
async fn refused(sql: &Sql, statement: &'static str) -> String {
    match sql.execute(statement, ()).await.unwrap_err() {
        Error::Failed(failure) => failure.to_string(),
        error => panic!("{statement}: {error}"),
    }
}

#[test]
fn extensions_work_on_every_node_and_after_a_loss() {
    run(async {
        let mut cluster = cluster(&Arc::default()).await;
        let sql = cluster.sql("a");
        once_enabled(|| sql.batch(SCHEMA.map(|statement| (statement, params![])))).await;
        for (name, title) in [("a", "A long title"), ("b", "Short"), ("c", "Zz")] {
            cluster.sql(name).execute("INSERT INTO posts (title) VALUES (?)", (title,)).await.unwrap();
        }
        let twice = cluster.sql("b").execute("INSERT INTO posts (title) VALUES ('SHORT')", ()).await.unwrap_err();
        assert_eq!(twice.failure().map(|failure| failure.kind), Some(FailureKind::Constraint), "{twice}");
        assert_eq!(refused(&sql, "INSERT INTO posts (title) VALUES (x'00')").await, "slug() takes a text");
        assert_eq!(
            refused(&sql, "UPDATE posts SET title = breaks()").await,
            "breaks() of the program has panicked; its message is in the log"
        );

        cluster.stop("c").await;
        cluster.wipe("c").await;
        cluster.restart("c").await;
        for name in ["a", "b", "c"] {
            assert_eq!(titles(&cluster.sql(name)).await, ["Zz", "Short", "A long title"]);
            let slug: i64 = cluster
                .sql(name)
                .query_one("SELECT count(*) FROM posts WHERE slug(title) = slug AND slug = 'a-long-title'", ())
                .await
                .unwrap();
            assert_eq!(slug, 1);
        }
        let sql = cluster.sql("c");
        let counted = sql.transact(|tx| async move {
            let longest: String = tx.query_one("SELECT longest(title) FROM posts", ()).await?;
            tx.execute("INSERT INTO log VALUES (?)", (longest,))?;
            Ok::<_, Error>(())
        });
        counted.await.unwrap();
        let verification = verify(ClientConfig::new(cluster.addrs(), secret())).await.unwrap();
        // The id of the lost directory is still a member.
        let hashed = verification.nodes.iter().filter(|node| node.tables.is_ok()).count();
        assert!(verification.differences().is_empty() && hashed == 3, "{verification:?}");
        cluster.stop_all().await;
    });
}

#[test]
fn writes_are_refused_until_every_voter_has_them() {
    run(async {
        let without = Arc::new(Mutex::new(BTreeSet::from(["c"])));
        let mut cluster = cluster(&without).await;
        let create = "CREATE TABLE posts (title TEXT COLLATE by_length)";
        for (statement, what) in [(create, "collation by_length"), ("CREATE TABLE t AS SELECT slug('A')", "slug/1")] {
            let expected = format!(
                "{what} can't be used in writes yet: not every voter has announced it; start every node with it"
            );
            assert_eq!(refused(&cluster.sql("a"), statement).await, expected);
        }
        // Queries use the extensions of their node.
        assert_eq!(cluster.sql("a").query_one::<String>("SELECT slug('A B')", ()).await.unwrap(), "a-b");

        cluster.stop("c").await;
        without.lock().unwrap().clear();
        cluster.restart("c").await;
        let sql = cluster.sql("b");
        once_enabled(|| sql.execute(create, ())).await;
        cluster.stop_all().await;
    });
}

#[test]
fn a_node_without_used_extensions_does_not_start() {
    run(async {
        let Single { dir, node } = Single::start().await;
        node.stop().await;
        let config = Single::config(&dir).with_extensions(extensions());
        let node = Node::start(config).await.unwrap();
        let sql = node.sql();
        once_enabled(|| sql.execute("CREATE TABLE t AS SELECT slug('A B') AS slug", ())).await;
        node.stop().await;

        let less = Extensions::default().with_collation("by_length", |a, b| a.cmp(b));
        let error = Node::start(Single::config(&dir).with_extensions(less)).await.unwrap_err();
        let expected = "it needs breaks/0, longest/1, slug/1, which this program does not register; install the \
                        version that the other nodes run";
        assert!(error.to_string().ends_with(expected), "{error}");

        let node = Node::start(Single::config(&dir).with_extensions(extensions())).await.unwrap();
        assert_eq!(node.sql().query_one::<String>("SELECT slug FROM t", ()).await.unwrap(), "a-b");
        node.stop().await;
    });
}

#[test]
fn invalid_registrations_are_errors() {
    let nothing = |_: &[ValueRef<'_>]| Ok(Value::Null);
    let named = |name: &str| Extensions::default().with_function(name, 1, nothing).check().unwrap_err();
    assert_eq!(named("lower"), "'lower' is a function or collation of SQLite: choose another name");
    assert_eq!(named("sqrt"), "'sqrt' is a function or collation of SQLite: choose another name");
    let word = "can't be the name of a function or collation: use letters, digits and underscores";
    assert_eq!(named("a-b"), format!("'a-b' {word}"));
    assert_eq!(named(""), format!("'' {word}"));
    let long = "a".repeat(127);
    assert_eq!(named(&long), format!("the name '{long}' is too long: the limit is 128 bytes"));
    let collation = Extensions::default().with_collation("NoCase", |a, b| a.cmp(b)).check().unwrap_err();
    assert_eq!(collation, "'nocase' is a function or collation of SQLite: choose another name");
    let wide = Extensions::default().with_function("f", 101, nothing).check().unwrap_err();
    assert_eq!(wide, "f() has 101 arguments: the limit is 100");
}
