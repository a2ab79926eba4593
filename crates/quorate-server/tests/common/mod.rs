//! A plain client of the HTTP port, and a parser for its metrics.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use quorate::sim::{OpenGroup, SimHooks};
use quorate::types::GroupId;
use quorate::{Config, Node};
use quorate_apply::memory_store::{MemoryStore, MemoryStoreOptions};
use quorate_backup::schedule::{Last, Seen, State};
use quorate_env::Env;
use quorate_model::StateMachine;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_resp::Notifications;
use quorate_server::http::{HttpServer, serve};
use quorate_server::resp;

use crate::support::{PATIENCE, until};

/// A group beside `main`.
pub const BESIDE: GroupId = GroupId(2);

/// The environment of a node that is also in the group [`BESIDE`].
pub fn with_group(config: &Config) -> (Env, SimHooks) {
    let (env, dir) = (Env::real(), config.data_dir.join("beside"));
    let disk = Arc::clone(env.disk());
    let open: OpenGroup = Arc::new(move |identity, waits| {
        let options = MemoryStoreOptions { waits, ..MemoryStoreOptions::default() };
        let store = MemoryStore::open(Arc::clone(&disk), &dir, identity, FORMAT_LEVEL, options)?;
        Ok(store as Arc<dyn StateMachine>)
    });
    (env, SimHooks { groups: [(BESIDE, open)].into(), ..SimHooks::default() })
}

/// Waits until a node that runs alone has raised the format level, about a second after its start. That is a write too,
/// and the last one that it makes by itself.
pub async fn raised(node: &Node) {
    until("the format level", || node.status().format_level == FORMAT_LEVEL).await;
}

/// Opens a port for a node.
pub async fn show(node: &Node) -> HttpServer {
    let server = serve("127.0.0.1:0", None).await.unwrap();
    server.show(node);
    server.show_backups(backups());
    // Its counts are shown although it is closed again at once.
    server.show_redis(&resp::serve("127.0.0.1:0", None, false, Notifications::default(), node).await.unwrap());
    server
}

/// Returns a state of scheduled backups, of which one was made.
pub fn backups() -> Arc<State> {
    let name = "20261127T020000Z-00000000000000000000000000c0ffee-1.1.57.db.zst".parse().unwrap();
    let seen = Seen { last: Some(Last { name, bytes: 1 }), ..Seen::default() };
    Arc::new(seen.into())
}

/// Requests a page and returns its status code and its body.
pub fn get(server: &HttpServer, path: &str) -> (u16, String) {
    let answer = exchange(server, format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Sends bytes on a new connection and reads until its end.
pub fn exchange(server: &HttpServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The port may close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// The parsed page of metrics.
#[derive(Debug)]
pub struct Page {
    pub text: String,
    /// The type of each metric, by name.
    pub types: BTreeMap<String, String>,
    /// The samples, by name with labels.
    pub samples: BTreeMap<String, f64>,
}

impl Page {
    pub fn of(server: &HttpServer) -> Self {
        let (code, text) = get(server, "/metrics");
        assert_eq!(code, 200, "{text}");
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let types = types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        });
        Self { types, samples: samples.collect(), text }
    }

    /// Returns a sample by its name, with the label `group="main"` followed by `labels`.
    pub fn main(&self, name: &str, labels: &str) -> f64 {
        self.group("main", name, labels)
    }

    /// Returns a sample of a group.
    pub fn group(&self, group: &str, name: &str, labels: &str) -> f64 {
        self.sample(&format!("{name}{{group=\"{group}\"{labels}}}"))
    }

    pub fn sample(&self, name: &str) -> f64 {
        *self.samples.get(name).unwrap_or_else(|| panic!("there is no {name} in\n{}", self.text))
    }

    /// Returns the names of all samples, without labels. A histogram has three.
    pub fn names(&self) -> BTreeSet<&str> {
        self.samples.keys().map(|key| key.split('{').next().unwrap()).collect()
    }

    /// Returns the names of the labels of a metric, except `le`.
    pub fn labels(&self, name: &str) -> BTreeSet<&str> {
        self.pairs(name).into_iter().map(|(label, _)| label).filter(|label| *label != "le").collect()
    }

    /// Returns the groups of a metric.
    pub fn groups(&self, name: &str) -> BTreeSet<&str> {
        let groups = self.pairs(name).into_iter().filter(|(label, _)| *label == "group");
        groups.map(|(_, group)| group.trim_matches('"')).collect()
    }

    /// Returns the labels of a metric with their values.
    fn pairs(&self, name: &str) -> BTreeSet<(&str, &str)> {
        let of_name = |key: &&String| {
            let found = key.split('{').next().unwrap();
            ["", "_bucket", "_sum", "_count"].iter().any(|suffix| found.strip_suffix(suffix) == Some(name))
        };
        let keys = self.samples.keys().filter(of_name);
        let labels = keys.filter_map(|key| key.split_once('{')?.1.strip_suffix('}'));
        labels.flat_map(|labels| labels.split(',').filter_map(|label| label.split_once('='))).collect()
    }
}
