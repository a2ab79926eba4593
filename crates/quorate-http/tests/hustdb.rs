//! The endpoints of huststore: that they are off at first, whom they let in, what they refuse and how, expiries, and
//! that no update is lost between writers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Reply, Server, wait_until};
use quorate::admin::Login;
use quorate::keys::limits::FIELD_BYTES_MAX;
use quorate::users::UserRole;
use quorate_http::Options;
use quorate_http::options::BODY_BYTES_MAX;

/// All endpoints, with a query that each takes, in an order in which each finds what it needs.
const ENDPOINTS: [(&str, &str); 28] = [
    ("put", "key=a&val=1"),
    ("exist", "key=a"),
    ("get", "key=a"),
    ("get2", "key=a"),
    ("keys", "file=0&offset=0&size=10"),
    ("del", "key=a"),
    ("hset", "tb=h&key=a&val=1"),
    ("hexist", "tb=h&key=a"),
    ("hget", "tb=h&key=a"),
    ("hget2", "tb=h&key=a"),
    ("hincrby", "tb=h&key=a&val=1"),
    ("hkeys", "tb=h&offset=0&size=10"),
    ("hdel", "tb=h&key=a"),
    ("sadd", "tb=s&key=a"),
    ("sismember", "tb=s&key=a"),
    ("sismember2", "tb=s&key=a"),
    ("smembers", "tb=s&offset=0&size=10"),
    ("srem", "tb=s&key=a"),
    ("zadd", "tb=z&key=a&score=1"),
    ("zismember", "tb=z&key=a"),
    ("zscore", "tb=z&key=a"),
    ("zscore2", "tb=z&key=a"),
    ("zrangebyrank", "tb=z&offset=0&size=10"),
    ("zrangebyscore", "tb=z&offset=0&size=10&min=0&max=9"),
    ("stat", "tb=z"),
    ("zrem", "tb=z&key=a"),
    ("stat_all", ""),
    ("file_count", ""),
];

const WRITES: [&str; 9] = ["put", "del", "hset", "hdel", "hincrby", "sadd", "srem", "zadd", "zrem"];

fn on() -> Options {
    Options::default().with_huststore(true)
}

fn path(endpoint: &str, query: &str) -> String {
    format!("/hustdb/{endpoint}?{query}")
}

