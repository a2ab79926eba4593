//! Plain HTTP for keys: what a naive model and RFC 9110 say, and what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Door, Draw, Reply, Server, wait_until};
use quorate_http::Options;
use serde_json::{Value, json};

/// Keys in a path, with what they are in JSON.
const KEYS: [(&str, &str); 5] = [
    ("a", "\"a\""),
    ("images/logo.png", "\"images/logo.png\""),
    ("%00%FF", "{\"base64\":\"AP8=\"}"),
    ("x%2Fy+z%25", "\"x/y+z%\""),
    ("%C3%A9", "\"é\""),
];

/// A value with its tag.
#[derive(Clone, Debug)]
struct Held {
    value: Vec<u8>,
    tag: String,
}

fn tag(reply: &Reply) -> Option<String> {
    reply.headers.get("etag").cloned()
}

/// Returns whether `If-Match`, or else `If-None-Match`, holds for a tag.
fn holds(header: &str, value: &str, tag: Option<&str>) -> bool {
    let tags: Vec<&str> = value.split(", ").collect();
    let is_strong = header == "if-match";
    let found = tag.is_some_and(|tag| {
        tags.iter().any(|known| *known == "*" || *known == tag || !is_strong && known.strip_prefix("W/") == Some(tag))
    });
    found == is_strong
}

/// Requests at random, each answered as a map of values and RFC 9110 say.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_what_a_naive_model_says() {
    let server = Server::start().await;
    let (mut model, mut draw) = (BTreeMap::<&str, Held>::new(), Draw(7));
    let mut tags = vec!["\"1\"".to_owned()];
    for step in 0..600 {
        let (key, _) = draw.of(&KEYS);
        let (path, old) = (format!("/keys/{key}"), model.get(key).cloned());
        let method = draw.of(&["GET", "HEAD", "PUT", "PUT", "DELETE", "POST"]);
        let writes = ["PUT", "DELETE"].contains(&method);
        let own = old.as_ref().map_or("\"2\"".to_owned(), |old| old.tag.clone());
        let condition = match draw.below(8) {
            0 => Some(("if-match", own)),
            1 => Some(("if-match", draw.of(&tags))),
            2 => Some(("if-match", "*".to_owned())),
            3 => Some(("if-match", format!("W/{own}"))),
            4 if method != "DELETE" => Some(("if-none-match", "*".to_owned())),
            5 if !writes => Some(("if-none-match", format!("\"x\", {own}"))),
            6 if !writes => Some(("if-none-match", format!("W/{own}"))),
            _ => None,
        };
        let condition = condition.filter(|_| method != "POST");
        let headers: Vec<_> = condition.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let holds =
            condition.as_ref().is_none_or(|(name, value)| holds(name, value, old.as_ref().map(|old| old.tag.as_str())));
        let body = format!("value {step}");
        let target = if method == "POST" { format!("{path}?append") } else { path };
        let reply = server.send(method, &target, &headers, body.as_bytes());
        let what = format!("{step}: {method} {target} {condition:?} on {old:?}: {reply:?}");
        let status = match (method, &old, holds) {
            ("GET" | "HEAD", Some(_), false) if headers[0].0 == "if-none-match" => 304,
            (_, _, false) if writes || headers[0].0 == "if-match" => 412,
            ("GET" | "HEAD" | "POST", Some(_), _) => 200,
            ("PUT", None, _) => 201,
            ("POST", None, _) => 200,
            ("PUT" | "DELETE", Some(_), _) => 204,
            _ => 404,
        };
        assert_eq!(reply.status, status, "{what}");
        let has_written = !["GET", "HEAD"].contains(&method) && status < 300;
        if !has_written {
            if status != 404 {
                assert_eq!(tag(&reply), old.as_ref().map(|old| old.tag.clone()), "{what}");
            }
            if status == 200 {
                assert_eq!(reply.body, if method == "GET" { old.unwrap().value } else { Vec::new() }, "{what}");
            }
            continue;
        }
        assert!(reply.headers.contains_key("quorate-position"), "{what}");
        if method == "DELETE" {
            model.remove(key);
            continue;
        }
        let new = tag(&reply).unwrap();
        assert!(!tags.contains(&new), "each change has a tag of its own: {what}");
        tags.push(new.clone());
        let value = match (method, old) {
            ("POST", Some(old)) => [&old.value, body.as_bytes()].concat(),
            _ => body.into_bytes(),
        };
        model.insert(key, Held { value, tag: new });
    }
}

