//! Who may do what over the doors: each endpoint without a login, with a wrong one, and with each role.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Reply, Server, execute};
use quorate::admin::Login;
use quorate::users::UserRole;
use serde_json::{Value, json};

/// The endpoints that answer everyone.
const PUBLIC: [&str; 5] = ["/", "/v2", "/v3", "/openapi.json", "/readyz"];

/// The endpoints of which a request with no content needs more than the role `read`.
const FOR_WRITERS: [&str; 4] = ["/db/execute", "/db/load", "/db/backup", "/boot"];
const FOR_ADMINS: [&str; 2] = ["/db/backup", "/boot"];

/// The methods of endpoints; the description lists other things beside them.
const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// Sends statements as one request of each protocol, as a user.
fn run(server: &Server, login: &str, sql: &str) -> [Value; 2] {
    let headers = [("authorization", login), ("content-type", "application/json")];
    let body = json!({ "requests": [execute(sql, json!([])), { "type": "close" }] }).to_string();
    let hrana = server.send("POST", "/v3/pipeline", &headers, body.as_bytes());
    let rqlite = server.send("POST", "/db/request", &headers, json!([sql]).to_string().as_bytes());
    [hrana, rqlite].map(|reply| if reply.status == 200 { reply.json() } else { json!(reply.status) })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_endpoint_asks_for_the_role_that_it_needs() {
    let (server, [read, write, admin]) = Server::with_users().await;
    let described = server.get("/openapi.json").json();
    for (path, operations) in described["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().filter(|method| METHODS.contains(&method.as_str())) {
            let method = method.to_ascii_uppercase();
            let ask = |login: Option<&str>| -> Reply {
                let headers: Vec<_> = login.into_iter().map(|login| ("authorization", login)).collect();
                server.send(&method, path, &headers, b"?")
            };
            if PUBLIC.contains(&path.as_str()) {
                assert_eq!(ask(None).status, 200, "{method} {path}");
                continue;
            }
            let without = ask(None);
            assert_eq!(without.status, 401, "{method} {path}");
            assert!(without.headers.contains_key("www-authenticate"));
            let roles = [&read, &write, &admin].map(|token| ask(Some(&bearer(token))).status != 403);
            let changes = ["/keys", "/locks"].iter().any(|of| path.starts_with(of)) && method != "GET";
            let for_writers = FOR_WRITERS.contains(&path.as_str()) || changes;
            let for_admins = FOR_ADMINS.contains(&path.as_str());
            assert_eq!(roles, [!for_writers, !for_admins, true], "{method} {path}");
        }
    }
    // Failures slow down, so there are few wrong logins here.
    for wrong in ["Bearer quorate_0", "Digest a=b", "Basic ?"] {
        assert_eq!(server.send("GET", "/nodes", &[("authorization", wrong)], b"").status, 401, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_need_the_role_of_what_they_do() {
    let (server, [read, write, _]) = Server::with_users().await;
    for sql in ["CREATE TABLE t (a)", "PRAGMA user_version = 7"] {
        let [hrana, rqlite] = run(&server, &bearer(&read), sql);
        assert_eq!(hrana["results"][0]["error"]["code"], "SQLITE_AUTH", "{sql}");
        assert_eq!(rqlite, json!(403), "{sql}");
    }
    let body = json!({ "requests": [execute("BEGIN IMMEDIATE", json!([]))] }).to_string();
    let begun = server.send("POST", "/v3/pipeline", &[("authorization", &bearer(&read))], body.as_bytes());
    assert_eq!(begun.json()["results"][0]["error"]["code"], "SQLITE_AUTH");
    let made = run(&server, &bearer(&write), "CREATE TABLE IF NOT EXISTS t (a)");
    assert!(made.iter().all(|answer| !answer.to_string().contains("error")), "{made:?}");
    let seen = run(&server, &bearer(&read), "SELECT count(*) AS n FROM t");
    assert!(seen.iter().all(|answer| !answer.to_string().contains("error")), "{seen:?}");
    assert_eq!(server.count("t").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_and_a_token_as_a_password_let_in() {
    let (server, [read, ..]) = Server::with_users().await;
    let admin = server.node.admin();
    admin.add_user("ann", UserRole::Read, Login::Password("correct horse".to_owned())).await.unwrap();
    let status = |login: &str| server.send("GET", "/nodes", &[("authorization", login)], b"").status;
    assert_eq!(status(&basic("ann", "correct horse")), 200);
    assert_eq!(status(&basic("anyone", &read)), 200);
    assert_eq!(status(&basic("ann", "wrong horse")), 401);
    admin.remove_user("ann").await.unwrap();
    assert_eq!(status(&basic("ann", "correct horse")), 401);
}

/// Some clients that were given no token send an empty one.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_token_is_none() {
    let ask = |server: &Server| server.send("GET", "/db/query?q=SELECT%201", &[("authorization", "Bearer ")], b"");
    assert_eq!(ask(&Server::without_users().await).status, 200);
    let (server, _) = Server::with_users().await;
    let refused = ask(&server);
    assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("UNAUTHORIZED")));
    assert!(refused.json()["message"].as_str().unwrap().starts_with("log in"), "nothing was shown");
}

/// A baton is of no use to someone else, nor to its owner once the role has changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_belongs_to_the_user_who_has_opened_it() {
    let (server, [_, write, admin]) = Server::with_users().await;
    let send = |token: &str, baton: Option<&str>| -> Reply {
        let body = json!({ "baton": baton, "requests": [execute("SELECT 1", json!([]))] }).to_string();
        server.send("POST", "/v3/pipeline", &[("authorization", &bearer(token))], body.as_bytes())
    };
    let baton = |reply: &Reply| reply.json()["baton"].as_str().unwrap().to_owned();
    let mine = baton(&send(&write, None));
    let stolen = send(&admin, Some(&mine));
    assert_eq!((stolen.status, &stolen.json()["code"]), (400, &json!("BATON_INVALID")));
    let again = send(&write, Some(&mine));
    assert_eq!(again.status, 200);
    server.node.admin().set_role("write", UserRole::Read).await.unwrap();
    assert_eq!(send(&write, Some(&baton(&again))).json()["code"], "BATON_INVALID");
}
