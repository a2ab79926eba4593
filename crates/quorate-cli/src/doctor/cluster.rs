//! Checks a cluster from outside: which members answer, how many entries they lack, their round trips and their clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use quorate::{
    Client, Config, Status,
    admin::{AdminError, Blocked, Probed},
};

use super::clocks::{self, Clock};
use super::config::check_count;
use super::finding::Finding;
use super::network::{self, Trips};
use crate::access::Access;
use crate::client;
use crate::survey::{Survey, no_leader};

/// How long a node may take to accept this client and to answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// How many round trips are measured to each node.
const PROBES: usize = 20;

/// A member that lacks at most this many entries counts as up to date.
const LAG_MAX: u64 = 1_024;

/// The facts about a cluster.
#[derive(Clone, Debug)]
struct Facts {
    /// The name and the address of the leader, if there is one.
    leader: Option<String>,
    nodes: Vec<Node>,
}

/// A member, and what it answered itself.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    addr: String,
    voter: bool,
    answer: Result<Answer, String>,
}

#[derive(Clone, Debug)]
struct Answer {
    status: Status,
    probes: Vec<Probed>,
}

/// Checks the cluster. If no node answers, that is a problem only if the user `named` a node.
pub async fn look(access: &Access, config: Option<&Config>, named: bool) -> Vec<Finding> {
    const CHECK: &str = "cluster";
    match Facts::gather(access).await {
        Ok(facts) => check(&facts, config),
        Err(why) if named => vec![Finding::problem(CHECK, why, "")],
        Err(why) => vec![Finding::note(CHECK, why, "Only this machine was checked.")],
    }
}

impl Facts {
    async fn gather(access: &Access) -> Result<Self, String> {
        let survey = Survey::take(access).await.map_err(|error| error.to_string())?;
        let leader = survey.cluster().members.into_iter().find(|member| member.leader);
        let leader = leader.map(|leader| format!("'{}' at {}", leader.name, leader.addr));
        let nodes = survey.known.members.iter().map(async |member| Node {
            name: member.name.clone(),
            addr: member.addr.clone(),
            voter: member.voter,
            answer: ask(access, &member.addr).await.and_then(|answer| match answer.status.node == member.id {
                true => Ok(answer),
                false => Err(format!("another node, '{}', answers at its address", answer.status.name)),
            }),
        });
        let mut nodes = join_all(nodes).await;
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { nodes, leader })
    }
}

async fn ask(access: &Access, addr: &str) -> Result<Answer, String> {
    let config = access.remote_at(addr).with_deadline(ANSWER_MAX);
    let client = Client::connect(config).await.map_err(|error| client::of_connecting(error).to_string())?;
    let admin = client.admin();
    let text = |error: AdminError| error.to_string();
    let mut probes = Vec::new();
    for _ in 0..PROBES {
        probes.push(admin.probe().await.map_err(text)?);
    }
    Ok(Answer { status: admin.members().await.map_err(text)?, probes })
}

/// Checks whether the cluster can lose as many nodes as it should, and whether its nodes agree.
fn check(facts: &Facts, config: Option<&Config>) -> Vec<Finding> {
    let mut findings = check_members(facts);
    findings.extend(config.and_then(|config| check_listed(facts, config)));
    findings.extend(check_nodes(facts));
    findings.extend(check_versions(facts));
    let answers: Vec<(&Node, &Answer)> =
        facts.nodes.iter().filter_map(|node| Some((node, node.answer.as_ref().ok()?))).collect();
    let clocks: Vec<Clock> = answers.iter().filter_map(|(node, answer)| clock(node, answer)).collect();
    findings.extend(clocks::check(&clocks));
    let trips: Vec<Trips> = answers.iter().filter_map(|(node, answer)| trips(node, answer)).collect();
    findings.extend(network::check(&trips));
    findings
}

/// Returns the measurement with the shortest round trip, which has the smallest error.
fn clock(node: &Node, answer: &Answer) -> Option<Clock> {
    let best = answer.probes.iter().min_by_key(|probe| probe.round_trip)?;
    Some(Clock { name: node.name.clone(), offset: best.clock_offset, error: best.round_trip / 2 })
}

fn trips(node: &Node, answer: &Answer) -> Option<Trips> {
    let mut took: Vec<Duration> = answer.probes.iter().map(|probe| probe.round_trip).collect();
    took.sort_unstable();
    let Probed { heartbeat, election_min, .. } = *answer.probes.first()?;
    Some(Trips { name: node.name.clone(), took, heartbeat, election_min })
}

