//! Requests at random to the endpoints of huststore, each answered as a naive model says: maps of keys and of tables,
//! written from the table of its endpoints. Keys and values are any bytes.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Draw, Reply, Server};
use quorate_http::Options;

/// Keys and members, as they stand in a URL and as they are.
const NAMES: [(&str, &[u8]); 6] = [
    ("a", b"a"),
    ("a+b", b"a+b"),
    ("%00%FF", b"\0\xff"),
    ("x%2Fy%26z%3D", b"x/y&z="),
    ("%C3%A9", "é".as_bytes()),
    ("7", b"7"),
];

/// The names of keys, of which some are also those of tables.
const TABLES: [&str; 3] = ["a", "t:1", "t_2"];

const STEPS: usize = 1_500;

type Name = &'static [u8];

/// A value with its version.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    value: Vec<u8>,
    version: u64,
}

/// What a table holds. The version of a set is not known after a removal, until it is read.
#[derive(Clone, Debug, PartialEq)]
enum Table {
    Hash(BTreeMap<Name, Held>),
    Set(BTreeMap<Name, ()>, Option<u64>),
    Scored(BTreeMap<Name, i64>, Option<u64>),
}

#[derive(Debug, Default)]
struct Model {
    keys: BTreeMap<Name, Held>,
    tables: BTreeMap<&'static str, Table>,
}

/// A request, and what it is about.
#[derive(Debug)]
struct Step {
    endpoint: &'static str,
    table: &'static str,
    name: Name,
    value: Vec<u8>,
    number: i64,
    opt: i64,
    ver: Option<u64>,
}

/// What an answer must be.
#[derive(Debug, PartialEq)]
struct Expected {
    status: u16,
    body: Option<Vec<u8>>,
    /// The version, if the request leaves it as it is, or removes it.
    version: Option<u64>,
}

fn refused(status: u16) -> Expected {
    Expected { status, body: None, version: (status != 401).then_some(0) }
}

fn found(body: Option<Vec<u8>>, version: Option<u64>) -> Expected {
    Expected { status: 200, body, version }
}

impl Model {
    /// Returns what the answer must be, and does what the request asks for. `new` is the version in the answer.
    fn run(&mut self, step: &Step, new: u64) -> Expected {
        let Step { endpoint, table, name, .. } = step;
        if !endpoint.starts_with(['h', 's', 'z']) {
            return own(&mut self.keys, step, new, 404);
        }
        let kept = self.tables.get(table).cloned();
        let mut kept = match (endpoint.as_bytes()[0], kept, endpoint.ends_with("et") || endpoint.ends_with("add")) {
            (_, Some(table), _) => table,
            (b'h', None, _) if ["hset", "hincrby"].contains(endpoint) => Table::Hash(BTreeMap::new()),
            (b's', None, true) => Table::Set(BTreeMap::new(), None),
            (b'z', None, true) => Table::Scored(BTreeMap::new(), None),
            _ => return refused(412),
        };
        let expected = match (&mut kept, endpoint.as_bytes()[0]) {
            (Table::Hash(fields), b'h') => own(fields, step, new, 404),
            (Table::Set(members, version), b's') => shared(members, version, step, new, |_| ((), None)),
            (Table::Scored(members, version), b'z') => {
                let old = members.get(name).copied();
                let score = match step.opt {
                    0 => step.number,
                    1 => old.unwrap_or(0) + step.number,
                    _ => old.unwrap_or(0) - step.number,
                };
                let body = match *endpoint {
                    "zscore" => old,
                    "zadd" => Some(score),
                    _ => None,
                };
                shared(members, version, step, new, |_| (score, body.map(|score| score.to_string().into_bytes())))
            }
            _ => refused(412),
        };
        let is_empty = match &kept {
            Table::Hash(fields) => fields.is_empty(),
            Table::Set(members, _) => members.is_empty(),
            Table::Scored(members, _) => members.is_empty(),
        };
        if is_empty {
            self.tables.remove(table);
        } else {
            self.tables.insert(table, kept);
        }
        expected
    }
}