fn version(reply: &Reply) -> u64 {
    reply.headers["version"].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoints_are_off_unless_an_option_says_otherwise() {
    let (off, on) = (Server::start().await, Server::with(on()).await);
    for (endpoint, query) in ENDPOINTS {
        assert_eq!(off.get(&path(endpoint, query)).status, 404, "{endpoint}");
        let reply = on.get(&path(endpoint, query));
        assert_eq!(reply.status, 200, "{endpoint}: {reply:?}");
        assert_eq!(on.send("DELETE", &path(endpoint, query), &[], b"").status, 405, "{endpoint}");
    }
    for unknown in ["", "export", "binlog", "info", "task_status", "hgetall", "put/", "put2"] {
        assert_eq!(on.get(&format!("/hustdb/{unknown}?key=a")).status, 404, "{unknown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_their_roles_count_here_too() {
    let (server, [read, write, _]) = Server::with_users_and(on()).await;
    let login = Login::Password("huststore".to_owned());
    server.node.admin().add_user("app", UserRole::Write, login).await.unwrap();
    let basic = |name: &str, password: &str| format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
    let ask = |login: &str, endpoint: &str, query: &str| {
        server.send("GET", &path(endpoint, query), &[("authorization", login)], b"").status
    };
    for (endpoint, query) in ENDPOINTS {
        assert_eq!(server.get(&path(endpoint, query)).status, 401, "{endpoint}");
        if WRITES.contains(&endpoint) {
            assert_eq!(ask(&basic("x", &read), endpoint, query), 403, "{endpoint}");
        }
        // What removes is asked for once.
        let login = if endpoint.len() % 2 == 0 { basic("app", "huststore") } else { basic("x", &write) };
        assert_eq!(ask(&login, endpoint, query), 200, "{endpoint}");
    }
    let refused = server.get("/hustdb/get?key=a");
    assert!(refused.headers.contains_key("www-authenticate") && !refused.headers.contains_key("version"));
}

/// A browser sends no `Origin` for the picture of a page, and a `GET` writes here.
#[tokio::test(flavor = "multi_thread")]
async fn another_web_site_can_not_write() {
    let server = Server::with(on()).await;
    for (endpoint, query) in ENDPOINTS {
        let ask = |site: &str| server.send("GET", &path(endpoint, query), &[("sec-fetch-site", site)], b"").status;
        if WRITES.contains(&endpoint) {
            assert_eq!((ask("cross-site"), ask("same-site")), (403, 403), "{endpoint}");
        }
        assert_eq!(ask("none"), 200, "{endpoint}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_or_wrong_has_the_status_of_huststore() {
    let server = Server::with(on()).await;
    for (endpoint, query) in
        [("hset", "tb=h&key=text&val=abc"), ("sadd", "tb=s&key=a"), ("hset", "tb=h&key=max&val=9223372036854775807")]
    {
        assert_eq!(server.get(&path(endpoint, query)).status, 200);
    }
    for (endpoint, query, status) in [
        ("put", "val=1", 404),
        ("put", "key=a", 404),
        ("put", "key=a&val=", 400),
        ("put", "key=&val=1", 400),
        ("put", "key=a&val=%zz", 400),
        ("put", "key=a&key=b&val=1", 400),
        ("put", "key=a&val=1&is_dup=true", 400),
        ("put", "key=a&val=1&ttl=-1", 400),
        ("put", "key=a&val=1&ver=x", 400),
        ("put", "key=a&val=1&ver=7", 401),
        ("get", "", 404),
        ("get", "key=missing", 404),
        ("hget", "key=a", 404),
        ("hget", "tb=missing&key=a", 412),
        ("hget", "tb=s&key=a", 412),
        ("hset", "tb=s&key=a&val=1", 412),
        ("hincrby", "tb=h&key=text&val=1", 403),
        ("hincrby", "tb=h&key=max&val=1", 403),
        ("hincrby", "tb=h&key=a&val=1.5", 400),
        ("hincrby", "tb=h&key=a&val=1&ver=7", 401),
        ("zadd", "tb=z&key=a", 404),
        ("zadd", "tb=z&key=a&score=1.5", 400),
        ("zadd", "tb=z&key=a&score=9007199254740993", 400),
        ("zadd", "tb=z&key=a&score=-9223372036854775808", 400),
        ("zadd", "tb=z&key=a&score=1&ttl=-1", 400),
        ("get", "key=a&tb=h", 400),
        ("zadd", "tb=h&key=a&score=1", 412),
        ("zadd", "tb=z&key=a&score=1&ver=7", 401),
        ("srem", "tb=s&key=a&ver=7", 401),
        ("srem", "tb=missing&key=a&ver=7", 412),
        ("keys", "offset=0&size=1", 404),
        ("keys", "file=0&size=1", 404),
        ("keys", "file=1&offset=0&size=1", 400),
        ("keys", "file=0&offset=0&size=1001", 400),
        ("keys", "file=0&offset=1000001&size=1", 400),
        ("keys", "file=0&offset=0&size=1&start=0&end=512", 400),
        ("keys", "file=0&offset=0&size=1&start=0&end=1024&async=false", 200),
        ("keys", "file=0&offset=0&size=1&async=true", 400),
        ("keys", "file=0&offset=0&size=0", 200),
        ("hkeys", "tb=s&offset=0&size=1", 412),
        ("zrangebyscore", "tb=z&offset=0&size=1&min=0", 404),
        ("zrangebyscore", "tb=s&offset=0&size=1&min=0&max=nan", 400),
        ("stat", "tb=missing", 404),
    ] {
        let reply = server.get(&path(endpoint, query));
        assert_eq!(reply.status, status, "{endpoint}?{query}: {reply:?}");
        if WRITES.contains(&endpoint) && [401, 403, 412].contains(&status) {
            let error = if status == 401 { "true" } else { "false" };
            assert_eq!(reply.headers["vererror"], error, "{endpoint}?{query}: {reply:?}");
        }
    }
    assert_eq!(server.get("/hustdb/get?key=a").status, 404, "nothing of this was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_missing_or_too_long_are_refused() {
    let server = Server::with(on()).await;
    let post = |endpoint: &str, query: &str, body: &[u8]| server.send("POST", &path(endpoint, query), &[], body).status;
    for (endpoint, query) in
        [("put", "key=a&val=1"), ("hset", "tb=h&key=a&val=1"), ("sadd", "tb=s&key=a"), ("zscore", "tb=z&key=a")]
    {
        assert_eq!(post(endpoint, query, b""), 404, "{endpoint} has its value or its member in the body");
    }
    assert_eq!(post("get", "key=a", b"x"), 405);
    let body = vec![b'x'; BODY_BYTES_MAX];
    assert_eq!(post("put", "key=a", &body), 400, "a value has less than that");
    assert_eq!(post("put", "key=a", &[&body[..], b"x"].concat()), 413);
    assert_eq!(post("sadd", "tb=s", &body[..FIELD_BYTES_MAX]), 200);
    for (endpoint, query) in [("sadd", "tb=s"), ("srem", "tb=s"), ("zadd", "tb=z&score=1"), ("zscore", "tb=s")] {
        let status = post(endpoint, query, &body[..=FIELD_BYTES_MAX]);
        assert!((400..500).contains(&status), "{endpoint}: {status}");
    }
    assert_eq!(server.get(&path("smembers", "tb=s&offset=0&size=9")).headers["keys"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_query_makes_the_port_fail() {
    let server = Server::with(on()).await;
    let pieces = [
        "tb",
        "key",
        "val",
        "ver",
        "ttl",
        "offset",
        "size",
        "=",
        "&",
        "%",
        "%00",
        "+",
        "1",
        "-1",
        "99999999999999999999",
        "t",
    ];
    let mut seed = 5_usize;
    for _ in 0..300 {
        let mut query = String::new();
        for _ in 0..12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            query.push_str(pieces[(seed >> 33) % pieces.len()]);
        }
        let (endpoint, _) = ENDPOINTS[(seed >> 20) % ENDPOINTS.len()];
        let status = server.get(&path(endpoint, &query)).status;
        assert!(status < 500, "{endpoint}?{query}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_fields_and_members_expire_unless_they_are_set_again() {
    let server = Server::with(on()).await;
    let get = |endpoint: &str, query: &str| server.get(&path(endpoint, query));
    for key in ["short", "again"] {
        for (endpoint, query) in [
            ("put", format!("key={key}&val=1&ttl=1")),
            ("hset", format!("tb=h-{key}&key=a&val=1&ttl=1")),
            ("hincrby", format!("tb=h-{key}&key=n&val=1&ttl=1")),
            ("sadd", format!("tb=s-{key}&key=a&ttl=1")),
            ("zadd", format!("tb=z-{key}&key=a&score=1&ttl=1")),
            ("zadd", format!("tb=z-{key}&key=n&score=1&opt=1&ttl=1")),
        ] {
            assert_eq!(get(endpoint, &query).status, 200, "{endpoint}");
            if key == "again" {
                // A time of a hundred years is no time of never; none is.
                let query = query.replace("ttl=1", if endpoint == "put" { "ttl=3153600000" } else { "ttl=0" });
                assert_eq!(get(endpoint, &query).status, 200, "{endpoint}");
            }
        }
    }
    let listed = get("keys", "file=0&offset=0&size=9").json();
    assert!(listed[0]["ttl"].as_u64() > listed[1]["ttl"].as_u64(), "{listed}");
    wait_until("the expiry", || get("get", "key=short").status == 404);
    wait_until("the expiry of fields", || get("hget", "tb=h-short&key=a").status == 412);
    wait_until("the expiry of sums", || get("hexist", "tb=h-short&key=n").status == 412);
    wait_until("the expiry of members", || get("sismember", "tb=s-short&key=a").status == 412);
    wait_until("the expiry of scores", || get("zscore", "tb=z-short&key=a").status == 412);
    for (endpoint, query) in [
        ("get", "key=again"),
        ("hget", "tb=h-again&key=a"),
        ("hget", "tb=h-again&key=n"),
        ("sismember", "tb=s-again&key=a"),
        ("zscore", "tb=z-again&key=a"),
        ("zscore", "tb=z-again&key=n"),
    ] {
        assert_eq!(get(endpoint, query).status, 200, "{endpoint}?{query}");
    }
    let members = server.node.keys().space(1).set_of("s-again").describe(["a"]).await.unwrap();
    assert!(members[0].is_some_and(|(_, expires_at)| expires_at.is_none()), "{members:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_score_and_its_expiry_are_one_change() {
    let server = Server::with(on()).await;
    let zadd = |query: &str| server.get(&path("zadd", &format!("tb=z&key=a&{query}")));
    let set = server.node.keys().space(1).sorted_set("z");
    let expires_at = async || set.describe(["a"]).await.unwrap()[0].and_then(|(_, expires_at)| expires_at);

    let added = zadd("score=5&ttl=3600");
    assert_eq!((added.status, added.text.as_str()), (200, "5"), "{added:?}");
    let first = expires_at().await;
    assert!(first.is_some());
    let refused = zadd("score=7&ttl=0&ver=7");
    assert_eq!((refused.status, version(&refused)), (401, version(&added)), "{refused:?}");
    assert_eq!((set.score("a").await.unwrap(), expires_at().await), (Some(5.0), first));

    let sum = zadd(&format!("score=2&opt=1&ver={}", version(&added)));
    assert_eq!((sum.status, sum.text.as_str(), expires_at().await), (200, "7", first), "none leaves it");
    let stays = zadd(&format!("score=3&opt=-1&ttl=0&ver={}", version(&sum)));
    assert_eq!((stays.status, stays.text.as_str(), expires_at().await), (200, "4", None), "0 is for ever");
    let same = zadd("score=4&ttl=3153600000");
    assert!(same.status == 200 && expires_at().await > first, "{same:?}");
    assert_eq!(version(&server.get(&path("zscore", "tb=z&key=a"))), version(&same));
}

/// Of writers that all depend on the version that they have read, none overwrites another; and those that depend on
/// none add up.
#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_between_writers() {
    const WRITERS: usize = 4;
    const TURNS: usize = 8;
    let server = Server::with(on()).await;
    for (endpoint, query) in [("put", "key=n&val=0"), ("hset", "tb=h&key=n&val=0"), ("zadd", "tb=z&key=n&score=1")] {
        assert_eq!(server.get(&path(endpoint, query)).status, 200);
    }
    let turn = |read: (&str, &str), write: &dyn Fn(u64, u64) -> String| {
        wait_until("a turn", || {
            let read = server.get(&path(read.0, read.1));
            let put = server.get(&write(read.text.parse::<u64>().unwrap() + 1, version(&read)));
            assert!([200, 401].contains(&put.status), "{put:?}");
            assert_eq!(put.headers["vererror"], if put.status == 401 { "true" } else { "false" });
            put.status == 200
        });
    };
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    turn(("get", "key=n"), &|next, ver| path("put", &format!("key=n&val={next}&ver={ver}")));
                    turn(("hget", "tb=h&key=n"), &|_, ver| path("hincrby", &format!("tb=h&key=n&val=1&ver={ver}")));
                    turn(("zscore", "tb=z&key=n"), &|next, ver| {
                        path("zadd", &format!("tb=z&key=n&score={next}&ver={ver}"))
                    });
                    assert_eq!(server.get(&path("hincrby", "tb=h&key=free&val=2")).status, 200);
                    assert_eq!(server.get(&path("zadd", "tb=other&key=free&score=2&opt=1")).status, 200);
                    assert_eq!(server.get(&path("zadd", "tb=other&key=free&score=1&opt=-1")).status, 200);
                }
            });
        }
    });
    let total = WRITERS * TURNS;
    for (endpoint, query, sum) in [
        ("get", "key=n", total),
        ("hget", "tb=h&key=n", total),
        ("zscore", "tb=z&key=n", total + 1),
        ("hget", "tb=h&key=free", 2 * total),
        ("zscore", "tb=other&key=free", total),
    ] {
        assert_eq!(server.get(&path(endpoint, query)).text, sum.to_string(), "{endpoint}?{query}");
    }
}

/// A key and a table may have the same name; what is written here is there for all other clients.
#[tokio::test(flavor = "multi_thread")]
async fn keys_and_tables_are_those_of_the_other_doors() {
    let server = Server::with(on()).await;
    let put = server.send("POST", "/hustdb/put?key=same", &[], b"\0text");
    let set = server.send("POST", "/hustdb/hset?tb=same&key=f", &[], b"\xff");
    assert_eq!((put.status, set.status), (200, 200));
    let read = server.get("/keys/same");
    assert_eq!(
        (read.body.as_slice(), read.headers["etag"].clone()),
        (&b"\0text"[..], format!("\"{}\"", version(&put)))
    );
    assert_eq!(server.get("/keys/same?space=1&field=f").body, b"\xff");
    assert_eq!(server.send("PUT", "/keys/same", &[], b"new").status, 204);
    assert_eq!(server.get("/hustdb/get?key=same").text, "new");
    assert_eq!(server.send("GET", &format!("/hustdb/del?key=same&ver={}", version(&put)), &[], b"").status, 401);
    server.send("PUT", "/keys/hash?field=f", &[], b"x");
    assert_eq!(server.get("/hustdb/get?key=hash").status, 412, "it holds no string");
    let named = [("idempotency-key", "once")];
    for _ in 0..2 {
        assert_eq!(server.send("GET", "/hustdb/hincrby?tb=same&key=n&val=1", &named, b"").text, "1");
    }
}