fn check_members(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "members";
    let voters: Vec<&Node> = facts.nodes.iter().filter(|node| node.voter).collect();
    let there = voters.iter().filter(|node| node.answer.is_ok()).count();
    let majority = voters.len() / 2 + 1;
    let what = format!("{there} of {} voters answer", voters.len());
    let mut findings = vec![match there.checked_sub(majority) {
        None => Finding::problem(CHECK, what, "That is no majority, so nothing can be written."),
        Some(0) if voters.len() > 2 => {
            Finding::problem(CHECK, what, "If one more is lost, nothing can be written until one is back.")
        }
        Some(0) => Finding::note(
            CHECK,
            what,
            "If one is lost, nothing can be written. To survive the loss of one, a cluster needs three voters.",
        ),
        Some(1) => Finding::ok(CHECK, what, "The cluster survives the loss of one of them."),
        Some(spare) => Finding::ok(CHECK, what, format!("The cluster survives the loss of {spare} of them.")),
    }];
    findings.extend(check_count(voters.len()).filter(|_| voters.len() > 2));
    findings.push(match &facts.leader {
        Some(leader) => Finding::ok("leader", leader, ""),
        None => Finding::problem("leader", no_leader((there, voters.len())), "Nothing can be written."),
    });
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in &facts.nodes {
        names.entry(&node.addr).or_default().insert(&node.name);
    }
    for (addr, names) in names.into_iter().filter(|(_, names)| names.len() > 1) {
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        let what = format!("{names} have the address {addr}");
        findings.push(Finding::problem(CHECK, what, "Only one of them can run there: remove the other."));
    }
    findings
}

fn check_listed(facts: &Facts, config: &Config) -> Option<Finding> {
    let members: BTreeSet<&str> = facts.nodes.iter().map(|node| node.name.as_str()).collect();
    let listed: BTreeSet<&str> = config.members.keys().map(String::as_str).collect();
    let differ: Vec<&str> = members.symmetric_difference(&listed).copied().collect();
    if listed.is_empty() || differ.is_empty() {
        return None;
    }
    let what = format!("the members in the configuration and in the cluster differ: {}", differ.join(", "));
    let means = "The cluster's own list counts. But a node under a listed name may join with a new data directory, and \
                 a node finds its cluster only through the members that its configuration lists.";
    Some(Finding::note("members", what, means))
}

fn check_nodes(facts: &Facts) -> Vec<Finding> {
    let answers = || facts.nodes.iter().filter_map(|node| node.answer.as_ref().ok());
    let committed = answers().map(|answer| answer.status.committed_index).max().unwrap_or(0);
    let mut findings = Vec::new();
    for node in &facts.nodes {
        let (name, addr) = (&node.name, &node.addr);
        let what = format!("'{name}' at {addr}");
        let answer = match &node.answer {
            Ok(answer) => answer,
            Err(why) if node.voter => {
                findings.push(Finding::problem("node", format!("{what} does not answer: {why}"), ""));
                continue;
            }
            Err(why) => {
                findings.push(Finding::note("node", format!("{what}, a learner, does not answer: {why}"), ""));
                continue;
            }
        };
        let role = if node.voter { "a voter" } else { "a learner" };
        findings.push(check_node(&answer.status, committed, &format!("{what}, {role},")));
    }
    findings
}

/// Checks the status that a node reports.
fn check_node(status: &Status, committed: u64, who: &str) -> Finding {
    if let Some(why) = &status.stopped {
        return Finding::problem("node", format!("{who} has stopped taking part: {why}"), "Start it again.");
    }
    if let Some(fault) = &status.fault {
        return Finding::problem("node", format!("{who} applies nothing: {fault}"), "See its log.");
    }
    if let Some(Blocked { index, why }) = &status.blocked {
        let means = "'Entries that can't be applied' in docs/operate.md says what to do if it lasts.";
        return Finding::problem("node", format!("{who} stops before entry {index}: {why}"), means);
    }
    match status.lag_behind(committed) {
        None => Finding::note("node", format!("{who} has no database yet"), "Another node sends it a copy."),
        Some(lag) if lag > LAG_MAX => Finding::note(
            "node",
            format!("{who} lacks {lag} entries"),
            "It is catching up, or is too slow for the rate of writes: compare its disk with the others'.",
        ),
        Some(lag) => Finding::ok("node", format!("{who} lacks {lag} entries"), ""),
    }
}

