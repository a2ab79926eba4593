//! `quorate status`: shows the status of all members of a cluster side by side.
//!
//! Each member is asked directly, so that one that is down or cut off is shown as unreachable.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use quorate_server::status::{Answer, Archive, Archiver, Blocked, ClusterStatus, Group, Member};
use quorate_shell::format;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::options::{AccessArgs, seconds};
use crate::output;
use crate::survey::{Survey, no_leader};
use crate::utc;

/// Moves the cursor of a terminal to its top, and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Options of `quorate status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate status
  quorate status --watch
  quorate status --json --config cluster/a.toml")]
pub struct StatusArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show the status again and again, with a pause of 2 s or SECONDS, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
        value_parser = seconds, conflicts_with = "json")]
    pub watch: Option<Duration>,
}

/// Runs the command.
pub async fn run(args: &StatusArgs) -> Result<()> {
    let access = Access::find(&args.access)?;
    if let Some(pause) = args.watch {
        return watch(&access, pause).await;
    }
    let status = Survey::take(&access).await?.cluster();
    if args.json {
        let text = serde_json::to_string_pretty(&status).map_err(Error::of)?;
        return output::print(&(text + "\n"));
    }
    output::print(&table(&status))
}

/// Shows the status until the process is killed. A cluster that can't be reached is asked again.
async fn watch(access: &Access, pause: Duration) -> Result<()> {
    let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let shown = text(access).await.unwrap_or_else(|error| format!("{error}\n"));
        output::print(&format!("{clear}{shown}"))?;
        tokio::time::sleep(pause).await;
    }
}

/// Returns the status of all members as text.
pub async fn text(access: &Access) -> Result<String> {
    Ok(table(&Survey::take(access).await?.cluster()))
}

fn table(status: &ClusterStatus) -> String {
    let leader = match &status.leader {
        Some(name) => format!("node {name} leads"),
        None => {
            let voters = || status.members.iter().filter(|member| member.voter);
            no_leader((voters().filter(|voter| voter.reachable).count(), voters().count()))
        }
    };
    let header = ["node", "address", "role", "term", "applied", "committed", "last", "lag", "log", "database"];
    let rows: Vec<Vec<String>> = status.members.iter().map(row).collect();
    let table = format::aligned(&header, &rows);
    let errors = status.members.iter().filter_map(|member| {
        let error = member.told.error.as_ref()?;
        Some(format!("{}: {error}\n", member.name))
    });
    let errors: String = errors.collect();
    let blocked = status.members.iter().filter_map(|member| {
        let Blocked { index, why } = member.told.positions.as_ref()?.blocked.as_ref()?;
        Some(format!("{}: stops before entry {index}: {why}\n", member.name))
    });
    let blocked: String = blocked.collect();
    let faults = status.members.iter().filter_map(|member| {
        let fault = member.told.positions.as_ref()?.fault.as_ref()?;
        Some(format!("{}: {fault}\n", member.name))
    });
    let faults: String = faults.collect();
    let (archive, groups) = (archive(status), groups(status));
    let (cluster, epoch) = (&status.cluster, status.epoch);
    format!("cluster {cluster}, epoch {epoch}: {leader}\n\n{table}{archive}{groups}{errors}{blocked}{faults}")
}

/// Returns a line about the archive, if a node writes one.
fn archive(status: &ClusterStatus) -> String {
    let Some(Archiver { node, .. }) = &status.archiver else { return String::new() };
    let Some(Archive { archived_index, lag_seconds, failure, rehearsed_at, .. }) = &status.archive else {
        return format!("archive: node {node} writes it, and has not answered\n");
    };
    let failure = failure.as_ref().map_or_else(String::new, |failure| format!("; it last failed: {failure}"));
    let rehearsed = rehearsed_at.map(|time| format!(", rehearsed at {}", utc::seconds_text(time))).unwrap_or_default();
    format!("archive: node {node} has archived up to {archived_index}, lag {lag_seconds:.1} s{rehearsed}{failure}\n")
}

