//! How a node comes to belong to a cluster: it finds a living cluster, or takes part in founding one.
//!
//! Invariants:
//! - Only the node with the lowest name in the list founds the cluster, and only after every listed node has answered,
//!   was empty, and has durably promised itself to this cluster id with this set of Raft ids. So one list can never
//!   give two clusters, whichever nodes lose their disks or messages in the meantime.
//! - A node keeps at most one promise. It replaces a promise only by one with a higher attempt, and only while its log
//!   is empty. The earlier set of ids can then never be founded with it.
//! - A node whose directory belonged to a cluster founds no other cluster and joins no other, even if its log is lost.
//!   No other node founds a cluster with it.
//! - A node whose cluster begins with a restored state neither founds a cluster without one nor promises to. Where it
//!   would found one, its start ends, and the caller restores.
//! - A node that can't decide waits, and logs what it waits for. A node whose durability differs from that of the
//!   others does not wait: its start fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_env::{Throttle, sleep};
use quorate_model::codec::entry;
use quorate_model::{LogId, Payload, StateMachine};
use quorate_wal::WalError;
use quorate_wire::Purpose;

use crate::Member;
use crate::config::ConsensusConfig;
use crate::error::StartError;
use crate::group_log::GroupLog;
use crate::home::Home;
use crate::identity::ClusterId;
use crate::peer::messages::{MemberInfo, Promise, Promised, StatusReply, decode, encode, method};
use crate::peers::Peers;
use crate::raft::codec::encode_founders;

/// The first epoch of a cluster.
const FIRST_EPOCH: u64 = 1;

/// The maximum time for a node to make a promise durable and answer.
const PROMISE_MAX: Duration = Duration::from_secs(5);

/// Waits until this node belongs to a cluster. If this node founds it, returns the members to initialise the core with.
pub(crate) async fn settle(
    home: &Home,
    config: &ConsensusConfig,
    peers: &Arc<Peers>,
    own: &Member,
) -> Result<Option<BTreeMap<u64, Member>>, StartError> {
    let throttle = Throttle::default();
    loop {
        if home.is_member() {
            return Ok(None);
        }
        let why = match try_settle(home, config, peers, own).await? {
            Settlement::Settled(founding) => return Ok(founding),
            // If other nodes refuse this one, that is the reason, and not the answers that are missing because of it.
            Settlement::Waiting(why) => peers.refusal().unwrap_or(why),
        };
        if throttle.is_due() {
            if home.identity().has_belonged() {
                tracing::warn!(event = "forsaken", node = config.name, "waiting for the cluster: {why}");
            } else {
                tracing::info!(node = config.name, "waiting to belong to a cluster: {why}");
            }
        }
        sleep(config.timing.status / 4).await;
    }
}

/// The result of one try to belong to a cluster.
enum Settlement {
    Settled(Option<BTreeMap<u64, Member>>),
    Waiting(String),
}

async fn try_settle(
    home: &Home,
    config: &ConsensusConfig,
    peers: &Arc<Peers>,
    own: &Member,
) -> Result<Settlement, StartError> {
    let alone = config.is_alone();
    let answers = if alone { BTreeMap::new() } else { peers.ask_all().await };
    let own_cluster = home.identity().cluster.clone();
    // A member lists the members once its database is open. Before that the database may turn out to be damaged.
    let is_living = |status: &&StatusReply| status.member && !status.members.is_empty();
    let is_own = |status: &&StatusReply| own_cluster.is_empty() || status.cluster == own_cluster;
    if let Some(living) = answers.values().filter(is_living).find(is_own) {
        let Some(cluster) = ClusterId::from_bytes(&living.cluster) else {
            return Ok(Settlement::Waiting(format!("'{}' does not say which cluster it belongs to", living.name)));
        };
        config.check_durability(&format!("'{}'", living.name), living.durability)?;
        home.adopt(cluster, living.epoch, config.durability).await?;
        return Ok(Settlement::Settled(None));
    }
    if let Some(founding) = resume(home) {
        return Ok(Settlement::Settled(Some(founding)));
    }
    if home.identity().has_belonged() {
        let why = forsaken(home);
        return if alone { Err(StartError::Bereft(why)) } else { Ok(Settlement::Waiting(why)) };
    }
    if let Some(other) = answers.values().find(|status| status.belonged) {
        return Ok(Settlement::Waiting(format!(
            "the data directory of '{}' belongs to a cluster of which no member answers; see the log of that node",
            other.name
        )));
    }
    for status in answers.values() {
        config.check_durability(&format!("'{}'", status.name), status.durability)?;
    }
    let missing: Vec<&str> = config
        .members
        .iter()
        .filter(|member| member.name != config.name && !answers.contains_key(&member.addr))
        .map(|member| member.name.as_str())
        .collect();
    if !missing.is_empty() {
        return Ok(Settlement::Waiting(format!("no answer from {}", missing.join(", "))));
    }
    let founder = config.members.iter().map(|member| &member.name).min();
    if !alone && founder != Some(&config.name) {
        let founder = founder.map_or("", String::as_str);
        return Ok(Settlement::Waiting(format!("'{founder}' has not founded it yet")));
    }
    if config.begins_restored {
        return Err(StartError::Unborn);
    }
    found(home, config, peers, own, &answers).await
}