fn check_versions(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "versions";
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in &facts.nodes {
        if let Some(probe) = node.answer.as_ref().ok().and_then(|answer| answer.probes.first()) {
            versions.entry(&probe.version).or_default().push(&node.name);
        }
    }
    let text = |(version, names): (&&str, &Vec<&str>)| format!("{version} on {}", names.join(", "));
    let what = versions.iter().map(text).collect::<Vec<_>>().join("; ");
    match versions.len() {
        0 => None,
        1 => Some(Finding::ok(CHECK, what, "")),
        _ => Some(Finding::note(CHECK, what, "All nodes should run the same version, except during an upgrade.")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use quorate::{
        Position,
        admin::{MemberStatus, Standing},
        types::{ClusterId, Epoch, GroupId, NodeId},
    };

    use super::super::finding::Level::{Note, Ok as Fine, Problem};
    use super::*;

    fn status(node: u64, applied: u64) -> Status {
        let member = |id: u64| MemberStatus {
            id: NodeId(id),
            name: id.to_string(),
            addr: format!("h:{id}"),
            voter: true,
            silent_for: Duration::ZERO,
            applied_index: applied,
            format_level: 1,
        };
        Status {
            cluster: ClusterId(1),
            node: NodeId(node),
            name: node.to_string(),
            leader: Some(NodeId(1)),
            archiver: None,
            archive: None,
            term: 1,
            last_index: applied,
            committed_index: applied,
            applied: Position { epoch: Epoch(1), group: GroupId::MAIN, index: applied },
            durable_index: 0,
            format_level: 1,
            log_bytes: 0,
            database_bytes: 0,
            members: [1, 2, 3].map(member).into(),
            blocked: None,
            fault: None,
            stopped: None,
            standing: Standing::default(),
            groups: Vec::new(),
        }
    }

    fn node(id: u64, applied: u64) -> Node {
        let probe = Probed {
            round_trip: Duration::from_micros(200),
            clock_offset: 1_000,
            version: "0.1.0".to_owned(),
            heartbeat: Duration::from_millis(80),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(600),
        };
        let answer = Ok(Answer { status: status(id, applied), probes: vec![probe; 3] });
        Node { name: id.to_string(), addr: format!("h:{id}"), voter: true, answer }
    }

    fn whole() -> Facts {
        Facts { leader: Some("'1' at h:1".to_owned()), nodes: [1, 2, 3].map(|id| node(id, 100)).into() }
    }

    /// Returns the findings that are not OK.
    fn findings(facts: &Facts) -> Vec<String> {
        let found = check(facts, None).into_iter().filter(|finding| finding.level != Fine);
        found.map(|finding| format!("{:?} {} {}", finding.level, finding.what, finding.means)).collect()
    }

    #[test]
    fn a_whole_cluster_is_fine() {
        assert_eq!(findings(&whole()), [""; 0]);
        let checks: BTreeSet<&str> = check(&whole(), None).iter().map(|finding| finding.check).collect();
        assert_eq!(checks.into_iter().collect::<Vec<_>>().join(" "), "clocks leader members node round trips versions");
    }

    #[test]
    fn lost_voters_and_the_remaining_margin_are_reported() {
        let mut facts = whole();
        facts.nodes[2].answer = Err("refused".to_owned());
        let one_lost = findings(&facts);
        assert!(one_lost[0].contains("2 of 3 voters answer If one more is lost"), "{one_lost:?}");
        assert!(one_lost[1].contains("'3' at h:3 does not answer: refused"), "{one_lost:?}");
        facts.nodes[1].answer = Err("refused".to_owned());
        assert!(findings(&facts)[0].contains("no majority"));
        facts.leader = None;
        assert!(findings(&facts).iter().any(|text| text.contains("no leader: 1 of 3 voters can be reached")));
    }

    #[test]
    fn a_node_that_applies_nothing_is_a_problem() {
        let findings_with = |change: fn(&mut Status)| {
            let mut facts = whole();
            change(&mut facts.nodes[1].answer.as_mut().unwrap().status);
            findings(&facts).join("\n")
        };
        let blocked = findings_with(|status| status.blocked = Some(Blocked { index: 7, why: "no memory".to_owned() }));
        assert!(blocked.starts_with("Problem '2' at h:2, a voter, stops before entry 7: no memory"), "{blocked}");
        let full = findings_with(|status| status.fault = Some("no space left".to_owned()));
        assert!(full.starts_with("Problem '2' at h:2, a voter, applies nothing: no space left"), "{full}");
        let restored = findings_with(|status| status.applied.index = 0);
        assert!(restored.starts_with("Note '2' at h:2, a voter, has no database yet"), "{restored}");
    }

    #[test]
    fn differing_members_are_reported() {
        let mut facts = whole();
        facts.nodes[1] = Node { addr: "h:1".to_owned(), ..node(2, 1) };
        facts.nodes[0] = node(1, 5_000);
        facts.nodes[2].answer.as_mut().unwrap().probes.iter_mut().for_each(|p| p.version = "0.2.0".to_owned());
        facts.nodes.push(node(4, 5_000));
        let found = findings(&facts).join("\n");
        for expected in
            ["Problem 1 and 2 have the address h:1", "lacks 4999 entries", "0.1.0 on 1, 2, 4; 0.2.0 on 3", "4 voters"]
        {
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }

    #[test]
    fn the_configuration_is_compared_with_the_members() {
        let facts = whole();
        let listing =
            |names: &[&str]| Config::default().with_members(names.iter().map(|name| (*name, format!("h:{name}"))));
        assert_eq!(check_listed(&facts, &listing(&["1", "2", "3"])), None);
        assert_eq!(check_listed(&facts, &listing(&[])), None);
        let found = check_listed(&facts, &listing(&["1", "2", "9"])).unwrap();
        assert!(found.level == Note && found.what.contains("3, 9"), "{found:?}");
        assert!(check(&facts, Some(&listing(&["1"]))).iter().all(|finding| finding.level != Problem));
    }
}
