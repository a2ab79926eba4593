//! `quorate members`: lists and changes the members of a cluster.
//!
//! The cluster does the work: each request goes to the leader, wherever that is, and may be sent again. `add` repeats
//! its request about once a second until the node is a voter, and shows each answer that differs from the one before.

use std::time::Duration;

use clap::{Args, Subcommand};
use quorate::{
    Admin, Client,
    admin::{AdminError, Admission, Admitted, MemberStatus},
};
use quorate_shell::{ACCEPT_MAX, format};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::access::Access;
use crate::error::{Context as _, Error, Result};
use crate::options::{AccessArgs, ListArgs};
use crate::output;
use crate::survey::{Survey, no_leader};

/// How long a change may take, including a change of the leader.
const CHANGE_MAX: Duration = Duration::from_secs(30);

/// How often the request to add a node is repeated.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How many seconds a new node has to become a voter.
const WAIT_DEFAULT: u64 = 600;

/// Options of `quorate members`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  quorate members list
  quorate members add d 10.0.0.4:7001      after `quorate serve` was started there with a configuration whose
                                           [members] lists the cluster and d itself
  quorate members replace c d 10.0.0.4:7001
  quorate members remove c
  quorate members transfer a
  quorate members list --node 10.0.0.1:7001 --secret-file secret --json")]
pub struct MembersArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: MembersCommand,
}

/// The commands for members.
#[derive(Debug, Subcommand)]
pub enum MembersCommand {
    /// Show the members, and which of them can be reached; the exit code is 1 if there is no leader
    #[command(after_help = "Examples:\n  quorate members list\n  quorate members list --config a.toml --json")]
    List(ListArgs),
    /// Admit a node that has been started and waits, and wait until it is a voter
    ///
    /// Start the node first, with its own configuration that lists the cluster and the node itself. The node waits,
    /// because the lists of the others do not name it. This command permits it to join for as long as the command runs:
    /// the node becomes a learner, catches up, and then votes.
    #[command(after_help = "\
Example, on the new machine d:
  quorate serve --config d.toml &
  quorate members add d 10.0.0.4:7001 --node 10.0.0.1:7001 --secret-file secret")]
    Add(AddArgs),
    /// Remove a member for good
    ///
    /// Its data directory can never be used again: the node notices that it was removed, logs that and ends. A new
    /// directory may join again under a name that the nodes' configurations list; take the name out of them to prevent
    /// that. A leader hands leadership over first.
    #[command(after_help = "Example:\n  quorate members remove c --node 10.0.0.1:7001 --secret-file secret")]
    Remove(RemoveArgs),
    /// Admit a node in the place of a member, by one change
    ///
    /// Works like `add`, but the old member is removed by the same change that makes the new one a voter: the number of
    /// voters never changes.
    #[command(after_help = "Example:\n  quorate members replace c d 10.0.0.4:7001")]
    Replace(ReplaceArgs),
    /// Hand leadership to a voter, and show which node leads
    #[command(after_help = "Examples:\n  quorate members transfer\n  quorate members transfer a")]
    Transfer(TransferArgs),
}

/// Options of `quorate members add`.
#[derive(Args, Debug)]
pub struct AddArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The node's name in its configuration
    #[arg(value_name = "NAME")]
    pub name: String,
    /// host:port of the node
    #[arg(value_name = "ADDR")]
    pub addr: String,
    /// How long to wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = WAIT_DEFAULT)]
    pub wait: u64,
}

/// Options of `quorate members remove`.
#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The member's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Remove it even if no majority of the remaining voters can be reached; nothing can be written until it can
    #[arg(long)]
    pub force: bool,
}

/// Options of `quorate members replace`.
#[derive(Args, Debug)]
pub struct ReplaceArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The name of the member to remove
    #[arg(value_name = "OLD")]
    pub old: String,
    /// The name of the new node in its configuration
    #[arg(value_name = "NEW")]
    pub new: String,
    /// host:port of the new node
    #[arg(value_name = "ADDR")]
    pub addr: String,
    /// How long to wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = WAIT_DEFAULT)]
    pub wait: u64,
    /// Replace it even if no majority of the remaining voters can be reached; nothing can be written until it can
    #[arg(long)]
    pub force: bool,
}

/// Options of `quorate members transfer`.
#[derive(Args, Debug)]
pub struct TransferArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The voter that is to lead [default: the one that has most of the log]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// Runs the command.
pub async fn run(args: &MembersArgs) -> Result<()> {
    match &args.command {
        MembersCommand::List(args) => list(args).await,
        MembersCommand::Add(AddArgs { access, name, addr, wait }) => {
            let admission = Admission { name: name.clone(), addr: addr.clone(), ..Admission::default() };
            admit(access, &admission, Duration::from_secs(*wait)).await
        }
        MembersCommand::Replace(ReplaceArgs { access, old, new, addr, wait, force }) => {
            let (name, addr, replaces) = (new.clone(), addr.clone(), Some(old.clone()));
            let admission = Admission { name, addr, replaces, force: *force };
            admit(access, &admission, Duration::from_secs(*wait)).await
        }
        MembersCommand::Remove(args) => remove(args).await,
        MembersCommand::Transfer(args) => transfer(args).await,
    }
}

