//! Compares the round trips to the nodes with their election timeouts.

use std::time::Duration;

use super::disk::{millis, percentile};
use super::finding::{Finding, Level};

/// Round trips to a node.
#[derive(Clone, Debug)]
pub struct Trips {
    /// The node's name.
    pub name: String,
    /// The durations, sorted.
    pub took: Vec<Duration>,
    /// The interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// The shortest time without a heartbeat after which the node starts an election.
    pub election_min: Duration,
}

/// Checks whether heartbeats arrive in time.
pub fn check(nodes: &[Trips]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = nodes.iter().map(one).collect();
    if let Some(last) = findings.iter_mut().rfind(|finding| finding.level == Level::Ok) {
        last.means = "Each write waits for one round trip between the leader and the nearest majority.".to_owned();
    }
    findings
}

fn one(trips: &Trips) -> Finding {
    const CHECK: &str = "round trips";
    let Trips { name, took, heartbeat, election_min } = trips;
    let (p50, p99) = (percentile(took, 50), percentile(took, 99));
    let what = format!("'{name}': {} (p50), {} (p99)", millis(p50), millis(p99));
    if p99 > *election_min / 2 {
        let means = format!(
            "A follower starts an election when it hears nothing for {election_min:?}: leadership will move without \
             need. Raise the times in [timing] on all nodes to ten round trips or more."
        );
        Finding::problem(CHECK, what, means)
    } else if p99 > *heartbeat {
        let means =
            format!("A round trip takes longer than the heartbeat interval, {heartbeat:?}: little reserve is left.");
        Finding::note(CHECK, what, means)
    } else {
        Finding::ok(CHECK, what, "")
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level::{Note, Ok, Problem};
    use super::*;

    #[test]
    fn slow_networks_are_reported() {
        let trips = |millis| Trips {
            name: "a".to_owned(),
            took: vec![Duration::from_millis(millis); 20],
            heartbeat: Duration::from_millis(80),
            election_min: Duration::from_millis(300),
        };
        let findings = check(&[1, 100, 160].map(trips));
        assert_eq!(findings.iter().map(|finding| finding.level).collect::<Vec<_>>(), [Ok, Note, Problem]);
        assert!(findings.iter().all(|finding| !finding.means.is_empty()));
    }
}