/// What a request on a key or a field does, which has a version of its own.
fn own(held: &mut BTreeMap<Name, Held>, step: &Step, new: u64, missing: u16) -> Expected {
    let old = held.get(step.name).cloned();
    let version = old.as_ref().map(|old| old.version);
    let is_match = step.ver.is_none() || step.ver == version;
    match step.endpoint {
        "exist" | "hexist" => old.map_or(refused(missing), |_| found(Some(Vec::new()), version)),
        "get" | "get2" | "hget" | "hget2" => old.map_or(refused(missing), |old| found(Some(old.value), version)),
        "del" | "hdel" => match old {
            None => refused(missing),
            Some(_) if !is_match => Expected { version, ..refused(401) },
            Some(_) => {
                held.remove(step.name);
                found(Some(Vec::new()), version)
            }
        },
        _ if !is_match => Expected { version: Some(version.unwrap_or(0)), ..refused(401) },
        endpoint => {
            let (mut value, mut body) = (step.value.clone(), Vec::new());
            if endpoint == "hincrby" {
                let old = old.map_or(Some(0), |old| String::from_utf8(old.value).ok()?.parse::<i64>().ok());
                let Some(old) = old else { return refused(403) };
                value = (old + step.number).to_string().into_bytes();
                body = value.clone();
            }
            held.insert(step.name, Held { value, version: new });
            found(Some(body), None)
        }
    }
}

/// What a request on a member does, which has the version of its table.
fn shared<T: Clone + PartialEq>(
    members: &mut BTreeMap<Name, T>,
    version: &mut Option<u64>,
    step: &Step,
    new: u64,
    value: impl Fn(Option<&T>) -> (T, Option<Vec<u8>>),
) -> Expected {
    let old = members.get(step.name).cloned();
    let (made, body) = value(old.as_ref());
    let is_match = step.ver.is_none() || step.ver == *version;
    if !is_match && !step.endpoint.ends_with("member") && step.endpoint != "zscore" {
        let missing = if step.endpoint.ends_with("rem") { 412 } else { 401 };
        let (status, now) = if members.is_empty() { (missing, 0) } else { (401, version.unwrap_or(new)) };
        return Expected { status, body: None, version: Some(now) };
    }
    match (step.endpoint, old) {
        ("sadd" | "zadd", old) => {
            let is_same = old.as_ref() == Some(&made);
            assert!(!is_same || version.is_none_or(|version| version <= new), "{step:?}");
            members.insert(step.name, made);
            *version = Some(new);
            found(Some(body.unwrap_or_default()), None)
        }
        (_, None) => refused(404),
        ("srem" | "zrem", Some(_)) => {
            members.remove(step.name);
            let before = version.take();
            found(Some(Vec::new()), before)
        }
        (_, Some(_)) => {
            let known = version.replace(new);
            found(Some(body.unwrap_or_default()), known)
        }
    }
}

const ENDPOINTS: [&str; 24] = [
    "put",
    "put",
    "get",
    "get2",
    "exist",
    "del",
    "hset",
    "hset",
    "hget",
    "hget2",
    "hexist",
    "hdel",
    "hincrby",
    "sadd",
    "sadd",
    "sismember",
    "srem",
    "zadd",
    "zadd",
    "zscore",
    "zismember",
    "zrem",
    "zadd",
    "hincrby",
];

