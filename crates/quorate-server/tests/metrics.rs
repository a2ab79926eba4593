//! Metrics count what was done, agree with the documentation, and cover all that the dashboard shows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;
#[path = "../../quorate/tests/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{BESIDE, Page, get, raised, show, with_group};
use quorate::events::EventId;
use quorate::sim::{SimHooks, group};
use quorate::{Config, Level, Node};
use quorate_env::Env;
use quorate_model::codec::encode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{Command, ItemsCommand, Proposal};
use quorate_server::http::HttpServer;
use serde_json::Value;
use support::{Cluster, Single, run, until};

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../../deploy/grafana/quorate.json");

const STAGES: [&str; 6] = ["validate", "queue", "append", "fsync", "replicate", "apply"];

fn stage(page: &Page, stage: &str, of: &str) -> f64 {
    page.main(&format!("quorate_write_stage_seconds_{of}"), &format!(",stage=\"{stage}\""))
}

#[test]
fn a_node_counts_what_it_did() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let (sql, server) = (node.sql(), show(&node).await);
        // Before the first write, so that the batch that raises the level is recorded before that of this write.
        raised(&node).await;
        sql.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)", ()).await.unwrap();
        let settled =
            |page: &Page| page.main("quorate_writes_total", "") == page.main("quorate_write_seconds_count", "");
        until("the first batches", || settled(&Page::of(&server))).await;
        let before = Page::of(&server);
        for x in 0..40 {
            sql.execute("INSERT INTO t VALUES (?)", (x,)).await.unwrap();
        }
        for _ in 0..3 {
            sql.execute("INSERT INTO t VALUES (1)", ()).await.unwrap_err();
        }
        sql.execute("INSERT INTO missing VALUES (1)", ()).await.unwrap_err();
        sql.execute("no SQL at all", ()).await.unwrap_err();
        for (level, times) in [(Level::Local, 5), (Level::Linearizable, 2)] {
            for _ in 0..times {
                sql.at(level).query("SELECT * FROM t", ()).await.unwrap();
            }
        }
        sql.query("SELECT * FROM missing", ()).await.unwrap_err();

        // Callers get their answers shortly before the batch is recorded in the metrics.
        let measured = |page: &Page| page.main("quorate_write_seconds_count", "");
        until("the last batch", || measured(&Page::of(&server)) >= measured(&before) + 44.0).await;
        let after = Page::of(&server);
        let grown = |name: &str, labels: &str| after.main(name, labels) - before.main(name, labels);
        assert_eq!(grown("quorate_writes_total", ""), 40.0);
        assert_eq!(grown("quorate_write_failures_total", ",kind=\"constraint\""), 3.0);
        assert_eq!(grown("quorate_write_failures_total", ",kind=\"sql\""), 1.0);
        assert_eq!(grown("quorate_write_refusals_total", ",reason=\"invalid\""), 1.0);
        assert_eq!(grown("quorate_reads_total", ",level=\"local\""), 6.0);
        assert_eq!(grown("quorate_reads_total", ",level=\"linearizable\""), 2.0);
        assert_eq!(grown("quorate_read_failures_total", ",kind=\"other\""), 1.0);
        assert_eq!(grown("quorate_read_round_seconds_count", ""), 2.0);
        assert_eq!(grown("quorate_write_seconds_count", ""), 44.0, "failed writes take time too");
        assert_eq!(grown("quorate_applied_entries_total", ""), 44.0);
        assert_eq!(grown("quorate_applied_index", ""), 44.0);
        assert_eq!(after.main("quorate_sessions", ""), 1.0);
        assert!(
            after.sample("quorate_log_fsync_seconds_count") >= before.sample("quorate_log_fsync_seconds_count") + 44.0
        );
        node.stop().await;
    });
}

