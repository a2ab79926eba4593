//! Operators change the members of a cluster in the simulated world: no acknowledged write is lost, and a removed node
//! stays out.

use std::time::Duration;

use quorate_env::{Instant, sleep};
use quorate_env_sim::SimWorld;

use super::cluster::{Cluster, NAMES, SOON, born};
use crate::{Admission, Admitted, Ended, MembershipError, StartError};

/// Returns the names of the voters that a node knows.
fn voters(cluster: &Cluster, name: &str) -> Vec<String> {
    let Some(node) = cluster.node(name) else { return Vec::new() };
    let members = node.status().members;
    let mut names: Vec<String> = members.into_iter().filter(|member| member.voter).map(|member| member.name).collect();
    names.sort_unstable();
    names
}

/// Sends a request to the leader until it succeeds or is refused for good.
async fn ask_leader<T>(
    cluster: &Cluster,
    ask: impl AsyncFn(crate::Consensus) -> Result<T, MembershipError>,
) -> Result<T, MembershipError> {
    let deadline = Instant::now() + SOON;
    loop {
        let leader = cluster.leader();
        let answer = match leader {
            Some((_, leader)) => ask(leader).await,
            None => Err(MembershipError::NotLeader { leader: None }),
        };
        match answer {
            Err(error) if error.is_retryable() && Instant::now() < deadline => sleep(Duration::from_millis(100)).await,
            answer => return answer,
        }
    }
}

pub(super) async fn remove(cluster: &Cluster, name: &str, force: bool) -> Result<(), MembershipError> {
    ask_leader(cluster, async |leader| leader.remove(name, force).await).await
}

/// Repeats the request, as an operator's command does, until the node is a voter.
pub(super) async fn admit(cluster: &Cluster, admission: &Admission) -> Result<(), MembershipError> {
    let deadline = Instant::now() + SOON;
    while ask_leader(cluster, async |leader| leader.admit(admission.clone()).await).await? != Admitted::Voter {
        assert!(Instant::now() < deadline, "{admission:?} was not completed");
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

pub(super) fn admission(name: &str) -> Admission {
    Admission { name: name.to_owned(), addr: format!("{name}:1"), ..Admission::default() }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, MembershipError>) -> String {
    match result {
        Err(MembershipError::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

/// Returns a node that does not lead.
pub(super) fn follower(cluster: &Cluster) -> &'static str {
    let (leader, _) = cluster.leader().unwrap();
    NAMES.into_iter().find(|name| *name != leader).unwrap()
}

#[test]
fn members_are_added_and_removed() {
    let world = SimWorld::new(21);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        cluster.start("d");
        cluster.until("a start", || cluster.node("d").is_some()).await;
        sleep(Duration::from_secs(5)).await;
        let (leader, _) = cluster.leader().unwrap();
        assert_eq!(voters(&cluster, leader), NAMES, "it waits until it is added");

        admit(&cluster, &admission("d")).await.unwrap();
        cluster.write("four").await;
        assert_eq!(voters(&cluster, cluster.leader().unwrap().0), ["a", "b", "c", "d"]);
        // Removes the leader: it hands leadership over, and the new leader removes it.
        let (old, _) = cluster.leader().unwrap();
        remove(&cluster, old, false).await.unwrap();
        cluster.write("three").await;
        assert!(!voters(&cluster, cluster.leader().unwrap().0).contains(&old.to_owned()));
        cluster.stores.lock().unwrap().remove(old);
        cluster.check().await;
    });
    done.unwrap();
}

#[test]
fn a_removed_node_says_so_and_never_comes_back() {
    for stays_up in [true, false] {
        let world = SimWorld::new(22);
        let done = world.run(async {
            let cluster = born(&world).await;
            cluster.write("before").await;
            let gone = follower(&cluster);
            let node = cluster.node(gone).unwrap();
            let id = node.status().node;
            if !stays_up {
                cluster.crash(gone).await;
            }
            remove(&cluster, gone, false).await.unwrap();
            cluster.write("without it").await;
            if !stays_up {
                cluster.start(gone);
                cluster.until("its start", || cluster.node(gone).is_some()).await;
            }
            let node = cluster.node(gone).unwrap();
            assert_eq!(node.status().node, id);
            let Ended::Removed(why) = node.ended().await else { panic!("it ended for another reason") };
            assert!(why.contains("was removed from the cluster") && why.contains(&id.to_string()), "{why}");
            assert_eq!(node.status().main.stopped.as_deref(), Some(why.as_str()));
            assert!(node.main().read_position().await.is_err());

            // All lists still have the name, but the node can't start again with this directory.
            cluster.crash(gone).await;
            cluster.start(gone);
            cluster.until("its refusal to start", || !cluster.failed.lock().unwrap().is_empty()).await;
            let error = cluster.failed.lock().unwrap().pop().unwrap();
            assert!(matches!(&error, StartError::Removed(reason) if *reason == why), "{error}");
            assert_eq!(voters(&cluster, cluster.leader().unwrap().0).len(), 2);

            // With a new directory the node joins as a new member.
            cluster.wipe(gone).await;
            cluster.start(gone);
            let is_back = || voters(&cluster, gone).len() == 3;
            cluster.until("the new member's vote", is_back).await;
            assert_ne!(cluster.node(gone).unwrap().status().node, id);
            cluster.write("after").await;
            cluster.check().await;
        });
        done.unwrap();
    }
}

#[test]
fn one_change_replaces_a_member() {
    for is_leader in [true, false] {
        let world = SimWorld::new(23);
        let done = world.run(async {
            let cluster = born(&world).await;
            cluster.write("before").await;
            cluster.start("d");
            cluster.until("a start", || cluster.node("d").is_some()).await;
            let old = if is_leader { cluster.leader().unwrap().0 } else { follower(&cluster) };
            let replaces = Some(old.to_owned());
            admit(&cluster, &Admission { replaces, ..admission("d") }).await.unwrap();
            let names = voters(&cluster, cluster.leader().unwrap().0);
            assert!(names.len() == 3 && names.contains(&"d".to_owned()) && !names.contains(&old.to_owned()));
            cluster.write("after").await;
            cluster.stores.lock().unwrap().remove(old);
            cluster.check().await;
        });
        done.unwrap();
    }
}

#[test]
fn harmful_changes_are_refused_with_the_reason() {
    let world = SimWorld::new(24);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        // By now all nodes have exchanged their statuses.
        sleep(Duration::from_secs(3)).await;
        assert!(refusal(remove(&cluster, "x", false).await).contains("the members are a, b, c"));
        let (leader, node) = cluster.leader().unwrap();
        assert!(refusal(node.transfer_leadership(Some("x")).await).contains("no member 'x'"));
        assert!(refusal(admit(&cluster, &admission("x")).await).contains("no node answers at x:1"));
        let elsewhere = Admission { addr: "b:1".to_owned(), ..admission("x") };
        assert!(refusal(admit(&cluster, &elsewhere).await).contains("is called 'b', not 'x'"));
        assert_eq!(admit(&cluster, &admission("a")).await, Ok(()), "it is already a voter");

        let down = follower(&cluster);
        cluster.crash(down).await;
        sleep(Duration::from_secs(8)).await;
        let third = NAMES.into_iter().find(|name| *name != leader && *name != down).unwrap();
        let why = refusal(remove(&cluster, third, false).await);
        assert!(why.contains("only 1 of the 2 voters") && why.contains(down), "{why}");
        assert_eq!(voters(&cluster, leader), NAMES);
        // The member that is down may be removed.
        remove(&cluster, down, false).await.unwrap();
        cluster.write("two").await;
        remove(&cluster, third, false).await.unwrap();
        cluster.write("one").await;
        assert!(refusal(remove(&cluster, leader, false).await).contains("last voter"));
    });
    done.unwrap();
}