/// Returns a line for each group beside `main`, and one for each node that does not go on in such a group.
fn groups(status: &ClusterStatus) -> String {
    let mut groups: BTreeMap<u32, Vec<(&str, &Group)>> = BTreeMap::new();
    for member in &status.members {
        for group in member.told.positions.iter().flat_map(|positions| &positions.groups) {
            groups.entry(group.group).or_default().push((&member.name, group));
        }
    }
    let lines: String = groups.iter().map(|(number, told)| group_line(*number, told)).collect();
    let troubles: String = groups.values().flatten().map(|(name, group)| group_troubles(name, group)).collect();
    lines + &troubles
}

/// Describes a group by what the nodes tell about their parts in it.
fn group_line(number: u32, told: &[(&str, &Group)]) -> String {
    // What the other nodes tell about the leader may be outdated.
    let leading = told.iter().filter(|(name, group)| group.leader.as_deref() == Some(name));
    let leader = match leading.max_by_key(|(_, group)| group.term) {
        Some((name, group)) => format!("node {name} leads in term {}", group.term),
        None => "no node leads".to_owned(),
    };
    let committed = told.iter().map(|(_, group)| group.committed).max().unwrap_or_default();
    let applied: Vec<String> = told.iter().map(|(name, group)| format!("{} on {name}", group.applied)).collect();
    format!("group {number}: {leader}; committed {committed}; applied {}\n", applied.join(", "))
}

fn group_troubles(name: &str, group: &Group) -> String {
    let number = group.group;
    let blocked = group
        .blocked
        .as_ref()
        .map(|Blocked { index, why }| format!("{name}: stops before entry {index} of group {number}: {why}\n"));
    let stopped = group.stopped.as_ref().map(|why| format!("{name}: takes no part in group {number}: {why}\n"));
    blocked.into_iter().chain(stopped).collect()
}

