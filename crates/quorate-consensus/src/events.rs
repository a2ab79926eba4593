//! Logs the changes in a cluster that an operator must know, one line for each: a new leader, members that join, leave,
//! fall silent or lag, clocks that differ, a disk that is nearly full.
//!
//! Invariants:
//! - A line is logged if a state differs from the one that was logged last, so a line never repeats the one before it.
//! - The line is logged when the change is noticed. There are at most [`BURST`] lines about one topic in [`QUIET`].
//!   After that time, one line reports the state at that time, if it differs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quorate_env::disk::Space;
use quorate_env::{Env, Instant, sleep};
use quorate_model::NodeId;

use crate::group::Group;
use crate::peer_service::PeerService;
use crate::status::{ClusterStatus, cluster_status};

/// The time in which at most [`BURST`] lines are logged about one topic.
const QUIET: Duration = Duration::from_secs(10);

/// The maximum number of lines about one topic in [`QUIET`]. The loss of a leader and the new leader are two lines.
const BURST: usize = 3;

/// A follower begins to lag when it lacks more entries than the first number, and lags until it lacks no more than the
/// second.
const LAG: (u64, u64) = (50_000, 1_000);

/// A clock begins to be off when it differs by more than the first time, and is off until it differs by no more than
/// the second. Stamps tolerate one second.
const CLOCK_OFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(250));

/// A disk is nearly full when less than one part in this many is free, until twice that is free.
const SPACE_SHARE: u64 = 20;

/// A disk with at least this many bytes free is never nearly full. The end of the state needs at most twice that.
const SPACE_ENOUGH: u64 = 16 << 30;

/// What a line is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Leader,
    Disk,
    Member(String),
    Silence(String),
    Lag(String),
    Clock(String),
}

/// The state of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// There is no problem.
    Calm,
    /// There is a problem.
    Alarm,
    /// The leader and its term.
    Leads(String, u64),
    /// A member that does not vote yet.
    Learner,
    /// A member that votes.
    Voter,
    /// No leader is known, or the node is not a member.
    Gone,
}

/// An observation: a topic, its state, and the figure behind it. A change of the figure alone is not logged.
type Seen = (Topic, State, String);

/// Observes the cluster at the interval of [`Timing::status`](crate::Timing), and logs the changes. Never returns.
pub(crate) async fn watch(env: Env, service: Arc<PeerService>, main: Group, dir: PathBuf) {
    let mut reporter = Reporter::default();
    loop {
        // Sleeps before the first observation too: a node that has just started knows no leader yet.
        sleep(service.config.timing.status).await;
        let status = cluster_status(&service, &main);
        let clocks = status.members.iter().filter_map(|member| {
            let seen = service.peers.seen(member.id.0)?;
            Some((member.name.clone(), Duration::from_nanos(seen.clock_offset.unsigned_abs())))
        });
        let clocks: BTreeMap<String, Duration> = clocks.collect();
        let (disk, path) = (Arc::clone(env.disk()), dir.clone());
        let space = env.blocking(move || disk.space(&path)).await.and_then(Result::ok);
        let silent_after = service.config.timing.status.saturating_mul(4);
        let seen = reporter.observe(&status, &clocks, space, silent_after);
        reporter.remember(&status);
        for (topic, state, figure) in reporter.due(seen, Instant::now()) {
            log_line(&topic, &state, &figure);
        }
    }
}

/// The state of a topic that was logged last, or that needed no line, and when the latest lines about it were logged,
/// the newest last.
struct Reported {
    state: State,
    lines: VecDeque<Instant>,
}

/// Decides which observations are logged.
#[derive(Default)]
struct Reporter {
    reported: BTreeMap<Topic, Reported>,
    /// The members that had no database at the last observation. A member that is starting reports the same at first.
    empty: BTreeSet<NodeId>,
}

impl Reporter {
    /// Returns the present observations.
    fn observe(
        &self,
        status: &ClusterStatus,
        clocks: &BTreeMap<String, Duration>,
        space: Option<Space>,
        silent_after: Duration,
    ) -> Vec<Seen> {
        let leader = status.members.iter().find(|member| Some(member.id) == status.main.leader);
        let leads = leader.map_or(State::Gone, |leader| State::Leads(leader.name.clone(), status.main.term));
        let mut seen = vec![(Topic::Leader, leads, String::new())];
        seen.extend(space.map(|space| self.disk(space)));
        let committed = status.main.committed.map_or(0, |id| id.index);
        for member in &status.members {
            let name = &member.name;
            let role = if member.voter { State::Voter } else { State::Learner };
            seen.push((Topic::Member(name.clone()), role, member.addr.clone()));
            let silent = alarm(member.silent_for > silent_after);
            seen.push((Topic::Silence(name.clone()), silent, format!("{:.1} s", member.silent_for.as_secs_f64())));
            let may_start = member.applied_index == 0 && !self.empty.contains(&member.id);
            if status.main.leader == Some(status.node) && member.silent_for <= silent_after && !may_start {
                let lag = committed.saturating_sub(member.applied_index);
                // A restored history begins far above index 0, so the difference does not count entries.
                let figure = if member.applied_index == 0 {
                    "everything: a copy of the database is on its way".to_owned()
                } else {
                    format!("{lag} entries")
                };
                seen.push(self.above(Topic::Lag(name.clone()), lag, LAG, figure));
            }
            if let Some(offset) = clocks.get(name) {
                let figure = format!("{} ms", offset.as_millis());
                seen.push(self.above(Topic::Clock(name.clone()), *offset, CLOCK_OFF, figure));
            }
        }
        let present: BTreeSet<&String> = status.members.iter().map(|member| &member.name).collect();
        let gone = self.reported.keys().filter_map(|topic| match topic {
            Topic::Member(name) if !present.contains(name) => Some((topic.clone(), State::Gone, String::new())),
            _ => None,
        });
        seen.extend(gone);
        seen
    }