#[test]
fn leadership_goes_to_the_named_voter() {
    let world = SimWorld::new(25);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("one").await;
        for _ in 0..3 {
            for to in NAMES {
                let leads =
                    ask_leader(&cluster, async |leader| leader.transfer_leadership(Some(to)).await).await.unwrap();
                assert_eq!(Some(leads), cluster.node(to).map(|node| node.status().node));
                cluster.until("its leadership", || cluster.node(to).is_some_and(|n| n.main().is_leader())).await;
            }
        }
        cluster.write("two").await;
        cluster.check().await;
    });
    done.unwrap();
}

#[test]
fn changes_during_crashes_lose_nothing() {
    for seed in 0..6 {
        let world = SimWorld::new(1_000 + seed);
        let done = world.run(async {
            let cluster = born(&world).await;
            for round in 0..3 {
                cluster.write(&format!("w{round}")).await;
                let victim = NAMES[usize::try_from(world.rng().below(3)).unwrap()];
                if world.rng().chance(0.5) {
                    // A leader crashes during the change.
                    let change = remove(&cluster, victim, true);
                    let crash = async {
                        sleep(Duration::from_millis(world.rng().below(400))).await;
                        if let Some((leader, _)) = cluster.leader().filter(|(leader, _)| *leader != victim) {
                            cluster.crash(leader).await;
                            sleep(Duration::from_millis(200)).await;
                            cluster.start(leader);
                        }
                    };
                    let (removed, ()) = tokio::join!(change, crash);
                    // If the removal was done before the crash, the repeated request finds no such member.
                    assert!(matches!(removed, Ok(()) | Err(MembershipError::Refused(_))), "{removed:?}");
                } else {
                    let _ = ask_leader(&cluster, async |leader| leader.transfer_leadership(None).await).await;
                    cluster.write(&format!("x{round}")).await;
                    remove(&cluster, victim, true).await.unwrap();
                }
                cluster.write(&format!("y{round}")).await;
                cluster.wipe(victim).await;
                cluster.start(victim);
                cluster.until("the new member's vote", || voters(&cluster, victim).len() == 3).await;
            }
            cluster.write("last").await;
            cluster.check().await;
        });
        done.unwrap();
    }
}