/// Founds a group beside `main` on this node, if the cluster was founded with this node and the group has nothing here.
///
/// Each node that the cluster was founded with writes the same first entry, and any of them may lead the group first:
/// Raft permits that as long as the entries are equal. The promise that the node has kept says who they are.
pub(crate) async fn found_beside_main(log: &GroupLog, store: &dyn StateMachine) -> Result<(), StartError> {
    let Some(promise) = kept_promise(log.home()) else { return Ok(()) };
    if log.last().is_some() || store.applied().log_id.is_some() {
        return Ok(());
    }
    let membership = Payload::Membership(encode_founders(&members_of(&promise)));
    Ok(log.append(vec![(LogId::default(), entry::encode(&membership))]).await?)
}

/// Returns the promise of this node, if its cluster was founded with it.
fn kept_promise(home: &Home) -> Option<Promise> {
    let identity = home.identity();
    identity.promise.clone().filter(|promise| promise.cluster == identity.cluster)
}

/// The reason why a node waits whose directory belonged to a cluster but has no log of it.
fn forsaken(home: &Home) -> String {
    let identity = home.identity();
    let cluster = if identity.cluster.is_empty() { String::new() } else { format!(" {}", identity.cluster()) };
    format!(
        "its data directory belongs to the cluster{cluster}, its log is lost, and no living member answers. It founds \
         no other cluster. If every node has lost its log or its database, restore a backup, or the contents of one of \
         the databases, including those that were put aside (db.damaged-*): see 'When nothing brings a node back' in \
         docs/operate.md. To give the data up, move the data directory away"
    )
}

/// Returns the members of a founding that this node had begun before it went down: all of them have promised, and this
/// node has recorded the cluster id.
fn resume(home: &Home) -> Option<BTreeMap<u64, Member>> {
    let promise = kept_promise(home)?;
    let founder = promise.members.iter().min_by(|a, b| a.name.cmp(&b.name))?;
    (founder.id == home.identity().id).then(|| members_of(&promise))
}

async fn found(
    home: &Home,
    config: &ConsensusConfig,
    peers: &Arc<Peers>,
    own: &Member,
    answers: &BTreeMap<String, StatusReply>,
) -> Result<Settlement, StartError> {
    let identity = home.identity();
    let highest = answers.values().map(|status| status.attempt).chain([promised_attempt(home)]).max().unwrap_or(0);
    let mut members = vec![info(identity.id, &own.name, &own.addr)];
    members.extend(answers.iter().map(|(addr, status)| info(status.id, &status.name, addr)));
    let promise =
        Promise { attempt: highest.saturating_add(1), cluster: ClusterId::draw(&home.env).to_bytes(), members };
    if let Err(why) = keep(home, config, promise.clone()).await? {
        return Ok(Settlement::Waiting(why));
    }
    for addr in answers.keys() {
        let link = peers.link(addr, 0, Purpose::Heartbeat);
        let Ok(body) = link.call(method::PROMISE, encode(&promise), PROMISE_MAX).await else {
            return Ok(Settlement::Waiting(format!("{addr} did not answer the request for its promise")));
        };
        match decode::<Promised>(body) {
            Ok(answer) if answer.kept => {}
            Ok(answer) => return Ok(Settlement::Waiting(format!("{addr} does not promise: {}", answer.why))),
            Err(error) => return Ok(Settlement::Waiting(format!("{addr}: {error}"))),
        }
    }
    let cluster = ClusterId::from_bytes(&promise.cluster).unwrap_or(ClusterId::NONE);
    home.adopt(cluster, FIRST_EPOCH, config.durability).await?;
    tracing::info!(%cluster, members = promise.members.len(), "founding the cluster");
    Ok(Settlement::Settled(Some(members_of(&promise))))
}

/// Makes a promise durable, or returns why this node does not promise.
pub(crate) async fn keep(
    home: &Home,
    config: &ConsensusConfig,
    promise: Promise,
) -> Result<Result<(), String>, WalError> {
    if config.begins_restored {
        return Ok(Err(
            "its cluster begins with a restored state, says its configuration; give both the same".to_owned()
        ));
    }
    if home.is_member() {
        return Ok(Err("it is a member of a cluster".to_owned()));
    }
    home.change(|identity| {
        if identity.has_belonged() {
            return Err("its data directory belongs to a cluster already".to_owned());
        }
        if !promise.members.iter().any(|member| member.id == identity.id) {
            return Err("the list of members does not contain its id".to_owned());
        }
        match &identity.promise {
            Some(kept) if *kept == promise => Ok(()),
            Some(kept) if kept.attempt >= promise.attempt => {
                Err(format!("it has already promised attempt {}", kept.attempt))
            }
            _ => {
                identity.promise = Some(promise);
                Ok(())
            }
        }
    })
    .await
}

/// Returns the attempt that this node has promised itself to, or 0.
pub(crate) fn promised_attempt(home: &Home) -> u64 {
    home.identity().promise.as_ref().map_or(0, |promise| promise.attempt)
}

fn info(id: u64, name: &str, addr: &str) -> MemberInfo {
    MemberInfo { id, name: name.to_owned(), addr: addr.to_owned(), voter: true }
}

fn members_of(promise: &Promise) -> BTreeMap<u64, Member> {
    promise
        .members
        .iter()
        .map(|member| (member.id, Member { name: member.name.clone(), addr: member.addr.clone() }))
        .collect()
}