#[test]
fn keys_locks_events_and_those_who_wait_are_counted() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let (keys, server) = (node.keys(), show(&node).await);
        raised(&node).await;
        let count = |name: &str| Page::of(&server).main(name, "");
        // While no reader is free, or if reading takes long, a page has the counts of one before it.
        let counted = async |name: &str, expected: f64| until(name, || count(name) == expected).await;
        let all = ["quorate_keys", "quorate_events", "quorate_events_first_index", "quorate_waiters"];
        assert_eq!(all.map(count), [0.0; 4]);

        keys.set_all([("a", "1"), ("b", "2")]).await.unwrap();
        keys.space(3).hash("h").set([("field", "1")]).await.unwrap();
        counted("quorate_keys", 3.0).await;
        keys.delete(["a"]).await.unwrap();
        counted("quorate_keys", 2.0).await;

        let first = node.events().notify("news", "1").await.unwrap();
        let last = node.events().notify("news", "2").await.unwrap();
        counted("quorate_events", 2.0).await;
        assert!(count("quorate_events_bytes") > 0.0);
        let index = |id: EventId| id.index() as f64;
        assert_eq!(count("quorate_events_first_index"), index(first));
        assert_eq!(count("quorate_events_last_index"), index(last));

        let held = node.locks().acquire("l").await.unwrap();
        counted("quorate_locks_held", 1.0).await;
        assert_eq!(count("quorate_locks_waiting"), 0.0);
        let next = tokio::spawn(node.locks().acquire("l").into_future());
        counted("quorate_locks_waiting", 1.0).await;
        held.release().await.unwrap();
        drop(next.await.unwrap().unwrap());

        let turn = keys.line(["list"]).await.unwrap();
        assert_eq!(count("quorate_waiters"), 1.0);
        drop(turn);
        let watch = node.watch_keys();
        assert_eq!([count("quorate_waiters"), count("quorate_key_watches")], [0.0, 1.0]);
        drop(watch);
        assert_eq!(count("quorate_key_watches"), 0.0);
        node.stop().await;
    });
}

