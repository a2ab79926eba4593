//! rqlite's API, on servers that already run and that clients in this process call over HTTP.

use quorate_bench_harness::{About, Durability, Level, NodeSpec, Options, Result, Row, SELECT, System};
use serde_json::{Value, json};

use crate::http::Server;

/// The server that is called; it should be the leader.
pub struct Rqlite(Server);

impl System for Rqlite {
    async fn about(options: &Options) -> Result<About> {
        if options.durability == Durability::Os {
            return Err("rqlite acknowledges a write when it is synced: use --durability fsync".into());
        }
        let server = Server::at(options.url.as_deref(), options.tls.as_deref())?;
        let answer = server.send("GET", "/nodes", "").await?;
        let version = answer.header("x-rqlite-version").unwrap_or("unknown").to_owned();
        let nodes = serde_json::from_slice::<Value>(&answer.body)?.as_object().map_or(0, serde_json::Map::len);
        if nodes != options.nodes {
            return Err(format!("the rqlite cluster has {nodes} nodes: use --nodes {nodes}").into());
        }
        let status: Value = serde_json::from_slice(&server.send("GET", "/status", "").await?.body)?;
        let sqlite = status.pointer("/store/sqlite3/version").and_then(Value::as_str).unwrap_or("unknown");
        Ok(About {
            version,
            sqlite: sqlite.to_owned(),
            acknowledged: "after an fsync on a majority of nodes".to_owned(),
            configuration: "as it was started; HTTP/1.1 with connections kept alive".to_owned(),
        })
    }

    async fn start(spec: NodeSpec) -> Result<Self> {
        let server = Self(Server::at(spec.server.as_deref(), spec.tls.as_deref())?);
        // Removes the tables of an earlier measurement.
        for sql in ["DROP TABLE IF EXISTS bench", "DROP TABLE IF EXISTS filler", "DROP TABLE IF EXISTS names"] {
            server.execute(sql).await?;
        }
        Ok(server)
    }

    async fn leads(&self) -> bool {
        true
    }

    async fn execute(&self, sql: &'static str) -> Result<()> {
        self.call("/db/execute", &json!([[sql]])).await?;
        Ok(())
    }

    async fn insert(&self, sql: &'static str, row: Row) -> Result<()> {
        self.call("/db/execute", &json!([statement(sql, row)])).await?;
        Ok(())
    }

    async fn insert_all(&self, sql: &'static str, rows: Vec<Row>) -> Result<()> {
        let statements: Vec<_> = rows.into_iter().map(|row| statement(sql, row)).collect();
        self.call("/db/execute?transaction", &json!(statements)).await?;
        Ok(())
    }

    async fn select(&self, id: i64, level: Level) -> Result<Option<Row>> {
        let path = match level {
            Level::Local => "/db/query?level=none",
            Level::Linearizable => "/db/query?level=linearizable",
        };
        let found = self.call(path, &json!([[SELECT, id]])).await?;
        let Some(row) = found.pointer("/results/0/values/0") else { return Ok(None) };
        let (id, name, value) = serde_json::from_value(row.clone())?;
        Ok(Some(Row { id, name, value }))
    }

    async fn number(&self, sql: &'static str) -> Result<u64> {
        let found = self.call("/db/query?level=strong", &json!([[sql]])).await?;
        let number = found.pointer("/results/0/values/0/0").and_then(Value::as_u64);
        number.ok_or_else(|| format!("not a number: {found}").into())
    }
}

impl Rqlite {
    /// Sends statements. Returns the results if all statements succeeded.
    async fn call(&self, path: &str, statements: &Value) -> Result<Value> {
        let answer = self.0.post(path, statements).await?;
        let results = answer.get("results").and_then(Value::as_array);
        match results.into_iter().flatten().find_map(|result| result.get("error")).or(answer.get("error")) {
            Some(error) => Err(error.to_string().into()),
            None => Ok(answer),
        }
    }
}

/// Returns a statement with its parameters, in rqlite's format.
fn statement(sql: &str, row: Row) -> Value {
    json!([sql, row.id, row.name, row.value])
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Answers the requests of one connection with these texts, and returns the requests.
    fn server<const N: usize>(answers: [String; N]) -> (Rqlite, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let serve = move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut requests = Vec::new();
            for answer in answers {
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") {
                    let start = head.len();
                    stream.read_line(&mut head).unwrap();
                    if let Some(found) = head[start..].strip_prefix("Content-Length: ") {
                        length = found.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                requests.push(format!("{} {}", head.lines().next().unwrap(), String::from_utf8(body).unwrap()));
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            requests
        };
        (Rqlite(Server::at(Some(&format!("http://{host}")), None).unwrap()), std::thread::spawn(serve))
    }

    /// Returns an answer with a `content-length`.
    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_connection_is_reused_for_the_next_call() {
        let (rqlite, served) = server([
            answer("200 OK", r#"{"results":[{"last_insert_id":7}]}"#),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n".to_owned()
                + r#"{"results":[{"va"#
                + "\r\n19;of=2\r\n"
                + r#"lues":[[7,"seven",49]]}]}"#
                + "\r\n0\r\n\r\n",
            answer("200 OK", r#"{"results":[]}"#),
        ]);
        let row = Row { id: 7, name: "seven".to_owned(), value: 49 };
        run(async {
            rqlite.insert("INSERT", row.clone()).await.unwrap();
            assert_eq!(rqlite.select(7, Level::Linearizable).await.unwrap(), Some(row));
            assert_eq!(rqlite.select(8, Level::Local).await.unwrap(), None);
        });
        let requests = [
            "POST /db/execute HTTP/1.1 [[\"INSERT\",7,\"seven\",49]]".to_owned(),
            format!("POST /db/query?level=linearizable HTTP/1.1 [[\"{SELECT}\",7]]"),
            format!("POST /db/query?level=none HTTP/1.1 [[\"{SELECT}\",8]]"),
        ];
        assert_eq!(served.join().unwrap(), requests);
    }

    #[test]
    fn failures_are_errors() {
        let (rqlite, _served) = server([
            answer("200 OK", r#"{"results":[{"error":"no such table: a"}]}"#),
            answer("503 Service Unavailable", "no leader"),
            "SMTP\r\n\r\n".to_owned(),
        ]);
        run(async {
            for expected in ["no such table", "no leader", "not an HTTP answer"] {
                let error = rqlite.execute("INSERT").await.unwrap_err().to_string();
                assert!(error.contains(expected), "{error}");
            }
        });
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        assert!(Server::at(Some("http://127.0.0.1:4001/"), None).is_ok());
        for wrong in ["127.0.0.1:4001", "https://a:1", "http://a", "http://a:1/db"] {
            assert!(Server::at(Some(wrong), None).is_err(), "{wrong}");
        }
    }
}
