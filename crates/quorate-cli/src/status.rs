//! `quorate status`: what the members of a cluster say of themselves, side by side.
//!
//! Every member is asked itself, so that one which is down or cut off shows as such. The leader is the member that says
//! of itself that it leads, in the latest term: what others last heard of it may be old.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use quorate::Status;
use serde::Serialize;

use crate::access::Access;
use crate::args::StatusArgs;
use crate::client;
use crate::error::{Error, Result, Told as _};
use crate::format;
use crate::output;

/// The cluster, as the JSON has it.
#[derive(Debug, Serialize)]
struct ClusterStatus {
    /// The id of the member that leads; none if no member does, or can be reached.
    leader: Option<u64>,
    /// The cluster's own id, in hexadecimal.
    cluster: String,
    epoch: u64,
    members: Vec<MemberStatus>,
}

/// One member.
#[derive(Debug, Serialize)]
struct MemberStatus {
    /// As in `cluster.json`: the name where it is a number, else the place in the list.
    id: u64,
    name: String,
    /// The id of its data directory in the cluster, in hexadecimal.
    raft_id: String,
    addr: String,
    voter: bool,
    leader: bool,
    reachable: bool,
    /// Why it can't be reached.
    error: Option<String>,
    #[serde(flatten)]
    positions: Option<Positions>,
}

/// How far a member that answers is, and what it keeps.
#[derive(Debug, Serialize)]
struct Positions {
    term: u64,
    /// The last index in its log.
    last: u64,
    /// The last that it knows to be committed.
    committed: u64,
    /// The last that its database holds.
    applied: u64,
    /// Committed entries, as far as any member knows, that its database does not hold.
    lag: u64,
    log_bytes: u64,
    database_bytes: u64,
}

impl Positions {
    fn of(status: &Status, committed: u64) -> Self {
        Self {
            term: status.term,
            last: status.last_index,
            committed: status.committed_index,
            applied: status.applied.index,
            lag: committed.saturating_sub(status.applied.index),
            log_bytes: status.log_bytes,
            database_bytes: status.database_bytes,
        }
    }
}

/// Runs the command.
pub async fn run(args: &StatusArgs) -> Result<()> {
    let status = ClusterStatus::gather(&Access::find(&args.access)?).await?;
    if args.json {
        let text = serde_json::to_string_pretty(&status).map_err(|error| Error::new(error.to_string()))?;
        return output::print(&(text + "\n"));
    }
    output::print(&status.text())
}

/// What each address answered.
type Answers = BTreeMap<String, Result<Status>>;

/// What the members say of themselves, as a text.
pub async fn text(access: &Access) -> Result<String> {
    Ok(ClusterStatus::gather(access).await?.text())
}

impl ClusterStatus {
    async fn gather(access: &Access) -> Result<Self> {
        let mut answers = ask(access, access.addrs.clone()).await;
        // The members as the one knows them that heard of the latest term.
        let known = answers.values().flatten().max_by_key(|status| status.term).cloned();
        let Some(known) = known else {
            let failed = answers.into_iter().find_map(|(addr, answer)| answer.err().map(|error| (addr, error)));
            let (addr, error) = failed.unwrap_or_else(|| (String::new(), Error::new("no address to ask")));
            return Err(error).told(|| format!("no node answers; {addr}"));
        };
        let others = known.members.iter().map(|member| member.addr.clone());
        let others = others.filter(|addr| !answers.contains_key(addr)).collect();
        answers.extend(ask(access, others).await);
        Ok(Self::assemble(&known, &answers))
    }

    fn assemble(known: &Status, answers: &Answers) -> Self {
        let reached = || answers.values().flatten();
        let committed = reached().map(|status| status.committed_index).max().unwrap_or(0);
        let leading = reached().filter(|status| status.leader == Some(status.node)).max_by_key(|status| status.term);
        let leading = leading.map(|status| status.node);
        let mut listed: Vec<_> = known.members.iter().collect();
        listed.sort_by(|a, b| (a.name.parse::<u64>().ok(), &a.name).cmp(&(b.name.parse().ok(), &b.name)));
        let members = (1..).zip(listed).map(|(place, member)| {
            let answer = answers.get(&member.addr).map(Result::as_ref);
            // A former member of the same name may have had the address.
            let status = answer.and_then(Result::ok).filter(|status| status.node == member.id);
            MemberStatus {
                id: member.name.parse().unwrap_or(place),
                name: member.name.clone(),
                raft_id: member.id.to_string(),
                addr: member.addr.clone(),
                voter: member.voter,
                leader: leading == Some(member.id),
                reachable: status.is_some(),
                error: answer.and_then(Result::err).map(ToString::to_string),
                positions: status.map(|status| Positions::of(status, committed)),
            }
        });
        let members: Vec<MemberStatus> = members.collect();
        let leader = members.iter().find(|member| member.leader).map(|member| member.id);
        let epoch = known.applied.epoch.0;
        Self { leader, cluster: known.cluster.to_string(), epoch, members }
    }