/// Draws a request, and returns it with the method, the path and the body.
fn draw(draw: &mut Draw, model: &Model, seen: &[u64]) -> (Step, &'static str, String, Vec<u8>) {
    let (endpoint, table, (shown, name)) = (draw.of(&ENDPOINTS), draw.of(&TABLES), draw.of(&NAMES));
    let kind = endpoint.as_bytes()[0];
    let value = draw.of(&[&b"12"[..], b"\0\xff\r\n", b"-3", b"text & more"]).to_vec();
    let (number, opt) = (i64::try_from(draw.below(100)).unwrap() - 20, draw.of(&[0, 0, 1, -1]));
    let (own, is_other) = match (model.tables.get(table), kind) {
        (Some(Table::Hash(fields)), b'h') => (fields.get(name).map(|held| held.version), false),
        (Some(Table::Set(_, version)), b's') | (Some(Table::Scored(_, version)), b'z') => (*version, false),
        (Some(_), b'h' | b's' | b'z') => (None, true),
        (None, b'h' | b's' | b'z') => (None, false),
        _ => (model.keys.get(name).map(|held| held.version), false),
    };
    let can_depend = ["put", "del", "hset", "hdel", "hincrby", "sadd", "srem", "zadd", "zrem"].contains(&endpoint);
    let ver = match draw.below(4) {
        // Of a table of another type, the version is not what is wrong.
        _ if is_other || !can_depend => None,
        0 => own,
        1 => Some(draw.of(seen)),
        _ => None,
    };
    let mut query = Vec::new();
    if ["h", "s", "z"].iter().any(|of| endpoint.starts_with(of)) {
        query.push(format!("tb={table}"));
    }
    let is_post = draw.below(2) == 0;
    let (mut method, mut body) = ("GET", Vec::new());
    match endpoint {
        "put" | "hset" => {
            query.push(format!("key={shown}"));
            if is_post {
                (method, body) = ("POST", value.clone());
            } else {
                query.push(format!("val={}", escaped(&value)));
            }
        }
        _ if is_post && (kind == b's' || kind == b'z') => (method, body) = ("POST", name.to_vec()),
        _ => query.push(format!("key={shown}")),
    }
    match endpoint {
        "hincrby" => query.push(format!("val={number}")),
        "zadd" => query.push(format!("score={number}&opt={opt}")),
        _ => {}
    }
    query.extend(ver.map(|ver| format!("ver={ver}")));
    let path = format!("/hustdb/{endpoint}?{}", query.join("&"));
    (Step { endpoint, table, name, value, number, opt, ver }, method, path, body)
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

fn version(reply: &Reply) -> u64 {
    reply.headers["version"].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_as_a_naive_model_says() {
    let server = Server::with(Options::default().with_huststore(true)).await;
    let (mut model, mut dice, mut seen) = (Model::default(), Draw(11), vec![1]);
    let mut statuses = BTreeSet::new();
    for number in 0..STEPS {
        let (step, method, path, body) = draw(&mut dice, &model, &seen);
        let reply = server.send(method, &path, &[], &body);
        let what = format!("{number}: {method} {path} {step:?} on {model:?}: {reply:?}");
        assert!(reply.headers.contains_key("version"), "{what}");
        let new = version(&reply);
        let expected = model.run(&step, new);
        assert_eq!(reply.status, expected.status, "{what}");
        statuses.insert(reply.status);
        if let Some(body) = expected.body {
            assert_eq!(reply.body, body, "{what}");
        }
        if let Some(version) = expected.version {
            assert_eq!(new, version, "{what}");
        }
        let is_write = !["get", "exist", "hget", "hexist", "ismember", "zscore"].iter().any(|of| path.contains(of));
        let error = reply.headers.get("vererror").map(String::as_str);
        let said = if reply.status == 401 { "true" } else { "false" };
        assert_eq!(error, is_write.then_some(said), "{what}");
        assert!(!["put", "hset", "hincrby"].contains(&step.endpoint) || reply.status != 200 || !seen.contains(&new));
        if new > 0 && !seen.contains(&new) {
            seen.push(new);
        }
        if number % 100 == 99 {
            lists_are_the_model(&server, &model);
        }
    }
    assert_eq!(statuses, BTreeSet::from([200, 401, 403, 404, 412]));
}

/// Reads a list by pages of two rows.
fn rows(server: &Server, path: &str) -> Vec<(Vec<u8>, Option<Vec<u8>>, u64)> {
    let mut rows = Vec::new();
    loop {
        let page = server.get(&format!("{path}&offset={}&size=2", rows.len()));
        assert_eq!(page.status, 200, "{path}: {page:?}");
        let found = page.json();
        let found = found.as_array().unwrap();
        assert_eq!(page.headers["keys"], found.len().to_string());
        assert_eq!(page.headers["totalcount"], "0");
        rows.extend(found.iter().map(|row| {
            let text = |name: &str| row.get(name).map(|text| text.as_str().unwrap().to_owned());
            let value = text("val")
                .map(|text| if path.contains("/z") { text.into_bytes() } else { STANDARD.decode(text).unwrap() });
            (STANDARD.decode(text("key").unwrap()).unwrap(), value, row["ver"].as_u64().unwrap())
        }));
        if found.len() < 2 {
            return rows;
        }
    }
}

fn lists_are_the_model(server: &Server, model: &Model) {
    let of = |held: &BTreeMap<Name, Held>| -> Vec<_> {
        held.iter().map(|(key, held)| (key.to_vec(), Some(held.value.clone()), held.version)).collect()
    };
    assert_eq!(rows(server, "/hustdb/keys?file=0&noval=false"), of(&model.keys));
    let names: Vec<_> = rows(server, "/hustdb/keys?file=0").into_iter().map(|(key, value, _)| (key, value)).collect();
    assert_eq!(names, model.keys.keys().map(|key| (key.to_vec(), None)).collect::<Vec<_>>());
    let stat = server.get("/hustdb/stat").json();
    assert_eq!(stat["TOTALIZE"]["KVPAIR"]["count"], model.keys.len());
    for name in TABLES {
        let Some(table) = model.tables.get(name) else {
            for endpoint in ["hkeys", "smembers", "zrangebyrank"] {
                let missing = server.get(&format!("/hustdb/{endpoint}?tb={name}&offset=0&size=2"));
                assert_eq!(missing.status, 412, "{missing:?}");
            }
            assert_eq!(server.get(&format!("/hustdb/stat?tb={name}")).status, 404);
            continue;
        };
        let (letter, count) = match table {
            Table::Hash(fields) => {
                assert_eq!(rows(server, &format!("/hustdb/hkeys?tb={name}&noval=false")), of(fields));
                ("H", fields.len())
            }
            Table::Set(members, version) => {
                let found = rows(server, &format!("/hustdb/smembers?tb={name}"));
                assert!(found.iter().map(|(member, ..)| member.as_slice()).eq(members.keys().copied()), "{found:?}");
                assert!(found.iter().all(|(.., found)| version.is_none_or(|version| version == *found)), "{found:?}");
                ("S", members.len())
            }
            Table::Scored(members, _) => {
                let mut ranked: Vec<_> = members.iter().map(|(member, score)| (*score, *member)).collect();
                ranked.sort_unstable();
                let shown = |(score, member): &(i64, Name)| (member.to_vec(), Some(score.to_string().into_bytes()));
                let by = |path: &str| -> Vec<_> {
                    rows(server, path).into_iter().map(|(member, score, _)| (member, score)).collect()
                };
                let all: Vec<_> = ranked.iter().map(shown).collect();
                assert_eq!(by(&format!("/hustdb/zrangebyrank?tb={name}&noval=false")), all);
                let some: Vec<_> = ranked.iter().filter(|(score, _)| (0..=30).contains(score)).map(shown).collect();
                assert_eq!(by(&format!("/hustdb/zrangebyscore?tb={name}&noval=false&min=0&max=30")), some);
                ("Z", members.len())
            }
        };
        let stat = server.get(&format!("/hustdb/stat?tb={name}")).json();
        assert_eq!((stat["type"].as_str(), stat["count"].as_u64()), (Some(letter), u64::try_from(count).ok()));
    }
}