/// Of writers that all depend on the version that they have read, none overwrites another.
#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_between_writers() {
    const WRITERS: usize = 4;
    const TURNS: usize = 10;
    let server = Server::start().await;
    server.send("PUT", "/keys/n", &[], b"0");
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    wait_until("a turn", || {
                        let read = server.get("/keys/n");
                        let next = read.text.parse::<u64>().unwrap() + 1;
                        let tag = tag(&read).unwrap();
                        let put = server.send("PUT", "/keys/n", &[("if-match", &tag)], next.to_string().as_bytes());
                        assert!([204, 412].contains(&put.status), "{put:?}");
                        put.status == 204
                    });
                }
            });
        }
    });
    assert_eq!(server.get("/keys/n").text, (WRITERS * TURNS).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_have_versions_and_expiries_of_their_own() {
    let server = Server::start().await;
    let made = server.send("PUT", "/keys/h?field=%FF", &[("if-none-match", "*")], b"1");
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(server.send("PUT", "/keys/h?field=%FF", &[("if-none-match", "*")], b"2").status, 412);
    assert_eq!(server.send("PUT", "/keys/h?field=other", &[], b"3").status, 201);
    let own = tag(&made).unwrap();
    let read = server.get("/keys/h?field=%FF");
    assert_eq!((read.text.as_str(), tag(&read)), ("1", Some(own.clone())), "the other field has not changed it");
    let sum = server.send("POST", "/keys/h?field=%FF&increment=41&ttl=1h", &[], b"");
    assert_eq!((sum.status, sum.text.as_str()), (200, "42"));
    assert!(sum.headers.contains_key("quorate-expires"), "{sum:?}");
    assert_eq!(server.send("DELETE", "/keys/h?field=%FF", &[("if-match", &own)], b"").status, 412);
    let new = tag(&sum).unwrap();
    assert_eq!(server.send("DELETE", "/keys/h?field=%FF", &[("if-match", &new)], b"").status, 204);
    assert_eq!(server.get("/keys/h?field=%FF").status, 404);
    assert_eq!(server.get("/keys/h").json()["fields"], json!([["other", "3"]]));
    server.send("PUT", "/keys/s", &[], b"text");
    for (method, path) in [("GET", "/keys/s?field=a"), ("PUT", "/keys/s?field=a"), ("POST", "/keys/h?append")] {
        let refused = server.send(method, path, &[], b"x");
        assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("WRONG_TYPE")), "{method} {path}");
    }
    let refused = server.send("POST", "/keys/s?increment=1", &[], b"");
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("INVALID_VALUE")));
}

