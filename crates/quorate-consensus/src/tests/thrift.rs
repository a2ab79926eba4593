//! A follower that no majority needs gets several entries at a time, and single entries as soon as it is needed.

use std::time::Duration;

use quorate_env::Instant;
use quorate_env_sim::SimWorld;

use super::cluster::{NAMES, born};

/// The maximum virtual time for a write after the follower that acknowledged before is gone.
const WAIT_MAX: Duration = Duration::from_millis(100);

#[test]
fn one_of_two_followers_waits_until_it_is_needed() {
    let world = SimWorld::new(37);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (leader, _) = cluster.leader().unwrap();
        cluster.until("all nodes", || cluster.others(leader).len() == 2).await;
        let followers = NAMES.into_iter().filter(|name| *name != leader);
        let frames = |name: &str| cluster.node(name).unwrap().log_metrics().0.frames;
        let before: Vec<_> = followers.map(|name| (name, frames(name))).collect();
        for number in 0..200 {
            cluster.write(&format!("with both {number}")).await;
        }
        let mut written: Vec<_> = before.into_iter().map(|(name, before)| (frames(name) - before, name)).collect();
        written.sort_unstable();
        let [(fewer, waits), (more, first)] = written[..] else { panic!("{written:?}") };
        assert!(fewer * 3 < more * 2, "{waits}: {fewer}, {first}: {more}");

        world.net().isolate(first);
        for number in 0..20 {
            let begun = Instant::now();
            cluster.write(&format!("without {first} {number}")).await;
            assert!(begun.elapsed() < WAIT_MAX, "{number}: {:?}", begun.elapsed());
        }
        world.net().heal_all();
        cluster.check().await;
    });
    done.unwrap();
}
