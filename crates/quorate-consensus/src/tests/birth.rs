//! The birth of clusters that begin with a restored state: none is founded without that state.

use quorate_env::sleep;
use quorate_env_sim::SimWorld;

use super::cluster::{Cluster, NAMES, SOON, born};
use crate::StartError;

#[test]
fn nobody_founds_an_empty_cluster_if_one_node_expects_a_restored_state() {
    for expecting in NAMES {
        let world = SimWorld::new(61);
        let done = world.run(async {
            let cluster = Cluster::new(&world);
            cluster.begin_restored.lock().unwrap().insert(expecting);
            NAMES.into_iter().for_each(|name| cluster.start(name));
            sleep(SOON).await;
            assert!(NAMES.into_iter().all(|name| cluster.node(name).is_none()), "an empty cluster was founded");
            // The founder gives back to its caller; the others wait.
            let is_founder = Some(&expecting) == NAMES.iter().min();
            let failed = cluster.failed.lock().unwrap();
            assert_eq!(failed.len(), usize::from(is_founder), "{expecting}: {failed:?}");
            assert!(failed.iter().all(|error| matches!(error, StartError::Unborn)), "{failed:?}");
        });
        done.unwrap();
    }
}

#[test]
fn a_wiped_node_that_expects_a_restored_state_joins_its_living_cluster() {
    for wiped in NAMES {
        let world = SimWorld::new(62);
        let done = world.run(async {
            let cluster = born(&world).await;
            cluster.write("before").await;
            cluster.begin_restored.lock().unwrap().extend(NAMES);
            cluster.wipe(wiped).await;
            cluster.start(wiped);
            cluster.until("it is back", || cluster.node(wiped).is_some()).await;
            cluster.write("after").await;
            cluster.check().await;
        });
        done.unwrap();
    }
}
