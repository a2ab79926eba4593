//! The leader slows down if the stores of both followers are behind, and not if one is.

use std::time::Duration;

use quorate_env::Instant;
use quorate_env_sim::SimWorld;
use quorate_model::StateMachine as _;

use super::cluster::{Cluster, NAMES, born};
use super::store::Trouble;

/// What all writes begin with.
const WRITE: &str = "write";

/// For how long a follower's store takes no entries.
const HELD: Duration = Duration::from_secs(3);

/// Writes one after the other while these nodes apply nothing, and then lets them go on. Returns how many writes were
/// done.
async fn writes_while_held(cluster: &Cluster, held: &[&str]) -> u64 {
    held.iter().for_each(|name| cluster.store(name).fail_at(WRITE, Trouble::Long));
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < HELD {
        cluster.write(&format!("{WRITE} {held:?} {count}")).await;
        count += 1;
    }
    held.iter().for_each(|name| cluster.store(name).go_on());
    let last = || NAMES.map(|name| cluster.store(name).applied().index());
    cluster.until("all have applied the same", || last() == [last()[0]; 3]).await;
    count
}

#[test]
fn a_majority_that_is_behind_slows_the_leader() {
    let world = SimWorld::new(71);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (leader, node) = cluster.leader().unwrap();
        let pauses = || node.main().metrics().pauses.count();
        let followers: Vec<_> = NAMES.into_iter().filter(|name| *name != leader).collect();
        let none = (writes_while_held(&cluster, &[]).await, pauses());
        let both = (writes_while_held(&cluster, &followers).await, pauses());
        let one = (writes_while_held(&cluster, &followers[..1]).await, pauses());
        assert!(none.1 == 0 && both.1 > 0 && one.1 == both.1, "{none:?}, {both:?}, {one:?}");
        let ((none, _), (both, _), (one, _)) = (none, both, one);
        assert!(both * 2 < none && one * 10 > none * 9, "{none} writes, {both} if both are held, {one} if one is");
        assert_eq!(cluster.leader().unwrap().0, leader);
        cluster.check().await;
    });
    done.unwrap();
}