    fn text(&self) -> String {
        let leader = match self.leader {
            Some(id) => format!("node {id} leads"),
            None => "no node leads".to_owned(),
        };
        let header = ["node", "address", "role", "term", "applied", "committed", "last", "lag", "log", "database"];
        let rows: Vec<Vec<String>> = self.members.iter().map(MemberStatus::row).collect();
        let table = format::aligned(&header, &rows);
        let errors =
            self.members.iter().filter_map(|member| Some(format!("{}: {}\n", member.name, member.error.as_ref()?)));
        let errors: String = errors.collect();
        format!("cluster {}, epoch {}: {leader}\n\n{table}{errors}", self.cluster, self.epoch)
    }
}

async fn ask(access: &Access, addrs: Vec<String>) -> Answers {
    let answers = addrs.into_iter().map(async |addr| {
        let answer = client::status(&addr, &access.secret).await;
        (addr, answer)
    });
    join_all(answers).await.into_iter().collect()
}

impl MemberStatus {
    fn row(&self) -> Vec<String> {
        let role = match (self.reachable, self.leader, self.voter) {
            (false, _, _) => "unreachable",
            (_, true, _) => "leader",
            (_, _, true) => "follower",
            (_, _, false) => "learner",
        };
        let mut row = vec![self.name.clone(), self.addr.clone(), role.to_owned()];
        if let Some(at) = &self.positions {
            row.extend([at.term, at.applied, at.committed, at.last, at.lag].map(|number| number.to_string()));
            row.extend([at.log_bytes, at.database_bytes].map(size));
        }
        row
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            let tenths = bytes.saturating_mul(10) / unit;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use quorate::{ClusterId, Epoch, GroupId, MemberStatus as Member, NodeId, Position};

    use super::*;

    fn node(id: u64, term: u64, committed: u64, leader: u64) -> Status {
        let members = [3, 2, 1].map(|id| Member {
            id: NodeId(id),
            name: id.to_string(),
            addr: addr(&id.to_string()),
            voter: id != 3,
            silent_for: Default::default(),
            applied_index: 0,
        });
        Status {
            cluster: ClusterId(0xc0ffee),
            node: NodeId(id),
            name: id.to_string(),
            leader: Some(NodeId(leader)),
            term,
            last_index: committed + 1,
            committed_index: committed,
            applied: Position { epoch: Epoch(1), group: GroupId::MAIN, index: committed },
            durable_index: 0,
            log_bytes: 1 << 20,
            database_bytes: 4096,
            members: members.into(),
            stopped: None,
        }
    }

    fn addr(name: &str) -> String {
        format!("127.0.0.1:2000{name}")
    }

    #[test]
    fn the_leader_of_the_latest_term_counts_and_the_dead_are_shown() {
        let (one, three) = (node(1, 4, 90, 1), node(3, 5, 100, 3));
        let dead = Err(Error::new("connection refused"));
        let answers = Answers::from([(addr("1"), Ok(one)), (addr("2"), dead), (addr("3"), Ok(three.clone()))]);
        let status = ClusterStatus::assemble(&three, &answers);
        assert_eq!(status.leader, Some(3));
        let lag: Vec<Option<u64>> = status.members.iter().map(|m| m.positions.as_ref().map(|at| at.lag)).collect();
        assert_eq!(lag, [Some(10), None, Some(0)]);

        let json = serde_json::to_value(&status).unwrap_or_default();
        assert_eq!(json["leader"], 3);
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
        assert_eq!(status.text(), expected);
    }

    #[test]
    fn sizes_are_for_people() {
        let shown = [0, 1023, 1024, 1536, 5 << 20, (3 << 30) + (1 << 29)].map(size);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.5 GiB"]);
    }
}
