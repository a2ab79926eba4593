//! Hrana over WebSocket, message by message, on a real node.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

#[path = "websocket/client.rs"]
mod client;
mod common;

use std::time::Duration;

use client::{Client, Heard, execute};
use common::{Door, PATIENCE, Server, integer, step, text};
use futures_util::{SinkExt as _, StreamExt as _};
use quorate::users::UserRole;
use quorate_env::Env;
use quorate_http::options::{BODY_BYTES_MAX, SMALL_BODY_BYTES_MAX, SOCKET_REQUESTS_MAX, SOCKET_STREAMS_MAX};
use quorate_http::{Doors, Options, Port};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

const TABLE: &str = "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)";

fn code(heard: &Heard) -> &str {
    match heard {
        Heard::Said(said) if said["type"] == "hello_error" => said["error"]["code"].as_str().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_closed(heard: &Heard, with: CloseCode) {
    assert!(matches!(heard, Heard::Closed(code, _) if *code == with), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_subprotocol_is_chosen_on_each_path() {
    let server = Server::start().await;
    for path in ["/", "/v2", "/v3"] {
        for (offered, chosen) in [("hrana3-protobuf, hrana3, hrana2", Some("hrana3")), ("hrana2", Some("hrana2"))] {
            let headers = [("sec-websocket-protocol", offered)];
            let mut client = Client::try_connect(&server.http, path, &headers).await.unwrap();
            assert_eq!(client.subprotocol.as_deref(), chosen);
            assert_eq!(client.hello(None).await, Heard::Said(json!({ "type": "hello_ok" })));
        }
        let client = Client::try_connect(&server.http, path, &[]).await.unwrap();
        assert_eq!(client.subprotocol, None);
    }
    let refused = [("sec-websocket-protocol", "hrana3-protobuf")];
    assert_eq!(Client::try_connect(&server.http, "/", &refused).await.err(), Some(400));
    let origin = [("origin", "https://elsewhere.example")];
    assert_eq!(Client::try_connect(&server.http, "/", &origin).await.err(), Some(403));
    assert_eq!(Client::try_connect(&server.http, "/v4", &[]).await.err(), Some(404));
    let keyed = [("idempotency-key", "7")];
    assert_eq!(Client::try_connect(&server.http, "/", &keyed).await.err(), Some(422));
    let old = [("sec-websocket-version", "8")];
    assert_eq!(Client::try_connect(&server.http, "/", &old).await.err(), Some(426));
    assert_eq!(server.get("/").status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_request_is_answered() {
    let server = Server::start().await;
    server.run(TABLE).await;
    let mut client = Client::with_stream(&server.http, None).await;
    let stmt = json!({ "sql": "INSERT INTO t VALUES (?, :b) RETURNING a, b",
        "args": [integer(1)], "named_args": [{ "name": "b", "value": text("x") }] });
    let response = client.ok(json!({ "type": "execute", "stream_id": 1, "stmt": stmt })).await;
    assert_eq!(response["result"]["rows"], json!([[integer(1), text("x")]]));
    assert_eq!(response["result"]["affected_row_count"], 1);

    let steps = json!([step("SELECT 1"), step("SELEC 2"), step("SELECT 3")]);
    let response = client.ok(json!({ "type": "batch", "stream_id": 1, "batch": { "steps": steps } })).await;
    assert_eq!(response["result"]["step_results"][2]["rows"][0][0], integer(3));
    assert_eq!(response["result"]["step_errors"][1]["code"], "SQLITE_ERROR");

    client.ok(json!({ "type": "store_sql", "sql_id": 5, "sql": "INSERT INTO t (b) VALUES ('s')" })).await;
    client.ok(json!({ "type": "open_stream", "stream_id": 2 })).await;
    client.ok(json!({ "type": "sequence", "stream_id": 1, "sql_id": 5 })).await;
    client.ok(json!({ "type": "execute", "stream_id": 2, "stmt": { "sql_id": 5 } })).await;
    assert_eq!(server.count("t").await, 3, "texts are stored for all streams");
    let described = client.ok(json!({ "type": "describe", "stream_id": 2, "sql_id": 5 })).await;
    assert_eq!(described["result"]["is_readonly"], false);
    // A request that is on its way keeps the text that it refers to.
    let asked = client.ask(&json!({ "type": "execute", "stream_id": 2, "stmt": { "sql_id": 5 } })).await;
    let closed = client.ask(&json!({ "type": "close_sql", "sql_id": 5 })).await;
    let mut answers = [client.answer().await, client.answer().await];
    answers.sort_by_key(|(id, _)| *id);
    assert!(answers.iter().all(|(_, answer)| answer.is_ok()) && asked < closed, "{answers:?}");
    let again = client.get(json!({ "type": "execute", "stream_id": 2, "stmt": { "sql_id": 5 } })).await;
    assert_eq!(again, Err("SQL_STORE_INVALID".to_owned()));

    let auto = json!({ "type": "get_autocommit", "stream_id": 1 });
    assert_eq!(client.ok(auto.clone()).await["is_autocommit"], true);
    client.run("BEGIN").await.unwrap();
    assert_eq!(client.ok(auto).await["is_autocommit"], false);
    client.ok(json!({ "type": "close_stream", "stream_id": 1 })).await;
    assert_eq!(client.run("SELECT 1").await, Err("STREAM_CLOSED".to_owned()));
    client.ok(json!({ "type": "close_stream", "stream_id": 1 })).await;
    client.ok(json!({ "type": "open_stream", "stream_id": 1 })).await;
    assert_eq!(client.run("SELECT 1").await, Ok(json!([[integer(1)]])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_read_in_parts() {
    let server = Server::start().await;
    let mut client = Client::with_stream(&server.http, None).await;
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n";
    let skipped = json!({ "stmt": { "sql": "SELECT 1" }, "condition": { "type": "error", "step": 0 } });
    let batch = json!({ "steps": [step(rows), step("SELEC"), skipped] });
    let open = json!({ "type": "open_cursor", "stream_id": 1, "cursor_id": 9, "batch": batch });
    client.ok(open.clone()).await;
    assert_eq!(client.get(open).await, Err("MALFORMED_REQUEST".to_owned()), "the id is in use");
    let fetch = |max_count: u32| json!({ "type": "fetch_cursor", "cursor_id": 9, "max_count": max_count });
    let first = client.ok(fetch(3)).await;
    assert_eq!(first["done"], false);
    let kinds = |response: &Value| -> Vec<String> {
        response["entries"].as_array().unwrap().iter().map(|entry| entry["type"].as_str().unwrap().into()).collect()
    };
    assert_eq!(kinds(&first), ["step_begin", "row", "row"]);
    assert_eq!(first["entries"][2]["row"], json!([integer(2)]));
    let rest = client.ok(fetch(1_000)).await;
    assert_eq!((kinds(&rest).len(), &rest["done"]), (5, &json!(true)));
    assert_eq!(kinds(&rest)[3..], ["step_end", "step_error"]);
    assert_eq!(client.ok(fetch(1)).await["entries"], json!([]));
    client.ok(json!({ "type": "close_cursor", "cursor_id": 9 })).await;
    assert_eq!(client.get(fetch(1)).await, Err("CURSOR_CLOSED".to_owned()));
    client.ok(json!({ "type": "close_cursor", "cursor_id": 9 })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_run_side_by_side_and_each_in_order() {
    let server = Server::start().await;
    server.run(TABLE).await;
    let mut client = Client::greeted(&server.http, None).await;
    let requests = [
        json!({ "type": "open_stream", "stream_id": 1 }),
        json!({ "type": "open_stream", "stream_id": -2 }),
        execute(1, "BEGIN IMMEDIATE"),
        execute(1, "INSERT INTO t VALUES (1, 'of the transaction')"),
    ];
    for request in &requests {
        client.ask(request).await;
    }
    for _ in &requests {
        client.answer().await.1.unwrap();
    }
    // This one waits for the end of the transaction, which comes after it.
    let waits = client.ask(&execute(-2, "INSERT INTO t VALUES (2, 'beside it')")).await;
    let then = client.ask(&execute(-2, "SELECT count(*) FROM t")).await;
    let commit = client.ask(&execute(1, "COMMIT")).await;
    let mut order = Vec::new();
    for _ in 0..3 {
        let (id, answer) = client.answer().await;
        order.push(id);
        if id == i64::from(then) {
            assert_eq!(answer.unwrap()["result"]["rows"][0][0], integer(2));
        }
    }
    let place = |id: i32| order.iter().position(|found| *found == i64::from(id)).unwrap();
    assert!(place(waits) < place(then) && place(commit) < place(then), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_closes_rolls_back() {
    let server = Server::start().await;
    server.run(TABLE).await;
    for is_polite in [true, false] {
        let mut client = Client::with_stream(&server.http, None).await;
        client.run("BEGIN IMMEDIATE").await.unwrap();
        client.run("INSERT INTO t (b) VALUES ('lost')").await.unwrap();
        if is_polite {
            client.socket.close(None).await.unwrap();
            is_gone(&mut client).await;
        }
        drop(client);
        let begun = std::time::Instant::now();
        server.run("INSERT INTO t (b) VALUES ('kept')").await;
        assert!(begun.elapsed() < Duration::from_secs(8), "it did not wait for the end of the transaction's time");
    }
    assert_eq!(server.count("t").await, 2);
}

/// Checks that nothing comes any more but the end.
async fn is_gone(client: &mut Client) {
    while client.socket.next().await.is_some_and(|heard| heard.is_ok()) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn only_users_are_let_in() {
    let (server, [read, write, _]) = Server::with_users().await;
    for token in [None, Some("quorate_0"), Some("")] {
        let mut client = Client::connect(&server.http).await;
        assert_eq!(code(&client.hello(token).await), "UNAUTHORIZED", "{token:?}");
        is_closed(&client.hear().await, CloseCode::Policy);
    }
    let mut early = Client::connect(&server.http).await;
    early.ask(&json!({ "type": "open_stream", "stream_id": 1 })).await;
    is_closed(&early.hear().await, CloseCode::Policy);

    // The request itself may log in, and a hello may do so anew.
    let wrong = [("authorization", "Bearer quorate_0")];
    assert_eq!(Client::try_connect(&server.http, "/", &wrong).await.err(), Some(401));
    let bearer = format!("Bearer {read}");
    let mut client = Client::try_connect(&server.http, "/", &[("authorization", &bearer)]).await.unwrap();
    assert_eq!(client.hello(None).await, Heard::Said(json!({ "type": "hello_ok" })));
    client.ok(json!({ "type": "open_stream", "stream_id": 1 })).await;
    assert_eq!(client.run(TABLE).await, Err("SQLITE_AUTH".to_owned()));
    assert_eq!(client.hello(Some(&write)).await, Heard::Said(json!({ "type": "hello_ok" })));
    client.run(TABLE).await.unwrap();
    assert_eq!(code(&client.hello(Some("quorate_1")).await), "UNAUTHORIZED");
    is_closed(&client.hear().await, CloseCode::Policy);
}

#[tokio::test(flavor = "multi_thread")]
async fn users_lose_their_rights_on_open_connections() {
    let (server, [read, write, _]) = Server::with_users().await;
    server.run(TABLE).await;
    let admin = server.node.admin();
    let mut client = Client::with_stream(&server.http, Some(&write)).await;
    // A transaction that only reads, because others wait for the end of one that writes.
    client.run("BEGIN READONLY").await.unwrap();
    client.run("SELECT * FROM t").await.unwrap();
    admin.set_role("write", UserRole::Read).await.unwrap();
    assert_eq!(client.run("SELECT * FROM t").await, Err("TRANSACTION_ABORTED".to_owned()));
    assert_eq!(client.run("COMMIT").await, Err("TRANSACTION_ABORTED".to_owned()));
    assert_eq!(client.run("INSERT INTO t VALUES (2, 'x')").await, Err("SQLITE_AUTH".to_owned()));
    assert_eq!(client.run("SELECT count(*) FROM t").await, Ok(json!([[integer(0)]])));

    let mut other = Client::with_stream(&server.http, Some(&read)).await;
    admin.remove_user("write").await.unwrap();
    assert_eq!(client.run("SELECT 1").await, Err("UNAUTHORIZED".to_owned()));
    is_closed(&client.hear().await, CloseCode::Policy);
    assert_eq!(other.run("SELECT 1").await, Ok(json!([[integer(1)]])));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_from_elsewhere_while_there_are_no_users() {
    let server = Server::start().await;
    // Until it has done something, the node may not know its users.
    server.run(TABLE).await;
    let (env, sql) = (Env::real(), server.node.sql());
    let options = Options::default().with_users(server.node.users());
    let doors = Doors::at(&env, "http://0.0.0.0:80", sql, options);
    let port = Port::open(&env, "127.0.0.1:0", None, move |_| Ok(doors)).await.unwrap();
    let mut client = Client::connect(&port).await;
    assert_eq!(code(&client.hello(None).await), "FORBIDDEN");
    is_closed(&client.hear().await, CloseCode::Policy);
}

/// Returns a request on the stream 1 that has this number of bytes.
fn padded(bytes: usize) -> String {
    let request = json!({ "type": "request", "request_id": 77, "request": execute(1, "SELECT 1") }).to_string();
    request.clone() + &" ".repeat(bytes - request.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_messages_is_limited() {
    let server = Server::start().await;
    let mut client = Client::with_stream(&server.http, None).await;
    client.say(padded(BODY_BYTES_MAX)).await;
    assert!(matches!(client.answer().await, (77, Ok(_))));
    // The server closes while the client is still sending.
    let (mut out, mut inward) = client.socket.split();
    let sending = out.send(Message::from(padded(BODY_BYTES_MAX + 1)));
    let hearing = tokio::time::timeout(PATIENCE, inward.next());
    let (_, heard) = tokio::join!(sending, hearing);
    let heard = heard.unwrap();
    assert!(matches!(&heard, Some(Ok(Message::Close(Some(frame)))) if frame.code == CloseCode::Size), "{heard:?}");

    let mut client = Client::connect(&server.http).await;
    let hello = json!({ "type": "hello", "jwt": "x".repeat(2 * SMALL_BODY_BYTES_MAX) }).to_string();
    client.say(hello).await;
    is_closed(&client.hear().await, CloseCode::Size);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_arrive_whole() {
    let server = Server::start().await;
    let mut client = Client::with_stream(&server.http, None).await;
    let rows = client.run("SELECT hex(zeroblob(5000000)), 'é' || hex(zeroblob(100000))").await.unwrap();
    assert_eq!(rows[0][0]["value"].as_str().unwrap().len(), 10_000_000);
    assert_eq!(rows[0][1]["value"].as_str().unwrap().chars().count(), 200_001);

    // Together they exceed what may wait to be written, while the client is not reading yet.
    client.ok(json!({ "type": "open_stream", "stream_id": 2 })).await;
    for number in 0..40 {
        client.ask(&execute(1 + number % 2, "SELECT hex(zeroblob(500000))")).await;
    }
    for _ in 0..40 {
        let answer = client.answer().await.1.unwrap();
        assert_eq!(answer["result"]["rows"][0][0]["value"].as_str().unwrap().len(), 1_000_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_violates_the_protocol_closes_the_connection() {
    let server = Server::start().await;
    for (message, closed) in [
        (Message::from(vec![0_u8, 159, 146, 150]), CloseCode::Unsupported),
        (Message::from("{"), CloseCode::Protocol),
        (Message::from("{\"type\":\"fly\"}"), CloseCode::Protocol),
        (Message::from("{\"type\":\"request\",\"request_id\":1}"), CloseCode::Protocol),
    ] {
        let mut client = Client::greeted(&server.http, None).await;
        client.say(message).await;
        is_closed(&client.hear().await, closed);
        assert_eq!(client.hear().await, Heard::Gone);
    }
    let mut client = Client::greeted(&server.http, None).await;
    client.socket.get_mut().write_all(&[0xff; 4_096]).await.unwrap();
    is_closed(&client.hear().await, CloseCode::Protocol);

    // A request that can't be read is answered, because it has an id.
    let mut client = Client::with_stream(&server.http, None).await;
    for request in [
        json!({ "type": "fly", "stream_id": 1 }),
        json!({ "type": "close", "stream_id": 1 }),
        json!({ "type": "execute", "stmt": { "sql": "SELECT 1" } }),
        json!({ "type": "execute", "stream_id": 1, "stmt": {} }),
        json!({ "type": "execute", "stream_id": 1.5, "stmt": { "sql": "SELECT 1" } }),
        json!({ "type": "open_stream", "stream_id": 1 }),
        json!({ "type": "open_cursor", "stream_id": 1, "batch": { "steps": [] } }),
        json!({ "type": "fetch_cursor", "cursor_id": 1 }),
        json!([]),
    ] {
        assert_eq!(client.get(request.clone()).await, Err("MALFORMED_REQUEST".to_owned()), "{request}");
    }
    assert_eq!(client.run("SELECT 1").await, Ok(json!([[integer(1)]])));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_connection_keeps_is_limited() {
    let server = Server::start().await;
    let mut client = Client::greeted(&server.http, None).await;
    let most = i32::try_from(SOCKET_STREAMS_MAX).unwrap();
    for stream_id in 0..most {
        client.ok(json!({ "type": "open_stream", "stream_id": stream_id })).await;
    }
    let open = json!({ "type": "open_stream", "stream_id": most });
    assert_eq!(client.get(open.clone()).await, Err("TOO_MANY_STREAMS".to_owned()));
    assert_eq!(client.get(execute(most, "SELECT 1")).await, Err("STREAM_CLOSED".to_owned()));
    client.ok(json!({ "type": "close_stream", "stream_id": 7 })).await;
    client.ok(open).await;
    let none = json!({ "steps": [] });
    let cursor = |id: i32| json!({ "type": "open_cursor", "stream_id": 1, "cursor_id": id, "batch": none });
    for cursor_id in 0..most {
        client.ok(cursor(cursor_id)).await;
    }
    assert_eq!(client.get(cursor(most)).await, Err("TOO_MANY_CURSORS".to_owned()));
    client.ok(json!({ "type": "close_stream", "stream_id": 1 })).await;
    client.ok(json!({ "type": "open_stream", "stream_id": 1 })).await;
    client.ok(cursor(most)).await;

    // Requests beyond those that may be under way wait at the client's end.
    let count = 3 * SOCKET_REQUESTS_MAX;
    let first = i64::from(client.last_id) + 1;
    for number in 0..count {
        client.ask(&execute(i32::try_from(number % 5).unwrap(), "SELECT hex(zeroblob(1000))")).await;
    }
    let mut ids = Vec::new();
    for _ in 0..count {
        let (id, answer) = client.answer().await;
        assert!(answer.is_ok(), "{answer:?}");
        ids.push(id);
    }
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(first..first + i64::try_from(count).unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_stops_says_goodbye() {
    let server = Server::start().await;
    let door = Door::open(server.node.sql(), Options::default()).await;
    let mut client = Client::with_stream(&door.http, None).await;
    let stopping = tokio::spawn(door.http.stop());
    is_closed(&client.hear().await, CloseCode::Away);
    assert_eq!(client.hear().await, Heard::Gone);
    tokio::time::timeout(PATIENCE, stopping).await.unwrap().unwrap();

    let door = Door::open(server.node.sql(), Options::default()).await;
    let mut client = Client::with_stream(&door.http, None).await;
    drop(door);
    assert_eq!(client.hear().await, Heard::Gone);
}