    fn remember(&mut self, status: &ClusterStatus) {
        let empty = status.members.iter().filter(|member| member.applied_index == 0);
        self.empty = empty.map(|member| member.id).collect();
    }

    fn disk(&self, space: Space) -> Seen {
        let factor = if self.is_alarm(&Topic::Disk) { 2 } else { 1 };
        let share = space.total.checked_div(SPACE_SHARE).unwrap_or(0);
        let is_low = space.available < share.min(SPACE_ENOUGH).saturating_mul(factor);
        (Topic::Disk, alarm(is_low), format!("{} MiB of {}", space.available >> 20, space.total >> 20))
    }

    /// Returns an observation of an alarm that begins above one limit and ends at another.
    fn above<T: PartialOrd>(&self, topic: Topic, value: T, (begin, end): (T, T), figure: String) -> Seen {
        let limit = if self.is_alarm(&topic) { end } else { begin };
        (topic, alarm(value > limit), figure)
    }

    fn is_alarm(&self, topic: &Topic) -> bool {
        self.reported.get(topic).is_some_and(|reported| reported.state == State::Alarm)
    }

    /// Returns the observations that are to be logged.
    fn due(&mut self, seen: Vec<Seen>, now: Instant) -> Vec<Seen> {
        let is_first = self.reported.is_empty();
        seen.into_iter().filter(|(topic, state, _)| self.is_due(topic, state, is_first, now)).collect()
    }

    fn is_due(&mut self, topic: &Topic, state: &State, is_first: bool, now: Instant) -> bool {
        let is_member = matches!(state, State::Voter | State::Learner);
        let Some(reported) = self.reported.get_mut(topic) else {
            // There is no problem, or it was a member before the first observation.
            let is_known = *state == State::Calm || (is_first && is_member);
            let lines = if is_known { VecDeque::new() } else { VecDeque::from([now]) };
            self.reported.insert(topic.clone(), Reported { state: state.clone(), lines });
            return !is_known;
        };
        reported.lines.retain(|at| now.saturating_duration_since(*at) < QUIET);
        if reported.state == *state || reported.lines.len() >= BURST {
            return false;
        }
        reported.state = state.clone();
        reported.lines.push_back(now);
        true
    }
}

fn alarm(is_alarm: bool) -> State {
    if is_alarm { State::Alarm } else { State::Calm }
}

fn log_line(topic: &Topic, state: &State, figure: &str) {
    let is_calm = *state == State::Calm;
    match (topic, state) {
        (Topic::Leader, State::Leads(name, term)) => {
            tracing::info!(event = "leader", member = name, term, "{name} leads")
        }
        (Topic::Leader, _) => tracing::warn!(event = "no_leader", "no leader is known"),
        (Topic::Disk, _) if is_calm => tracing::info!(event = "disk_space", left = figure, "the disk has space again"),
        (Topic::Disk, _) => {
            tracing::warn!(
                event = "disk_nearly_full",
                left = figure,
                "the disk is nearly full; free some space, or move the node"
            );
        }
        (Topic::Member(name), State::Voter) => {
            tracing::info!(event = "voter", member = name, addr = figure, "{name} is now a voting member");
        }
        (Topic::Member(name), State::Learner) => {
            tracing::info!(
                event = "joined",
                member = name,
                addr = figure,
                "{name} has joined and is being brought up to date"
            );
        }
        (Topic::Member(name), _) => tracing::warn!(event = "left", member = name, "{name} is no longer a member"),
        (Topic::Silence(name), _) if is_calm => tracing::info!(event = "heard", member = name, "{name} answers again"),
        (Topic::Silence(name), _) => {
            tracing::warn!(event = "silent", member = name, silent = figure, "{name} does not answer");
        }
        (Topic::Lag(name), _) if is_calm => tracing::info!(event = "caught_up", member = name, "{name} has caught up"),
        (Topic::Lag(name), _) => tracing::warn!(event = "lagging", member = name, lag = figure, "{name} lags behind"),
        (Topic::Clock(name), _) if is_calm => {
            tracing::info!(event = "clock_agrees", member = name, "the clock of {name} agrees with this node's again");
        }
        (Topic::Clock(name), _) => {
            let text = "differs from this node's; check time synchronisation on both";
            tracing::warn!(event = "clock_off", member = name, offset = figure, "the clock of {name} {text}");
        }
    }
}

#[cfg(test)]
mod tests;