#[tokio::test(flavor = "multi_thread")]
async fn expiries_are_set_kept_and_removed() {
    let server = Server::start().await;
    let expires = |reply: &Reply| reply.headers.get("quorate-expires").cloned();
    let put = server.send("PUT", "/keys/a?expires=4102444800.5", &[], b"1");
    assert_eq!(expires(&put).as_deref(), Some("4102444800.500"));
    assert_eq!(expires(&server.get("/keys/a")), expires(&put));
    assert_eq!(expires(&server.send("PUT", "/keys/a?keep_ttl", &[], b"2")), expires(&put));
    assert_eq!(expires(&server.send("POST", "/keys/a?increment=0.5", &[], b"")), expires(&put));
    assert_eq!(server.get("/keys/a").text, "2.5");
    let again = server.send("POST", "/keys/a?increment=1.0&ttl=1h", &[], b"");
    assert_eq!((again.text.as_str(), expires(&again)), ("3.5", expires(&put)), "it has an expiry already");
    assert_eq!(expires(&server.send("POST", "/keys/a?persist", &[], b"")), None);
    assert!(expires(&server.send("POST", "/keys/a?ttl=1h", &[], b"")).is_some());
    assert_eq!(expires(&server.send("PUT", "/keys/a", &[], b"3")), None);
    assert_eq!(server.send("POST", "/keys/missing?ttl=1h", &[], b"").status, 404);
    assert_eq!(server.send("PUT", "/keys/a?expires=1", &[], b"3").status, 204);
    assert_eq!(server.get("/keys/a").status, 404, "its time has come");
    assert_eq!(server.send("PUT", "/keys/b?ttl=50ms", &[], b"4").status, 201);
    wait_until("the expiry", || server.get("/keys/b").status == 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_value_is_read() {
    let server = Server::start().await;
    let own = tag(&server.send("PUT", "/keys/a", &[], b"0123456789")).unwrap();
    let read = |headers: &[(&str, &str)]| {
        let reply = server.send("GET", "/keys/a", headers, b"");
        (reply.status, reply.text.clone(), reply.headers.get("content-range").cloned())
    };
    let place = |text: &str| Some(text.to_owned());
    assert_eq!(read(&[("range", "bytes=2-4")]), (206, "234".to_owned(), place("bytes 2-4/10")));
    assert_eq!(read(&[("range", "bytes=-1"), ("if-range", &own)]), (206, "9".to_owned(), place("bytes 9-9/10")));
    assert_eq!(read(&[("range", "bytes=2-4"), ("if-range", "\"1\"")]), (200, "0123456789".to_owned(), None));
    assert_eq!(read(&[("range", "bytes=10-")]), (416, String::new(), place("bytes */10")));
    assert_eq!(read(&[("range", "bytes=2-4"), ("if-none-match", &own)]).0, 304);
}

/// Sends commands as one request.
fn run(door: &Door, commands: &Value) -> Reply {
    door.post("/keys", commands)
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_all_types_are_done_together() {
    let server = Server::start().await;
    let commands = json!([
        { "on": "string", "do": "set", "key": "s", "value": { "base64": "AP8" }, "if": "missing", "ttl": "1h" },
        { "on": "string", "do": "get", "key": "s" },
        { "on": "string", "do": "increment", "key": "n", "by": 2 },
        { "on": "string", "do": "increment", "key": "n", "by": 0.25 },
        { "on": "string", "do": "append", "key": "t", "value": "abc" },
        { "on": "hash", "do": "set", "key": "h", "fields": [["a", "1"], ["b", "2"]] },
        { "on": "hash", "do": "increment", "key": "h", "field": "a", "by": 5 },
        { "on": "hash", "do": "get", "key": "h", "fields": ["a", "x"] },
        { "on": "hash", "do": "scan", "key": "h" },
        { "on": "set", "do": "add", "key": "m", "members": ["x", "y"] },
        { "on": "set", "do": "contains", "key": "m", "members": ["x", "z"] },
        { "on": "set", "do": "union", "keys": ["m"] },
        { "on": "sorted set", "do": "add", "key": "z", "members": [["ann", 2], ["bob", 1.5]] },
        { "on": "sorted set", "do": "increment", "key": "z", "member": "bob", "by": 1 },
        { "on": "sorted set", "do": "range", "key": "z", "min": 2, "reverse": true },
        { "on": "sorted set", "do": "rank", "key": "z", "member": "bob" },
        { "on": "list", "do": "push", "key": "l", "values": ["1", "2", "3"], "end": "right" },
        { "on": "list", "do": "pop", "key": "l", "end": "left" },
        { "on": "list", "do": "insert", "key": "l", "at": { "before": "3" }, "value": "2.5" },
        { "on": "list", "do": "range", "key": "l", "start": 0, "stop": -1 },
        { "on": "key", "do": "exist", "keys": ["s", "h", "nothing"] },
        { "on": "key", "do": "rename", "key": "t", "to": "u" },
        { "on": "key", "do": "delete", "keys": ["u"] },
        { "on": "key", "do": "describe", "key": "u" },
    ]);
    let done = run(&server, &commands);
    assert_eq!(done.status, 200, "{done:?}");
    let expected = json!([
        true, { "base64": "AP8=" }, 2, "2.25", 3, 2, 6, ["6", null], [["a", "6"], ["b", "2"]], 2, [true, false],
        ["x", "y"], 2, 2.5, [["bob", 2.5], ["ann", 2.0]], [1, 2.5], 3, ["1"], 3, ["2", "2.5", "3"], 2, true, 1, null
    ]);
    assert_eq!(done.json()["results"], expected);
    assert!(done.headers.contains_key("quorate-position"));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_sorted_sets_expire_by_themselves() {
    let server = Server::start().await;
    let on = |what: &str, members: Value| json!({ "on": "sorted set", "do": what, "key": "z", "members": members });
    let mut expire = on("expire", json!(["a", "b", "x"]));
    expire["expires"] = json!(4_102_444_800.5);
    let mut short = on("expire", json!(["c"]));
    short["ttl"] = json!("10ms");
    let add = on("add", json!([["a", 1], ["b", 2], ["c", 3]]));
    let done = run(&server, &json!([add, expire, on("persist", json!(["b", "x"])), short]));
    assert_eq!(done.json()["results"], json!([3, [true, true, false], [true, false], [true]]), "{done:?}");
    wait_until("the expiry", || server.get("/keys/z").json()["members"] == json!([["a", 1.0], ["b", 2.0]]));

    let change = json!({ "on": "sorted set", "do": "increment", "key": "z", "member": "a", "by": 4 });
    let done = run(&server, &json!([change, on("describe", json!(["a", "b", "c"])), on("scores", json!(["a", "c"]))]));
    let results = &done.json()["results"];
    assert_eq!((&results[0], &results[2]), (&json!(5.0), &json!([5.0, null])), "{done:?}");
    let [changed, stays, gone] = [0, 1, 2].map(|place| &results[1][place]);
    assert_eq!((&changed["expires_at"], &stays["expires_at"]), (&json!(4_102_444_800.5), &Value::Null), "{done:?}");
    assert_eq!((&changed["version"], gone), (&stays["version"], &Value::Null), "{done:?}");

    let mut past = on("expire", json!(["a"]));
    for (time, status) in [(None, 400), (Some(-1.0), 400), (Some(1.0), 200)] {
        past["expires"] = json!(time);
        assert_eq!(run(&server, &json!([past])).status, status, "{past}");
    }
    assert_eq!(server.get("/keys/z").json()["members"], json!([["b", 2.0]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_and_members_get_and_lose_an_expiry() {
    let server = Server::start().await;
    for (kind, elements, add) in [("hash", "fields", "set"), ("set", "members", "add")] {
        let on = |what: &str, named: Value| json!({ "on": kind, "do": what, "key": kind, elements: named });
        let all = if kind == "hash" { json!([["a", "1"], ["b", "2"]]) } else { json!(["a", "b"]) };
        let mut expire = on("expire", json!(["a", "b", "x"]));
        expire["expires"] = json!(4_102_444_800.5);
        let described = on("describe", json!(["a", "b", "x"]));
        let done = run(&server, &json!([on(add, all), expire, on("persist", json!(["b", "x"])), described]));
        let results = &done.json()["results"];
        assert_eq!((&results[1], &results[2]), (&json!([true, true, false]), &json!([true, false])), "{done:?}");
        let [a, b, x] = [0, 1, 2].map(|place| &results[3][place]);
        assert_eq!((&a["expires_at"], &b["expires_at"], x), (&json!(4_102_444_800.5), &Value::Null, &Value::Null));
        assert_eq!(run(&server, &json!([on("expire", json!(["a"]))])).status, 400, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_which_one_fails_do_nothing() {
    let server = Server::start().await;
    let own = tag(&server.send("PUT", "/keys/a", &[], b"text")).unwrap();
    let version = own.trim_matches('"');
    let set = json!({ "on": "string", "do": "set", "key": "b", "value": "1" });
    for (command, status, code) in [
        (json!({ "on": "hash", "do": "get", "key": "a", "fields": ["x"] }), 409, "WRONG_TYPE"),
        (json!({ "on": "string", "do": "increment", "key": "a", "by": 1 }), 422, "INVALID_VALUE"),
        (json!({ "on": "key", "do": "expect", "key": "a", "version": "7" }), 412, "PRECONDITION_FAILED"),
        (json!({ "on": "key", "do": "expect", "key": "a", "version": null }), 412, "PRECONDITION_FAILED"),
    ] {
        let failed = run(&server, &json!([set, command]));
        assert_eq!((failed.status, &failed.json()["code"]), (status, &json!(code)), "{command}: {failed:?}");
        assert_eq!(server.get("/keys/b").status, 404, "{command}");
    }
    let expect = json!({ "on": "key", "do": "expect", "key": "a", "version": version });
    assert_eq!(run(&server, &json!([expect, set])).status, 200);
    assert_eq!(server.get("/keys/b").text, "1");
}

/// Follows the pages of a path to the end, and returns all rows.
fn pages(server: &Server, path: &str, rows: &str) -> Vec<Value> {
    let (mut found, mut next) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = next {
        let page = server.get(&path).json();
        found.extend(page[rows].as_array().unwrap().iter().cloned());
        next = page["next"].as_str().map(str::to_owned);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_together_are_the_whole() {
    let server = Server::start().await;
    let names: Vec<String> = (0..25).map(|number| format!("{number:02}")).collect();
    let commands = json!([
        { "on": "hash", "do": "set", "key": "h/1", "fields": names.iter().map(|n| (n, n)).collect::<Vec<_>>() },
        { "on": "set", "do": "add", "key": "m", "members": names },
        { "on": "sorted set", "do": "add", "key": "z", "members": names.iter().map(|n| (n, 1)).collect::<Vec<_>>() },
        { "on": "list", "do": "push", "key": "l", "values": names, "end": "right" },
    ]);
    assert_eq!(run(&server, &commands).status, 200);
    for limit in [1, 7, 25, 100] {
        let pages = |path: &str, rows| pages(&server, &format!("{path}?limit={limit}"), rows);
        let fields: Vec<Value> = names.iter().map(|name| json!([name, name])).collect();
        assert_eq!(pages("/keys/h%2F1", "fields"), fields);
        assert_eq!(json!(pages("/keys/m", "members")), json!(names));
        let members: Vec<Value> = names.iter().map(|name| json!([name, 1.0])).collect();
        assert_eq!(pages("/keys/z", "members"), members);
        assert_eq!(json!(pages("/keys/l", "items")), json!(names));
    }
    assert_eq!(server.get("/keys/z?min=2").json()["members"], json!([]));
    assert_eq!(server.get("/keys/z?reverse&limit=1").json()["members"], json!([["24", 1.0]]));
    assert_eq!(json!(pages(&server, "/keys/l?offset=-3&limit=2", "items")), json!(["22", "23", "24"]));
    let read = server.get("/keys/m");
    let own = tag(&read).unwrap();
    assert_eq!(read.headers["quorate-type"], "set");
    assert_eq!(server.send("GET", "/keys/m", &[("if-none-match", &own)], b"").status, 304);
    let local = server.send("GET", "/keys/m", &[("quorate-level", "local")], b"");
    assert_eq!(tag(&local), None, "what is read in two steps may be older than its version");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_in_the_order_of_their_bytes() {
    let server = Server::start().await;
    for (key, _) in KEYS {
        assert_eq!(server.send("PUT", &format!("/keys/{key}?space=3"), &[], key.as_bytes()).status, 201);
    }
    let shown: Vec<Value> = [2, 0, 1, 3, 4].map(|place: usize| serde_json::from_str(KEYS[place].1).unwrap()).to_vec();
    let names =
        |path: &str| -> Vec<Value> { pages(&server, path, "keys").iter().map(|entry| entry["key"].clone()).collect() };
    let mut reversed = shown.clone();
    reversed.reverse();
    for limit in 1..=6 {
        assert_eq!(names(&format!("/keys?space=3&limit={limit}")), shown);
        assert_eq!(names(&format!("/keys?space=3&limit={limit}&reverse")), reversed);
    }
    assert_eq!(names("/keys?space=3&prefix=x%2F"), [json!("x/y+z%")]);
    assert_eq!(names("/keys?space=3&prefix=%00&from=b"), Vec::<Value>::new());
    assert_eq!(names("/keys?space=3&from=b&to=x"), [json!("images/logo.png")]);
    assert_eq!(names("/keys"), Vec::<Value>::new(), "another space");
    let entry = server.get("/keys?space=3&prefix=a&values").json()["keys"][0].clone();
    assert_eq!((&entry["type"], &entry["value"], &entry["expires_at"]), (&json!("string"), &json!("a"), &Value::Null));
    assert_eq!(tag(&server.get("/keys/a?space=3")), Some(format!("\"{}\"", entry["version"].as_str().unwrap())));
    assert_eq!(names("/keys?space=3&type=sorted+set"), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_key_takes_effect_once() {
    let server = Server::start().await;
    let other = Door::open(server.node.sql(), Options::default()).await;
    let key = [("idempotency-key", "k")];
    let first = server.send("POST", "/keys/n?increment=5", &key, b"");
    let again = other.send("POST", "/keys/n?increment=5", &key, b"");
    assert_eq!((&again.text, tag(&again)), (&first.text, tag(&first)));
    assert_eq!(again.headers["quorate-position"], first.headers["quorate-position"]);
    assert_eq!(server.get("/keys/n").text, "5");
    let put = [("idempotency-key", "p"), ("if-none-match", "*")];
    for door in [&*server, &other] {
        assert_eq!(door.send("PUT", "/keys/p", &put, b"1").status, 201);
    }
    assert_eq!(server.send("PUT", "/keys/p", &put, b"2").json()["code"], "KEY_REUSED");
    // The time counts from the entry, so the request is the same when it is sent again.
    for (key, path) in [("q", "/keys/p?ttl=1h"), ("r", "/keys/p?expires=4102444800")] {
        let sent = [&*server, &other].map(|door| door.send("PUT", path, &[("idempotency-key", key)], b"2"));
        assert_eq!(sent.each_ref().map(|answer| answer.status), [204; 2], "{path}");
        assert_eq!(tag(&sent[0]), tag(&sent[1]));
    }
}

/// A read at the position of a write sees it, at any level of the door.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_leads_to_the_write() {
    let server = Server::start().await;
    for number in 0..10 {
        let text = number.to_string();
        let position = server.send("PUT", "/keys/a", &[], text.as_bytes()).headers["quorate-position"].clone();
        let level = format!("at-least={position}");
        assert_eq!(server.send("GET", "/keys/a", &[("quorate-level", &level)], b"").text, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_refused() {
    let server = Server::start().await;
    server.send("PUT", "/keys/a", &[], b"text");
    let long = "k".repeat((64 << 10) - 200);
    for (method, path, headers, status) in [
        ("GET", "/keys/%", &[][..], 400),
        ("GET", "/keys/%zz", &[], 400),
        ("GET", "/keys/a?tll=5m", &[], 400),
        ("PUT", "/keys/a?tll=5m", &[], 400),
        ("PUT", "/keys/a?ttl=5m&ttl=6m", &[], 400),
        ("PUT", "/keys/a?ttl=0", &[], 400),
        ("PUT", "/keys/a?ttl=-1s", &[], 400),
        ("PUT", "/keys/a?expires=NaN", &[], 400),
        ("PUT", "/keys/a?expires=-1", &[], 400),
        ("PUT", "/keys/a?ttl=1s&expires=1", &[], 400),
        ("PUT", "/keys/a?space=8", &[], 400),
        ("PUT", "/keys/a?space=-1", &[], 400),
        ("GET", "/keys?limit=0", &[], 400),
        ("GET", "/keys?limit=100001", &[], 400),
        ("GET", "/keys?type=stream", &[], 400),
        ("GET", "/keys/a?from=x", &[], 400),
        ("POST", "/keys/a", &[], 400),
        ("POST", "/keys/a?increment=1&append", &[], 400),
        ("POST", "/keys/a?increment=x", &[], 422),
        ("PUT", "/keys/a", &[("if-match", "1")], 400),
        ("PUT", "/keys/a", &[("if-match", "\"1\", \"2\"")], 422),
        ("PUT", "/keys/a", &[("if-none-match", "\"1\"")], 422),
        ("PUT", "/keys/a", &[("if-match", "*"), ("if-none-match", "*")], 422),
        ("POST", "/keys/a?append", &[("if-match", "*")], 422),
        ("GET", "/keys/", &[], 404),
        ("GET", &format!("/keys/{long}"), &[], 404),
        ("PUT", "/keys", &[], 405),
        ("DELETE", "/keys", &[], 405),
    ] {
        let refused = server.send(method, path, headers, b"x");
        assert_eq!(refused.status, status, "{method} {path} {headers:?}: {}", refused.text);
        assert!(refused.json()["message"].is_string(), "{method} {path}");
    }
    let too_long = vec![b'x'; quorate::keys::limits::VALUE_BYTES_MAX + 1];
    assert_eq!(server.send("PUT", "/keys/a", &[], &too_long).status, 413);
    let longest = &too_long[1..];
    assert_eq!(server.send("PUT", "/keys/longest", &[], longest).status, 201);
    assert!(server.get("/keys/longest").body == longest, "it is read as it was written");
    for command in [
        json!({ "on": "stream", "do": "get", "key": "a" }),
        json!({ "on": "string", "do": "fly", "key": "a" }),
        json!({ "on": "string", "do": "get" }),
        json!({ "on": "string", "do": "get", "key": 7 }),
        json!({ "on": "string", "do": "get", "key": "a", "tll": "5m" }),
        json!({ "on": "string", "do": "set", "key": "a", "value": "b", "if": { "version": "x" } }),
        json!({ "do": "get", "key": "a" }),
        json!("get"),
    ] {
        let refused = run(&server, &json!([command]));
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("MALFORMED_REQUEST")), "{command}");
    }
    for body in [json!([]), json!({}), json!(null)] {
        assert_eq!(run(&server, &body).status, 400, "{body}");
    }
    assert_eq!(server.get("/keys/a").text, "text", "none of them has changed it");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_read_and_writers_write() {
    let (server, [read, write, _]) = Server::with_users().await;
    let send = |token: &str, method: &str, path: &str| {
        let login = format!("Bearer {token}");
        server.send(method, path, &[("authorization", &login)], b"1").status
    };
    assert_eq!(send(&write, "PUT", "/keys/a"), 201);
    for method in ["PUT", "DELETE", "POST"] {
        assert_eq!(send(&read, method, "/keys/a"), 403, "{method}");
        assert_eq!(server.send(method, "/keys/a", &[], b"1").status, 401, "{method}");
    }
    let seen: BTreeSet<u16> = ["/keys", "/keys/a"].map(|path| send(&read, "GET", path)).into();
    assert_eq!(seen, BTreeSet::from([200]));
    assert_eq!(send(&write, "DELETE", "/keys/a"), 204);
}