#[test]
fn the_stages_of_a_write_add_up_to_its_time() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let (sql, server) = (node.sql(), show(&node).await);
        raised(&node).await;
        sql.execute("CREATE TABLE t (x)", ()).await.unwrap();
        let writers = (0..8).map(|_| {
            let sql = sql.clone();
            tokio::spawn(async move {
                for x in 0..25 {
                    sql.execute("INSERT INTO t VALUES (?)", (x,)).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let measured =
            |page: &Page| page.main("quorate_writes_total", "") == page.main("quorate_write_seconds_count", "");
        until("the last batch", || measured(&Page::of(&server))).await;
        let page = Page::of(&server);
        let (count, sum) = (page.main("quorate_write_seconds_count", ""), page.main("quorate_write_seconds_sum", ""));
        assert!(count >= 200.0);
        let parts = ["queue", "append", "replicate", "apply"];
        assert!(parts.iter().all(|part| stage(&page, part, "count") == count));
        let parts: f64 = parts.iter().map(|part| stage(&page, part, "sum")).sum();
        assert!((parts - sum).abs() < 1e-6, "{parts} {sum}");
        // A single node waits only for its own disk.
        assert!(stage(&page, "fsync", "sum") <= stage(&page, "replicate", "sum"));
        assert!(stage(&page, "fsync", "sum") > 0.0 && page.sample("quorate_log_fsync_seconds_sum") > 0.0);
        assert!(stage(&page, "validate", "count") >= 200.0 / 16.0);
        let infinite = page.main("quorate_write_seconds_bucket", ",le=\"+Inf\"");
        assert_eq!(infinite, count, "the last bucket counts all writes");
        node.stop().await;
    });
}

/// Lets nodes wait longer for their leader, so that it stays the leader when the machine stalls.
fn steady(config: &mut Config) {
    (config.timing.election_min, config.timing.election_max) = (Duration::from_secs(2), Duration::from_secs(4));
}

#[test]
fn leaders_members_and_forwarded_writes_are_counted() {
    run(async {
        let world = |_: &str, config: &mut Config| {
            steady(config);
            (Env::real(), SimHooks::default())
        };
        let mut cluster = Cluster::start_in(Box::new(world)).await;
        let leader = cluster.leader().await;
        let follower = ["a", "b", "c"].into_iter().find(|name| *name != leader).unwrap();
        let mut servers = BTreeMap::new();
        for node in cluster.nodes() {
            servers.insert(node.status().name, show(node).await);
        }
        let page = |name: &str| Page::of(&servers[name]);
        cluster.sql(follower).execute("CREATE TABLE t (x)", ()).await.unwrap();
        for _ in 0..10 {
            cluster.sql(follower).execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
        }
        let led = page(&leader);
        assert!(led.main("quorate_writes_total", "") >= 11.0 && led.main("quorate_is_leader", "") == 1.0);
        assert_eq!(led.main("quorate_members", ""), 3.0);
        until("three voters", || page(&leader).main("quorate_voters_reachable", "") == 3.0).await;
        let followed = page(follower);
        assert_eq!((followed.main("quorate_writes_total", ""), followed.main("quorate_is_leader", "")), (0.0, 0.0));
        assert!(followed.main("quorate_writes_forwarded_total", "") >= 11.0);
        assert!(STAGES[1..].iter().all(|name| stage(&followed, name, "count") == 0.0));
        assert!(followed.sample("quorate_connections{role=\"node\"}") > 0.0);
        let clocks = format!("quorate_clock_offset_seconds{{member=\"{leader}\"}}");
        until("clocks", || page(follower).samples.contains_key(&clocks)).await;

        let changes = page(follower).main("quorate_leader_changes_total", "");
        let elections = page(follower).main("quorate_elections_total", "");
        cluster.kill(&leader);
        until("a new leader", || page(follower).main("quorate_leader_changes_total", "") > changes).await;
        assert!(page(follower).main("quorate_elections_total", "") > elections);
        drop(servers);
        cluster.stop_all().await;
    });
}

#[test]
fn an_image_is_counted_at_both_ends() {
    run(async {
        let mut cluster = Cluster::start_in(Box::new(|_, config| {
            steady(config);
            config.keep_log_bytes = 1 << 20;
            config.timing.silence = Duration::from_secs(1);
            (Env::real(), SimHooks { log_segment_bytes: Some(1 << 20), ..SimHooks::default() })
        }))
        .await;
        let sql = cluster.sql("a");
        sql.execute("CREATE TABLE t (x)", ()).await.unwrap();
        let leader = cluster.leader().await;
        let victim = ["b", "c"].into_iter().find(|name| *name != leader).unwrap();
        cluster.kill(victim);
        cluster.wipe(victim).await;
        let led = show(cluster.node(&leader)).await;
        // Writes until the start of the log is purged, so that the node needs an image.
        let rng = Env::real().rng().clone();
        for _ in 0..24 {
            let blob: Vec<u8> = (0..62_500).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
            sql.execute("INSERT INTO t VALUES (?)", (blob,)).await.unwrap();
        }
        let is_purged = |page: Page| {
            let (kept, written) = (page.sample("quorate_log_bytes"), page.sample("quorate_log_written_bytes_total"));
            written > 12e6 && kept < written / 2.0
        };
        until("the purge", || is_purged(Page::of(&led))).await;
        cluster.restart(victim).await;
        let back = show(cluster.nodes().find(|node| node.status().name == victim).unwrap()).await;
        until("the image", || Page::of(&back).main("quorate_images_received_total", "") >= 1.0).await;
        until("its end", || Page::of(&led).main("quorate_images_sent_total", "") >= 1.0).await;
        cluster.stop_all().await;
    });
}

/// Starts a cluster whose nodes are also in the group [`BESIDE`], and waits until that has a leader and the latest
/// format level.
async fn beside() -> Cluster {
    let world = |_: &str, config: &mut Config| {
        steady(config);
        with_group(config)
    };
    let cluster = Cluster::start_in(Box::new(world)).await;
    let is_ready = |node: &Node| {
        let (main, beside) = (node.status(), group(node, BESIDE).unwrap().status());
        let levels = [main.format_level, beside.format_level];
        main.leader.is_some() && beside.leader.is_some() && levels == [FORMAT_LEVEL; 2]
    };
    until("the second group", || cluster.nodes().all(is_ready)).await;
    cluster
}

/// Adds an item to the second group, through any of its nodes.
async fn add(node: &Node, key: u8) {
    let add = ItemsCommand::Add { key: vec![key].into(), value: vec![1].into(), ttl: 0 };
    let proposal = encode_proposal(&Proposal::new(None, vec![Command::Items(add)])).unwrap();
    let (position, outcome) = group(node, BESIDE).unwrap().propose(proposal).await.unwrap();
    outcome.unwrap();
    assert_eq!(position.group, BESIDE);
}

#[test]
fn each_group_counts_for_itself() {
    run(async {
        let mut cluster = beside().await;
        let mut servers = BTreeMap::new();
        for node in cluster.nodes() {
            servers.insert(node.status().name, show(node).await);
        }
        let pages = || servers.values().map(Page::of).collect::<Vec<_>>();
        let sum = |group: &str, name: &str| pages().iter().map(|page| page.group(group, name, "")).sum::<f64>();
        let before = ["main", "2"].map(|group| sum(group, "quorate_writes_total"));
        for key in 0..10 {
            add(cluster.node(["a", "b", "c"][usize::from(key % 3)]), key).await;
        }
        until("the counts", || sum("2", "quorate_writes_total") >= before[1] + 10.0).await;
        assert_eq!(["main", "2"].map(|group| sum(group, "quorate_writes_total")), [before[0], before[1] + 10.0]);
        assert!(sum("2", "quorate_write_seconds_count") >= 10.0);
        assert_eq!(["main", "2"].map(|group| sum(group, "quorate_is_leader")), [1.0; 2], "each group has one leader");
        until("three voters on each of three nodes", || sum("2", "quorate_voters_reachable") == 9.0).await;
        for page in pages() {
            let writes = page.group("2", "quorate_writes_total", "");
            assert_eq!(writes > 0.0, page.group("2", "quorate_is_leader", "") == 1.0, "its leader counts them");
        }
        // The status shows the position of the same group.
        for node in cluster.nodes() {
            let server = &servers[&node.status().name];
            let shown = || serde_json::from_str::<Value>(&get(server, "/status").1).unwrap()["groups"][0].clone();
            let applied = || Page::of(server).group("2", "quorate_applied_index", "");
            until("all entries", || shown()["applied"].as_f64() == Some(applied()) && applied() >= 10.0).await;
            assert_eq!((&shown()["group"], shown()["voters"].as_array().unwrap().len()), (&2.into(), 3));
            assert_eq!(node.status().groups[0].applied.group, BESIDE);
        }
        drop(servers);
        cluster.stop_all().await;
    });
}

/// Starts a cluster with two groups whose leader has heard from the others, so that it shows all metrics.
async fn leading() -> (Cluster, HttpServer) {
    let cluster = beside().await;
    let leader = cluster.leader().await;
    cluster.sql(&leader).execute("CREATE TABLE t (x)", ()).await.unwrap();
    let server = show(cluster.node(&leader)).await;
    let news = ["quorate_clock_offset_seconds", "quorate_member_lag_entries"];
    until("news of the others", || news.iter().all(|name| Page::of(&server).names().contains(name))).await;
    (cluster, server)
}

/// A row of the documentation: type, unit and labels of a metric, and the groups for which it is shown.
type Row<'a> = (&'a str, &'a str, BTreeSet<&'a str>, &'static [&'static str]);

