//! The crate `libsql`, over HTTP: libsql-client URL [TOKEN]

use libsql::{Builder, Connection, Error, Transaction, TransactionBehavior, Value, named_params, params};

/// How often a transaction that the server has aborted is run.
const RUNS_MAX: u32 = 10;

type Result<T> = std::result::Result<T, Error>;

async fn open(url: &str, token: &str) -> Result<Connection> {
    // The default connector trusts the certificates in the file that SSL_CERT_FILE names.
    Builder::new_remote(url.to_owned(), token.to_owned()).build().await?.connect()
}

/// Checks that a call has failed. The client keeps the code in the text of its error only.
fn failed<T>(code: &str, done: Result<T>) -> Result<()> {
    match done {
        Ok(_) => panic!("{code} is missing"),
        Err(error) if is_aborted(&error) => Err(error),
        Err(error) => {
            assert!(error.to_string().contains(code), "{code}: {error}");
            Ok(())
        }
    }
}

fn is_aborted(error: &Error) -> bool {
    error.to_string().contains("TRANSACTION_ABORTED")
}

/// Runs a transaction, and runs it again while the server says that it was aborted, because its leader was lost.
async fn transact(db: &Connection, run: impl AsyncFn(&Transaction) -> Result<()>, is_kept: bool) -> Result<()> {
    for left in (0..RUNS_MAX).rev() {
        let once = async {
            let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).await?;
            run(&transaction).await?;
            if is_kept { transaction.commit().await } else { transaction.rollback().await }
        };
        match once.await {
            Err(error) if left > 0 && is_aborted(&error) => {}
            done => return done,
        }
    }
    Ok(())
}

async fn one(db: &Connection, sql: &str, params: impl libsql::params::IntoParams) -> Result<Vec<Value>> {
    let mut rows = db.query(sql, params).await?;
    let row = rows.next().await?.expect("a row");
    let values = (0..rows.column_count()).map(|column| row.get_value(column)).collect();
    assert!(rows.next().await?.is_none(), "{sql} has one row");
    values
}

async fn count(db: &Connection, table: &str) -> Result<i64> {
    Ok(*one(db, &format!("SELECT count(*) FROM {table}"), ()).await?[0].as_integer().expect("a number"))
}

async fn values(db: &Connection) -> Result<()> {
    let all = vec![
        Value::Integer(i64::MAX),
        Value::Real(-1.5),
        Value::Text("\u{1F600}".to_owned()),
        Value::Null,
        Value::Blob(vec![0, 255]),
    ];
    assert_eq!(one(db, "SELECT ?, ?, ?, ?, ?", all.clone()).await?, all);
    let [one_, two] = [Value::Integer(1), Value::Integer(2)];
    assert_eq!(one(db, "SELECT ?2, ?1", params![1, 2]).await?, [two.clone(), one_.clone()]);
    assert_eq!(one(db, "SELECT :b, @a", named_params! { "@a": 1, ":b": 2 }).await?, [two, one_]);
    Ok(())
}

async fn statements(db: &Connection) -> Result<()> {
    db.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE)", ()).await?;
    assert_eq!(db.execute("INSERT INTO users (name) VALUES (?)", ["ann"]).await?, 1);
    assert_eq!((db.last_insert_rowid(), db.changes(), db.is_autocommit()), (1, 1, true));
    let insert = db.prepare("INSERT INTO users (name) VALUES (:name) RETURNING id").await?;
    let row = insert.query(named_params! { ":name": "bob" }).await?.next().await?.expect("a row");
    assert_eq!(row.get::<i64>(0)?, 2);
    let select = db.prepare("SELECT name FROM users WHERE id > ? ORDER BY id").await?;
    assert_eq!(select.columns()[0].name(), "name");
    let (mut rows, mut names) = (select.query([0]).await?, Vec::new());
    while let Some(row) = rows.next().await? {
        names.push(row.get::<String>(0)?);
    }
    assert_eq!(names, ["ann", "bob"]);
    db.prepare("CREATE TABLE log (x)").await?.execute(()).await?;

    failed("SQLITE_CONSTRAINT_UNIQUE", db.execute("INSERT INTO users (name) VALUES ('ann')", ()).await)?;
    failed("SQLITE_ERROR", db.query("SELECT * FROM missing", ()).await)?;
    db.execute_batch("INSERT INTO log VALUES (1); INSERT INTO log VALUES (2);").await?;
    let batch = "INSERT INTO log VALUES (3); INSERT INTO users (name) VALUES ('ann');";
    // Of a batch, it keeps the message only.
    failed("UNIQUE constraint failed", db.execute_transactional_batch(batch).await)?;
    assert_eq!(count(db, "log").await?, 2);
    db.execute_transactional_batch("INSERT INTO log VALUES (3); INSERT INTO log VALUES (4);").await?;
    assert_eq!(count(db, "log").await?, 4);
    Ok(())
}

async fn transactions(db: &Connection) -> Result<()> {
    let keep = async |on: &Transaction| {
        on.execute("INSERT INTO users (name) VALUES (?)", ["cid"]).await?;
        failed("SQLITE_CONSTRAINT_UNIQUE", on.execute("INSERT INTO users (name) VALUES ('cid')", ()).await)?;
        assert_eq!(count(on, "users").await?, 3);
        Ok(())
    };
    transact(db, keep, true).await?;
    let drop = async |on: &Transaction| on.execute("DELETE FROM users", ()).await.map(|rows| assert_eq!(rows, 3));
    transact(db, drop, false).await?;
    assert_eq!(count(db, "users").await?, 3);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (url, token) = (&arguments[0], arguments.get(1));
    if token.is_some() {
        failed("UNAUTHORIZED", one(&open(url, "quorate_0").await?, "SELECT 1", ()).await)?;
    }
    let db = open(url, token.map_or("", String::as_str)).await?;
    values(&db).await?;
    statements(&db).await?;
    transactions(&db).await?;
    println!("passed");
    Ok(())
}