/// Connects to the cluster, to change its members.
pub async fn connect(access: &AccessArgs) -> Result<Admin> {
    let config = Access::find(access)?.remote().with_deadline(ACCEPT_MAX);
    let client = Client::connect(config).await.map_err(Error::of)?;
    Ok(client.admin().with_deadline(CHANGE_MAX))
}

async fn list(args: &ListArgs) -> Result<()> {
    let members = Members::of(&Survey::take(&Access::find(&args.access)?).await?);
    if args.json {
        let text = serde_json::to_string_pretty(&members).map_err(Error::of)?;
        output::print(&(text + "\n"))?;
    } else {
        output::print(&members.text())?;
    }
    match members.leader {
        Some(_) => Ok(()),
        None => Err(Error::new(no_leader((members.voters_reachable, members.voters)))),
    }
}

async fn remove(args: &RemoveArgs) -> Result<()> {
    let admin = connect(&args.access).await?;
    let name = &args.name;
    admin.remove(name, args.force).await.map_err(|error| {
        let hint = if matches!(error, AdminError::Refused(_)) { "" } else { "; check with `quorate members list`" };
        Error::caused(format!("'{name}' was not removed: {error}{hint}"), error)
    })?;
    output::print(&format!("'{name}' is removed; its data directory can't be used again\n"))
}

async fn transfer(args: &TransferArgs) -> Result<()> {
    let admin = connect(&args.access).await?;
    let leads = admin.transfer(args.name.as_deref()).await.context(|| "leadership was not handed over")?;
    let members = admin.members().await.map(|status| status.members).unwrap_or_default();
    let leader = members.into_iter().find(|member| member.id == leads);
    let leader = leader.map_or_else(|| leads.to_string(), |member| format!("'{}' at {}", member.name, member.addr));
    output::print(&format!("{leader} leads\n"))
}

/// Repeats the request until the node is a voter, and shows its progress.
async fn admit(access: &AccessArgs, admission: &Admission, wait: Duration) -> Result<()> {
    let admin = connect(access).await?;
    let (deadline, name) = (Instant::now() + wait, &admission.name);
    let mut shown = String::new();
    loop {
        let now = match admin.admit(admission.clone()).await {
            Ok(Admitted::Voter) => return output::print(&format!("'{name}' is a voter\n")),
            Ok(admitted) => progress(&admitted),
            Err(error) if error.is_retryable() => error.to_string(),
            Err(error) => return Err(error).context(|| format!("'{name}' was not admitted")),
        };
        if now != shown {
            output::print(&format!("{name}: {now}\n"))?;
            shown = now;
        }
        if Instant::now() + ASK_EVERY >= deadline {
            return Err(Error::new(format!(
                "'{name}' is not a voter after {} s: {shown}; it is no longer permitted to join: run the same command \
                 again to continue, or `quorate members remove {name}` to remove a learner",
                wait.as_secs()
            )));
        }
        sleep(ASK_EVERY).await;
    }
}

fn progress(admitted: &Admitted) -> String {
    match admitted {
        Admitted::Learner { matched: 0, why, .. } if !why.is_empty() => format!("a learner: {why}"),
        Admitted::Learner { matched, last, why } if why.is_empty() => {
            format!("a learner, has {matched} of {last} entries")
        }
        Admitted::Learner { matched, last, why } => format!("a learner, has {matched} of {last} entries: {why}"),
        Admitted::Waiting(why) => why.clone(),
        other => format!("{other:?}"),
    }
}

/// The members, as printed in JSON.
#[derive(Debug, Serialize)]
struct Members {
    /// The name of the leader; `None` if none is known.
    leader: Option<String>,
    /// The id of the cluster, in hexadecimal.
    cluster: String,
    voters: usize,
    /// How many voters answered.
    voters_reachable: usize,
    members: Vec<Member>,
}

/// One member.
#[derive(Debug, Serialize)]
struct Member {
    name: String,
    /// The id of its data directory in the cluster, in hexadecimal.
    raft_id: String,
    addr: String,
    voter: bool,
    leader: bool,
    /// How many committed entries it had not applied when it was last heard of; `None` without a leader, and while it
    /// has no database.
    lag: Option<u64>,
    /// Whether the member answered.
    reachable: bool,
    /// For how long the others have heard nothing from it, in milliseconds.
    silent_ms: u64,
}

impl Members {
    fn of(survey: &Survey) -> Self {
        let (known, leader) = (&survey.known, survey.cluster().leader);
        let member = |member: &MemberStatus| Member {
            name: member.name.clone(),
            raft_id: member.id.to_string(),
            addr: member.addr.clone(),
            voter: member.voter,
            leader: leader.as_ref() == Some(&member.name),
            lag: leader.as_ref().and_then(|_| member.lag(known.committed_index)),
            reachable: survey.answer(member).is_some(),
            silent_ms: u64::try_from(member.silent_for.as_millis()).unwrap_or(u64::MAX),
        };
        let mut members: Vec<Member> = known.members.iter().map(member).collect();
        members.sort_by(|a, b| (&a.name, &a.raft_id).cmp(&(&b.name, &b.raft_id)));
        let (voters_reachable, voters) = survey.voters();
        Self { leader, cluster: known.cluster.to_string(), voters, voters_reachable, members }
    }