fn row(member: &Member<Answer>) -> Vec<String> {
    let role = match (member.reachable, member.leader, member.voter) {
        (false, _, _) => "unreachable",
        (_, true, _) => "leader",
        (_, _, true) => "follower",
        (_, _, false) => "learner",
    };
    let mut row = vec![member.name.clone(), member.addr.clone(), role.to_owned()];
    if let Some(at) = &member.told.positions {
        row.extend([at.term, at.applied, at.committed, at.last].map(|number| number.to_string()));
        row.push(at.lag.map_or_else(|| "?".to_owned(), |lag| lag.to_string()));
        row.extend([at.log_bytes, at.database_bytes].map(format::size));
    }
    row
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use quorate::{
        ArchiveStatus, Position, Status,
        admin::{Blocked, GroupStatus, MemberStatus as Member, Standing},
        types::{self, ClusterId, Epoch, GroupId, LogId, NodeId},
    };

    use super::*;

    fn node(id: u64, term: u64, committed: u64, leader: u64) -> Status {
        let members = [3, 2, 1].map(|id| Member {
            id: NodeId(id),
            name: id.to_string(),
            addr: addr(&id.to_string()),
            voter: id != 3,
            silent_for: Default::default(),
            applied_index: 0,
            format_level: 1,
        });
        Status {
            cluster: ClusterId(0xc0ffee),
            node: NodeId(id),
            name: id.to_string(),
            leader: Some(NodeId(leader)),
            archiver: None,
            archive: None,
            term,
            last_index: committed + 1,
            committed_index: committed,
            applied: Position { epoch: Epoch(1), group: GroupId::MAIN, index: committed },
            durable_index: 0,
            format_level: 1,
            log_bytes: 1 << 20,
            database_bytes: 4096,
            members: members.into(),
            blocked: None,
            fault: None,
            stopped: None,
            standing: Standing::default(),
            groups: Vec::new(),
        }
    }

    fn addr(name: &str) -> String {
        format!("127.0.0.1:2000{name}")
    }

    #[test]
    fn the_latest_leader_and_dead_members_are_shown() {
        let (one, three) = (node(1, 4, 90, 1), node(3, 5, 100, 3));
        let dead = Err(Error::new("connection refused"));
        let answers =
            crate::survey::Answers::from([(addr("1"), Ok(one)), (addr("2"), dead), (addr("3"), Ok(three.clone()))]);
        let status = ClusterStatus::assemble(&three, &answers);
        assert_eq!(status.leader.as_deref(), Some("3"));
        let lag: Vec<Option<u64>> =
            status.members.iter().map(|m| m.told.positions.as_ref().and_then(|at| at.lag)).collect();
        assert_eq!(lag, [Some(10), None, Some(0)]);

        let json = serde_json::to_value(&status).unwrap_or_default();
        assert_eq!(json["leader"], "3");
        assert_eq!(json["members"][1]["reachable"], false);
        assert_eq!(json["members"][2]["applied"], 100);

        let expected = "\
cluster 00000000000000000000000000c0ffee, epoch 1: node 3 leads

node  address          role         term  applied  committed  last  lag  log      database
────  ───────────────  ───────────  ────  ───────  ─────────  ────  ───  ───────  ────────
   1  127.0.0.1:20001  follower        4       90         90    91   10  1.0 MiB   4.0 KiB
   2  127.0.0.1:20002  unreachable
   3  127.0.0.1:20003  leader          5      100        100   101    0  1.0 MiB   4.0 KiB
2: connection refused
";
        assert_eq!(table(&status), expected);
    }

    #[test]
    fn the_archive_has_a_line() {
        let archiver = Some(types::Archiver { node: NodeId(3), token: 9 });
        let one = Status { archiver, ..node(1, 5, 100, 1) };
        let archive = ArchiveStatus {
            archived_index: 97,
            boundary_index: 60,
            lag: std::time::Duration::from_millis(640),
            failures: 0,
            failure: None,
            rehearsed_at: Some(1_790_000_000),
        };
        let three = Status { archive: Some(archive), ..Status { archiver, ..node(3, 5, 100, 1) } };
        let shown = |three: Result<Status>| {
            let answers = crate::survey::Answers::from([(addr("1"), Ok(one.clone())), (addr("3"), three)]);
            table(&ClusterStatus::assemble(&one, &answers))
        };
        assert!(
            shown(Ok(three))
                .contains("\narchive: node 3 has archived up to 97, lag 0.6 s, rehearsed at 2026-09-21T14:13:20Z\n")
        );
        assert!(shown(Err(Error::new("away"))).contains("\narchive: node 3 writes it, and has not answered\n"));
    }

    fn part(group: u32, leader: u64, term: u64, applied: u64) -> GroupStatus {
        GroupStatus {
            leader: Some(NodeId(leader)),
            term,
            last: None,
            committed: Some(LogId { term, node: NodeId(leader), index: applied + 1 }),
            applied: Position { epoch: Epoch(1), group: GroupId(group), index: applied },
            format_level: 1,
            voters: Vec::new(),
            blocked: None,
            stopped: None,
        }
    }

    /// Each group may have another leader. Node 1 has not noticed yet that it no longer leads group 2.
    #[test]
    fn each_further_group_has_a_line() {
        let blocked = Some(Blocked { index: 8, why: "it is too large".to_owned() });
        let stopped = Some("its log failed".to_owned());
        let one = Status {
            groups: vec![part(2, 1, 6, 40), GroupStatus { blocked, ..part(3, 2, 2, 7) }],
            ..node(1, 5, 100, 3)
        };
        let three = Status {
            groups: vec![part(2, 3, 7, 50), GroupStatus { stopped, ..part(3, 2, 2, 9) }],
            ..node(3, 5, 100, 3)
        };
        let dead = Err(Error::new("connection refused"));
        let answers =
            crate::survey::Answers::from([(addr("1"), Ok(one)), (addr("2"), dead), (addr("3"), Ok(three.clone()))]);
        let shown = table(&ClusterStatus::assemble(&three, &answers));
        let expected = "\
group 2: node 3 leads in term 7; committed 51; applied 40 on 1, 50 on 3
group 3: no node leads; committed 10; applied 7 on 1, 9 on 3
1: stops before entry 8 of group 3: it is too large
3: takes no part in group 3: its log failed
2: connection refused
";
        assert!(shown.ends_with(expected) && shown.matches("group").count() == 4, "{shown}");
    }
}
