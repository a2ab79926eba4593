//! The lines about a cluster whose states change.

use quorate_model::{Epoch, GroupId, NodeId, Position};

use super::*;
use crate::identity::ClusterId;
use crate::{GroupStatus, MemberStatus, Standing};

const SILENT_AFTER: Duration = Duration::from_secs(4);

/// A cluster as node `a` sees it, and the clock.
struct Scenario {
    reporter: Reporter,
    now: Instant,
    status: ClusterStatus,
    clocks: BTreeMap<String, Duration>,
    space: Space,
}

impl Scenario {
    fn new() -> Self {
        let status = ClusterStatus {
            cluster: ClusterId(1),
            node: NodeId(1),
            name: "a".to_owned(),
            log_bytes: 0,
            members: [("a", 1), ("b", 2), ("c", 3)].map(|(name, id)| member(name, id)).into(),
            standing: Standing::default(),
            main: GroupStatus {
                leader: Some(NodeId(1)),
                term: 1,
                last: None,
                committed: None,
                applied: Position { epoch: Epoch(1), group: GroupId::MAIN, index: 0 },
                format_level: 1,
                voters: [1, 2, 3].map(NodeId).into(),
                blocked: None,
                stopped: None,
            },
            groups: Vec::new(),
        };
        let space = Space { total: 100 << 30, available: 50 << 30 };
        Self { reporter: Reporter::default(), now: Instant::now(), status, clocks: BTreeMap::new(), space }
    }

    fn member(&mut self, name: &str) -> &mut MemberStatus {
        self.status.members.iter_mut().find(|member| member.name == name).unwrap()
    }

    /// Returns the lines that are logged after some seconds.
    fn lines_after(&mut self, seconds: u64) -> Vec<(Topic, State)> {
        self.now += Duration::from_secs(seconds);
        let seen = self.reporter.observe(&self.status, &self.clocks, Some(self.space), SILENT_AFTER);
        self.reporter.remember(&self.status);
        self.reporter.due(seen, self.now).into_iter().map(|(topic, state, _)| (topic, state)).collect()
    }
}

fn member(name: &str, id: u64) -> MemberStatus {
    MemberStatus {
        id: NodeId(id),
        name: name.to_owned(),
        addr: format!("{name}:1"),
        voter: true,
        silent_for: Duration::ZERO,
        applied_index: 0,
        format_level: 1,
    }
}

fn leads(name: &str, term: u64) -> (Topic, State) {
    (Topic::Leader, State::Leads(name.to_owned(), term))
}

#[test]
fn only_changes_are_logged() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.lines_after(0), [leads("a", 1)], "members that were there before need no line");
    assert_eq!(scenario.lines_after(100), []);
    scenario.status.main.leader = Some(NodeId(2));
    scenario.status.main.term = 2;
    assert_eq!(scenario.lines_after(1), [leads("b", 2)]);

    let (d, role) = (Topic::Member("d".to_owned()), |state| state);
    scenario.status.members.push(MemberStatus { voter: false, ..member("d", 4) });
    assert_eq!(scenario.lines_after(1), [(d.clone(), role(State::Learner))]);
    scenario.member("d").voter = true;
    assert_eq!(scenario.lines_after(60), [(d.clone(), role(State::Voter))]);
    scenario.status.members.pop();
    assert_eq!(scenario.lines_after(60), [(d, role(State::Gone))]);
    assert_eq!(scenario.lines_after(60), []);
}

#[test]
fn a_change_of_the_leader_is_logged_at_once() {
    let mut scenario = Scenario::new();
    scenario.lines_after(0);
    scenario.status.main.leader = None;
    assert_eq!(scenario.lines_after(1), [(Topic::Leader, State::Gone)]);
    (scenario.status.main.leader, scenario.status.main.term) = (Some(NodeId(2)), 2);
    assert_eq!(scenario.lines_after(1), [leads("b", 2)]);
    // After that burst only the final state is logged, once the quiet time is over.
    (scenario.status.main.leader, scenario.status.main.term) = (Some(NodeId(1)), 3);
    assert_eq!(scenario.lines_after(1), []);
    (scenario.status.main.leader, scenario.status.main.term) = (Some(NodeId(3)), 4);
    assert_eq!(scenario.lines_after(1), []);
    assert_eq!(scenario.lines_after(8), [leads("c", 4)]);
}

#[test]
fn the_lag_of_an_empty_member_is_no_number() {
    let mut scenario = Scenario::new();
    scenario.status.main.committed = Some(quorate_model::LogId { index: 1_000_000_060_184, ..Default::default() });
    scenario.member("a").applied_index = 1_000_000_060_184;
    scenario.member("b").applied_index = 1_000_000_060_184;
    assert_eq!(scenario.lines_after(0), [leads("a", 1)], "it may be starting");
    let seen = scenario.reporter.observe(&scenario.status, &scenario.clocks, Some(scenario.space), SILENT_AFTER);
    let lag = seen.iter().find(|(topic, _, _)| *topic == Topic::Lag("c".to_owned())).unwrap();
    assert!(lag.1 == State::Alarm && lag.2.contains("copy of the database"), "{lag:?}");
}

#[test]
fn a_flapping_state_is_logged_rarely() {
    let mut scenario = Scenario::new();
    scenario.lines_after(0);
    let silence = Topic::Silence("b".to_owned());
    let mut lines = Vec::new();
    for second in 0..100_u64 {
        scenario.member("b").silent_for = if second % 2 == 0 { SILENT_AFTER * 2 } else { Duration::ZERO };
        lines.extend(scenario.lines_after(1));
    }
    assert!(lines.len() <= 11 * BURST, "{} lines", lines.len());
    scenario.member("b").silent_for = Duration::ZERO;
    lines.extend(scenario.lines_after(60));
    assert_eq!(lines.last(), Some(&(silence, State::Calm)));
    assert!(lines.windows(2).all(|pair| pair[0] != pair[1]), "never the same twice");
}

#[test]
fn alarms_end_below_the_limit_at_which_they_begin() {
    let mut scenario = Scenario::new();
    scenario.lines_after(0);
    scenario.status.main.committed = Some(quorate_model::LogId { index: LAG.0 + 1, ..Default::default() });
    scenario.member("a").applied_index = LAG.0 + 1;
    scenario.member("b").applied_index = LAG.0;
    assert_eq!(scenario.lines_after(20), [(Topic::Lag("c".to_owned()), State::Alarm)]);
    scenario.member("c").applied_index = LAG.0 - LAG.1 - 1;
    assert_eq!(scenario.lines_after(20), [], "still more than the lower limit");
    scenario.member("c").applied_index = LAG.0;
    assert_eq!(scenario.lines_after(20), [(Topic::Lag("c".to_owned()), State::Calm)]);

    scenario.clocks.insert("c".to_owned(), CLOCK_OFF.0 + Duration::from_millis(1));
    assert_eq!(scenario.lines_after(20), [(Topic::Clock("c".to_owned()), State::Alarm)]);
    scenario.clocks.insert("c".to_owned(), CLOCK_OFF.1);
    assert_eq!(scenario.lines_after(20), [(Topic::Clock("c".to_owned()), State::Calm)]);

    scenario.space.available = 4 << 30;
    assert_eq!(scenario.lines_after(20), [(Topic::Disk, State::Alarm)]);
    scenario.space.available = 6 << 30;
    assert_eq!(scenario.lines_after(20), []);
    scenario.space.available = 11 << 30;
    assert_eq!(scenario.lines_after(20), [(Topic::Disk, State::Calm)]);
}
