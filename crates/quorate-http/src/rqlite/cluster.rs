//! The endpoints that show the cluster, as far as clients read them.

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::Endpoint;
use super::asked::Asked;
use crate::cluster::{MemberView, View};
use crate::door::Doors;
use crate::message::{Answer, Content, answer};

const LICENSE: &str = include_str!("../../../../LICENSE");

/// Answers with one of the pages. A member whose URL is not known is shown at the one that was asked, because any node
/// serves any request.
pub(super) async fn page(doors: &Doors, endpoint: Endpoint, asked: &Asked, url: Option<String>) -> Answer {
    let mut view = match &doors.options().cluster {
        Some(cluster) => cluster.view().await,
        None => View::alone(),
    };
    for member in &mut view.members {
        member.api_addr = member.api_addr.take().or_else(|| url.clone());
    }
    let body = match endpoint {
        Endpoint::Ready => return ready(&view, asked),
        Endpoint::Licenses => return answer(StatusCode::OK, Content::Text, LICENSE),
        Endpoint::Leader => match view.leader() {
            Some(leader) => member(leader),
            None => json!({ "error": "no leader is known" }),
        },
        Endpoint::Nodes => nodes(&view, asked),
        _ => {
            let status = status(&view);
            let mut keys = asked.key.as_deref().into_iter().flat_map(|key| key.split('.'));
            keys.try_fold(&status, |found, key| found.get(key)).cloned().unwrap_or_default()
        }
    };
    let body = if asked.pretty { format!("{body:#}") } else { body.to_string() };
    answer(StatusCode::OK, Content::Json, body)
}

fn ready(view: &View, asked: &Asked) -> Answer {
    let has_leader = asked.noleader || view.leader().is_some();
    let is_ready = view.not_ready.is_empty() && has_leader;
    let sign = |is_well| if is_well { "[+]" } else { "[-]" };
    let mut text =
        format!("[+]node ok\n{}leader {}\n", sign(has_leader), if has_leader { "ok" } else { "does not exist" });
    let store = if view.not_ready.is_empty() { "ok".to_owned() } else { view.not_ready.join("; ") };
    text.push_str(&format!("{}store {store}\n", sign(view.not_ready.is_empty())));
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer(status, Content::Text, text)
}

fn nodes(view: &View, asked: &Asked) -> Value {
    if asked.version.as_deref() == Some("2") {
        return json!({ "nodes": view.members.iter().map(member).collect::<Vec<_>>() });
    }
    let by_name = view.members.iter().map(|one| (one.name.clone(), member(one)));
    Value::Object(by_name.collect::<Map<String, Value>>())
}

fn member(member: &MemberView) -> Value {
    json!({
        "id": member.name,
        "api_addr": member.api_addr.as_deref().unwrap_or_default(),
        "addr": member.addr,
        "voter": member.is_voter,
        "reachable": member.is_reachable,
        "leader": member.is_leader,
    })
}

fn status(view: &View) -> Value {
    let leader = view.leader();
    let nodes = view.members.iter().map(|member| {
        let suffrage = if member.is_voter { "Voter" } else { "Nonvoter" };
        json!({ "id": member.name, "addr": member.addr, "suffrage": suffrage })
    });
    let is_leader = leader.is_some_and(|leader| leader.name == view.name);
    json!({
        "build": { "version": concat!("quorate-", env!("CARGO_PKG_VERSION")) },
        "node": { "name": view.name },
        "store": {
            "node_id": view.name,
            "leader": {
                "node_id": leader.map(|leader| leader.name.as_str()).unwrap_or_default(),
                "addr": leader.map(|leader| leader.addr.as_str()).unwrap_or_default(),
            },
            "nodes": nodes.collect::<Vec<_>>(),
            "raft": { "state": if is_leader { "Leader" } else { "Follower" } },
            "ready": view.not_ready.is_empty(),
        },
    })
}