fn documented() -> BTreeMap<&'static str, Row<'static>> {
    let rows = DOCUMENT.lines().filter(|line| line.starts_with("| `quorate_") && line.matches('|').count() == 6);
    let rows = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[4].split(", ").map(|label| label.trim_matches('`')).filter(|label| !label.is_empty());
        let labels: BTreeSet<&str> = labels.collect();
        let groups: &[&str] = match labels.iter().find(|label| label.starts_with("group")) {
            None => &[],
            Some(&"group") => &["2", "main"],
            Some(_) => &["main"],
        };
        let labels = labels.into_iter().map(|label| label.trim_end_matches("=\"main\"")).collect();
        (cells[1].trim_matches('`'), (cells[2], cells[3], labels, groups))
    });
    rows.collect()
}

#[test]
fn the_documentation_lists_exactly_the_metrics() {
    run(async {
        let (mut cluster, server) = leading().await;
        let page = Page::of(&server);
        let documented = documented();
        let shown: BTreeSet<&str> = page.types.keys().map(String::as_str).collect();
        assert_eq!(documented.keys().copied().collect::<BTreeSet<_>>(), shown);
        for (name, (kind, unit, labels, groups)) in documented {
            assert_eq!(page.types[name], kind, "{name}");
            assert_eq!(page.labels(name), labels, "{name}");
            assert_eq!(page.groups(name), groups.iter().copied().collect(), "{name}");
            assert!(name.starts_with("quorate_") && name.ends_with("_total") == (kind == "counter"), "{name}");
            for said in ["seconds", "bytes", "entries"] {
                let ends = name.strip_suffix("_total").unwrap_or(name).ends_with(&format!("_{said}"));
                assert_eq!(ends, unit == said, "{name}");
            }
        }
        cluster.stop_all().await;
    });
}

