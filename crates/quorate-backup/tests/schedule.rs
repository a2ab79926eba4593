//! Scheduled backups of a real node into a directory.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of real files, which stop at the first surprise"
)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{DEADLINE, Place, names, wait_until};
use quorate_backup::backups::{self, Keep, Name};
use quorate_backup::schedule::{Plan, State, run};
use quorate_backup::store::Store;
use quorate_backup::{Encryption, Keys};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// For how long a node that stops waits for its store. If the store takes longer, a claim stays for a day.
const RELEASE_MAX: Duration = Duration::from_secs(3);

struct Running {
    state: Arc<State>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Makes a backup each second. Nobody else may use the directory `scratch`, which is emptied first.
fn start(place: &Place, scratch: &str, keep: Keep) -> Running {
    let plan = Plan {
        location: place.location(),
        credentials: None,
        schedule: "* * * * * *".parse().unwrap(),
        keep,
        encryption: Encryption::None,
        scratch: place.path(scratch),
    };
    let (state, (stop, stopped)) = (Arc::<State>::default(), oneshot::channel());
    let stopped = async { drop(stopped.await) };
    let running = run(plan, place.node.observer(), place.node.admin(), Arc::clone(&state), stopped);
    Running { state, stop, task: tokio::spawn(running) }
}

/// Waits until a store holds backups and nothing else. Nobody removes a claim any more that a stop has left, but a file
/// whose upload a stop has interrupted is still written to its end.
async fn only_backups(store: &Store) {
    wait_until("a store without claims", || names(store).iter().all(|name| name.parse::<Name>().is_ok())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_are_made_and_pruned() {
    let place = Place::start(1).await;
    let store = place.store();
    let keep = Keep { lasting: None, at_least: 2 };
    // Two that run the same plan make each backup once.
    let running = ["one", "other"].map(|scratch| start(&place, scratch, keep));
    let mut seen = std::collections::BTreeSet::new();
    wait_until("five backups", || {
        seen.extend(names(&store).into_iter().filter(|name| name.parse::<Name>().is_ok()));
        seen.len() >= 5
    })
    .await;
    let stopping = running.map(|running| {
        running.stop.send(()).unwrap();
        (running.task, running.state)
    });
    for (task, state) in stopping {
        task.await.unwrap();
        let found = state.seen();
        assert_eq!((found.failures, found.error), (0, None));
        assert!(found.last.is_some() && found.next.is_some());
    }
    let mut times: Vec<u64> = seen.iter().map(|name| name.parse::<Name>().unwrap().time()).collect();
    times.dedup();
    assert_eq!(times.len(), seen.len(), "one backup for each time: {seen:?}");
    only_backups(&store).await;
    let left = names(&store);
    assert!(left.len() <= 3, "{left:?}");
    let latest = backups::latest(&store).await.unwrap();
    backups::fetch(&store, &latest.name, Keys::none(), place.path("a.db")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_seen_and_do_not_end_the_schedule() {
    let place = Place::start(1).await;
    let (there, away) = (place.path("store"), place.path("away"));
    std::fs::rename(&there, &away).unwrap();
    let running = start(&place, "scratch", Keep { lasting: Some(Duration::from_secs(3_600)), at_least: 0 });
    wait_until("two failures", || running.state.seen().failures >= 2).await;
    let error = running.state.seen().error.unwrap();
    assert!(error.contains("does not exist; create it"), "{error}");
    std::fs::rename(&away, &there).unwrap();
    wait_until("a backup", || running.state.seen().last.is_some()).await;
    assert_eq!(running.state.seen().error, None);
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
    only_backups(&place.store()).await;
}

/// A claim that stays would keep other nodes from making the backup of its time.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_leaves_no_claim() {
    // The store writes an object under such a name before it has its own.
    let is_begun = |name: &String| name.contains(".claim#");
    let is_claim = |name: &String| name.ends_with(".claim");
    let is_backup = |name: &String| name.parse::<Name>().is_ok();
    let moments: [&dyn Fn(&String) -> bool; 3] = [&is_begun, &is_claim, &is_backup];
    for is_moment in moments {
        let place = Place::start(1).await;
        let store = place.store();
        let running = start(&place, "scratch", Keep { lasting: None, at_least: 1 });
        // Looks without a pause, because a claim lasts for milliseconds.
        let stop = async {
            while !names(&store).iter().any(is_moment) {
                tokio::task::yield_now().await;
            }
            let stopped = Instant::now();
            running.stop.send(()).unwrap();
            running.task.await.unwrap();
            stopped.elapsed()
        };
        let took = tokio::time::timeout(DEADLINE, stop).await.unwrap();
        let left = names(&store);
        assert!(!left.iter().any(is_claim) || took >= RELEASE_MAX, "no claims: {left:?}");
    }
}