    fn text(&self) -> String {
        let leader = self.leader.as_ref().map_or_else(|| "no leader".to_owned(), |name| format!("{name} leads"));
        let rows: Vec<Vec<String>> = self.members.iter().map(Member::row).collect();
        let table = format::aligned(&["name", "id", "address", "role", "lag", "reachable"], &rows);
        format!("cluster {}: {leader}\n\n{table}", self.cluster)
    }
}

impl Member {
    fn row(&self) -> Vec<String> {
        /// A longer silence is shown. Members contact each other about once a second.
        const SILENT_FROM_MS: u64 = 5_000;
        let role = match (self.leader, self.voter) {
            (true, _) => "leader",
            (_, true) => "voter",
            (_, false) => "learner",
        };
        let reachable = match (self.reachable, self.silent_ms >= SILENT_FROM_MS) {
            (true, _) => "yes".to_owned(),
            (false, false) => "no".to_owned(),
            (false, true) => format!("no, silent for {} s", self.silent_ms / 1000),
        };
        let lag = self.lag.map_or_else(|| "?".to_owned(), |lag| lag.to_string());
        vec![self.name.clone(), self.raft_id.clone(), self.addr.clone(), role.to_owned(), lag, reachable]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use quorate::{
        Position, Status,
        admin::Standing,
        types::{ClusterId, Epoch, GroupId, NodeId},
    };

    use super::*;

    fn status(node: u64, leader: Option<u64>) -> Status {
        let member = |id: u64, name: &str, silent: u64| MemberStatus {
            id: NodeId(id),
            name: name.to_owned(),
            addr: format!("10.0.0.{id}:7001"),
            voter: name != "d",
            silent_for: Duration::from_secs(silent),
            applied_index: 100 - id,
            format_level: 1,
        };
        Status {
            cluster: ClusterId(0xc0ffee),
            node: NodeId(node),
            name: "b".to_owned(),
            leader: leader.map(NodeId),
            archiver: None,
            archive: None,
            term: 3,
            last_index: 100,
            committed_index: 99,
            applied: Position { epoch: Epoch(1), group: GroupId::MAIN, index: 98 },
            durable_index: 0,
            format_level: 1,
            log_bytes: 0,
            database_bytes: 0,
            members: vec![member(1, "b", 0), member(2, "a", 0), member(4, "d", 72)],
            blocked: None,
            fault: None,
            stopped: None,
            standing: Standing::default(),
            groups: Vec::new(),
        }
    }

    fn survey(answers: impl IntoIterator<Item = (u64, Result<Status>)>) -> Result<Survey> {
        let answers = answers.into_iter().map(|(id, answer)| (format!("10.0.0.{id}:7001"), answer));
        Survey::of(answers.collect())
    }

    fn dead() -> Result<Status> {
        Err(Error::new("connection refused"))
    }

    #[test]
    fn members_are_shown_with_their_reachability() {
        let survey = survey([(1, Ok(status(1, Some(2)))), (2, Ok(status(2, Some(2)))), (4, dead())]).unwrap();
        let expected = "\
cluster 00000000000000000000000000c0ffee: a leads

name  id                address        role     lag  reachable
────  ────────────────  ─────────────  ───────  ───  ───────────────────
a     0000000000000002  10.0.0.2:7001  leader     1  yes
b     0000000000000001  10.0.0.1:7001  voter      0  yes
d     0000000000000004  10.0.0.4:7001  learner    3  no, silent for 72 s
";
        assert_eq!(Members::of(&survey).text(), expected);
    }

    #[test]
    fn a_leader_that_does_not_answer_does_not_count() {
        let survey = survey([(1, Ok(status(1, Some(2)))), (2, dead()), (4, dead())]).unwrap();
        let members = Members::of(&survey);
        assert_eq!((&members.leader, members.voters_reachable, members.voters), (&None, 1, 2));
        let text = no_leader(survey.voters());
        assert!(text.starts_with("no leader: 1 of 2 voters can be reached; a majority is needed"), "{text}");
        assert!(no_leader((2, 3)).contains("elect one soon"));
    }

    #[test]
    fn a_node_that_knows_no_members_is_not_trusted() {
        let wiped = Status { members: Vec::new(), term: 9, ..status(7, None) };
        let both = survey([(1, Ok(status(1, Some(2)))), (7, Ok(wiped.clone()))]).unwrap();
        assert_eq!(both.known.members.len(), 3);
        let error = survey([(7, Ok(wiped))]).unwrap_err().to_string();
        assert!(error.contains("10.0.0.7:7001") && error.contains("knows the members"), "{error}");
    }
}
