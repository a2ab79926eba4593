//! Hrana over HTTP, on servers of Quorate that already run. Each call is a stream of its own: a statement, and `close`,
//! as the clients of libSQL send single statements.

use quorate_bench_harness::{About, Durability, Level, NodeSpec, Options, Result, Row, SELECT, System};
use serde_json::{Value, json};

use crate::http::Server;

/// The server that is called; it should be the leader.
pub struct Hrana(Server);

impl System for Hrana {
    async fn about(options: &Options) -> Result<About> {
        let server = Server::at(options.url.as_deref(), options.tls.as_deref())?;
        server.send("GET", "/v2", "").await?;
        let hrana = Self(server);
        let sqlite = hrana.run("SELECT sqlite_version()", &[]).await?;
        let sqlite = sqlite.pointer("/rows/0/0/value").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let acknowledged = match options.durability {
            Durability::Os => "when a majority of the kernels has it",
            Durability::Fsync => "after an fsync on a majority of nodes",
        };
        Ok(About {
            version: "unknown".to_owned(),
            sqlite,
            acknowledged: acknowledged.to_owned(),
            configuration: "as it was started; HTTP/1.1 with connections kept alive".to_owned(),
        })
    }

    async fn start(spec: NodeSpec) -> Result<Self> {
        let hrana = Self(Server::at(spec.server.as_deref(), spec.tls.as_deref())?);
        // Removes the tables of an earlier measurement.
        for sql in ["DROP TABLE IF EXISTS bench", "DROP TABLE IF EXISTS filler", "DROP TABLE IF EXISTS names"] {
            hrana.execute(sql).await?;
        }
        Ok(hrana)
    }

    async fn leads(&self) -> bool {
        true
    }

    async fn execute(&self, sql: &'static str) -> Result<()> {
        self.run(sql, &[]).await.map(drop)
    }

    async fn insert(&self, sql: &'static str, row: Row) -> Result<()> {
        self.run(sql, &args(row)).await.map(drop)
    }

    async fn insert_all(&self, sql: &'static str, rows: Vec<Row>) -> Result<()> {
        let rows = rows.into_iter().map(|row| json!({ "stmt": { "sql": sql, "args": args(row) } }));
        let plain = |sql: &str| json!({ "stmt": { "sql": sql } });
        let steps: Vec<_> = [plain("BEGIN")].into_iter().chain(rows).chain([plain("COMMIT")]).collect();
        let result = self.request(json!({ "type": "batch", "batch": { "steps": steps } })).await?;
        let errors = result.get("step_errors").and_then(Value::as_array);
        match errors.into_iter().flatten().find(|error| !error.is_null()) {
            Some(error) => Err(error.to_string().into()),
            None => Ok(()),
        }
    }

    async fn select(&self, id: i64, level: Level) -> Result<Option<Row>> {
        if level == Level::Local {
            return Err("Hrana reads at the level of its server: use --level linearizable".into());
        }
        let found = self.run(SELECT, &[integer(id)]).await?;
        let Some(row) = found.pointer("/rows/0").and_then(Value::as_array) else { return Ok(None) };
        let text = |column: usize| row.get(column).and_then(|value| value.get("value")).and_then(Value::as_str);
        let number = |column| text(column).and_then(|text| text.parse().ok());
        let row =
            number(0).zip(text(1)).zip(number(2)).map(|((id, name), value)| Row { id, name: name.to_owned(), value });
        row.map(Some).ok_or_else(|| format!("not a row: {found}").into())
    }

    async fn number(&self, sql: &'static str) -> Result<u64> {
        let found = self.run(sql, &[]).await?;
        let number = found.pointer("/rows/0/0/value").and_then(Value::as_str).and_then(|text| text.parse().ok());
        number.ok_or_else(|| format!("not a number: {found}").into())
    }
}

impl Hrana {
    /// Runs a statement and returns its result.
    async fn run(&self, sql: &str, args: &[Value]) -> Result<Value> {
        self.request(json!({ "type": "execute", "stmt": { "sql": sql, "args": args } })).await
    }

    /// Sends a request on a stream of its own and returns the result of its response.
    async fn request(&self, request: Value) -> Result<Value> {
        let body = json!({ "requests": [request, { "type": "close" }] });
        let mut answer = self.0.post("/v2/pipeline", &body).await?;
        match answer.pointer_mut("/results/0/response/result") {
            Some(result) => Ok(result.take()),
            None => Err(answer.to_string().into()),
        }
    }
}

fn args(row: Row) -> [Value; 3] {
    [integer(row.id), json!({ "type": "text", "value": row.name }), integer(row.value)]
}

fn integer(value: i64) -> Value {
    json!({ "type": "integer", "value": value.to_string() })
}