/// Returns the expressions of a panel and of the panels in it.
fn expressions(panel: &Value) -> Vec<&str> {
    let own = panel["targets"].as_array().into_iter().flatten().map(|target| target["expr"].as_str().unwrap());
    own.chain(panel["panels"].as_array().into_iter().flatten().flat_map(expressions)).collect()
}

/// Returns the names of Quorate's metrics in a text.
fn metric_names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("quorate_"))
}

/// Removes what Prometheus adds to the name of a histogram.
fn base(name: &str) -> &str {
    ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

/// Returns each metric in an expression that is shown for several groups, with its selector.
fn selectors<'a>(expr: &'a str, page: &Page) -> Vec<&'a str> {
    let found = expr.match_indices("quorate_").map(|(at, _)| expr[at..].split_once('}').unwrap().0);
    found.filter(|found| page.groups(base(metric_names(found).next().unwrap())).len() > 1).collect()
}

/// A frame of the log holds entries of all groups, so that panel alone adds them all up.
#[test]
fn the_dashboard_selects_groups() {
    run(async {
        let (mut cluster, server) = leading().await;
        let page = Page::of(&server);
        let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
        let panels = expressions(&dashboard).into_iter().filter(|expr| !expr.contains("quorate_log_frames_total"));
        let found: Vec<_> = panels.flat_map(|expr| selectors(expr, &page)).collect();
        assert!(found.len() > 30 && found.iter().all(|found| found.contains("group=~\"$group\"")), "{found:?}");
        cluster.stop_all().await;
    });
}

#[test]
fn the_dashboard_shows_exactly_the_metrics() {
    run(async {
        let (mut cluster, server) = leading().await;
        let page = Page::of(&server);
        let names = page.names();
        let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
        let panels = expressions(&dashboard);
        assert!(panels.len() > 40);
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let queries = variables.iter().map(|variable| variable["query"].as_str().unwrap());
        let used: BTreeSet<&str> = panels.into_iter().chain(queries).flat_map(metric_names).collect();
        let unknown: Vec<_> = used.difference(&names).collect();
        assert!(unknown.is_empty(), "the dashboard uses unknown metrics: {unknown:?}");
        let shown: BTreeSet<&str> = metric_names(DASHBOARD).map(base).collect();
        let missing: Vec<_> = page.types.keys().filter(|name| !shown.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "the dashboard omits {missing:?}");
        cluster.stop_all().await;
    });
}

#[test]
fn documented_alerts_use_existing_metrics() {
    run(async {
        let (mut cluster, server) = leading().await;
        let page = Page::of(&server);
        let names = page.names();
        let (_, alerts) = DOCUMENT.split_once("## What to alert on").unwrap();
        let unknown: Vec<_> = metric_names(alerts).filter(|name| !names.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let mixed: Vec<_> = alerts.lines().filter(|line| line.contains("sum(") || line.contains("max(")).collect();
        assert!(mixed.is_empty(), "an alert of one group must not depend on another one: {mixed:?}");
        cluster.stop_all().await;
    });
}
