//! The service. Each process embeds a node, answers HTTP requests, and delivers the outbox while its node leads.
//!
//! | request | answer |
//! |---|---|
//! | `POST /orders` | 201 placed, now or before; 409 an item is sold out; 503 retry with the same id |
//! | `GET /orders/ID` | 200 the order; 404 no such order |
//! | `GET /orders/after/ID` | 200 a page of the orders after this id |
//! | `GET /stock` | 200 the stock of each item |
//! | `PUT /stock` | 200 the stock of an item is set |

use std::path::Path;
use std::time::Duration;

use hyper::{Method, StatusCode};
use quorate::{Config, Error, Node};
use serde_json::json;
use tokio::net::TcpListener;

use crate::Result;
use crate::http::{Call, Client, Reply, serve};
use crate::shop::{Answer, Line, Order, Shop};

/// The deadline of a request, after which its client must retry.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the start may take, which needs a majority of the nodes.
const START_MAX: Duration = Duration::from_secs(60);
/// The maximum number of lines of an order.
const LINES_MAX: usize = 100;
/// The pause after which the outbox is read again if it was empty or its messages could not be delivered.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs until it is killed. Letters about orders are sent to `hook` with `POST /letters`.
pub async fn run(config: &Path, listen: &str, hook: &str) -> Result<()> {
    let node = Node::start(Config::load(config)?).await?;
    let shop = Shop::open(node.sql().with_deadline(START_MAX)).await?.with_patience(PATIENCE);
    tokio::spawn(deliver(node, shop.clone(), hook.to_owned()));
    println!("the shop is open on {listen}");
    let answer = move |call| {
        let shop = shop.clone();
        async move { answer(&shop, call).await.unwrap_or_else(|error| failed(&error)) }
    };
    serve(TcpListener::bind(listen).await?, answer).await
}

async fn answer(shop: &Shop, call: Call) -> Result<Reply, Error> {
    let path: Vec<&str> = call.path.split('/').skip(1).collect();
    Ok(match (&call.method, path.as_slice()) {
        (&Method::POST, ["orders"]) => match call.read() {
            Ok(order) => place(shop, order).await?,
            Err(reply) => reply,
        },
        (&Method::GET, ["orders", id]) => match shop.find(id).await? {
            Some(order) => (StatusCode::OK, json!(order)),
            None => (StatusCode::NOT_FOUND, json!("there is no such order")),
        },
        (&Method::GET, ["orders", "after", id]) => (StatusCode::OK, json!(shop.orders(id).await?)),
        (&Method::GET, ["stock"]) => (StatusCode::OK, json!(shop.stock().await?)),
        (&Method::PUT, ["stock"]) => match call.read() {
            Ok(Line { item, count }) => (StatusCode::OK, json!(shop.set_stock(&item, count).await?)),
            Err(reply) => reply,
        },
        _ => (StatusCode::NOT_FOUND, json!("the paths are /orders and /stock")),
    })
}

async fn place(shop: &Shop, order: Order) -> Result<Reply, Error> {
    let is_sound =
        |line: &Line| line.count > 0 && order.lines.iter().filter(|other| other.item == line.item).count() == 1;
    if order.id.is_empty()
        || order.lines.is_empty()
        || order.lines.len() > LINES_MAX
        || !order.lines.iter().all(is_sound)
    {
        let text =
            format!("an order must have an id and 1 to {LINES_MAX} lines with different items and counts above 0");
        return Ok((StatusCode::BAD_REQUEST, json!(text)));
    }
    Ok(match shop.order(&order).await? {
        Answer::Placed => (StatusCode::CREATED, json!(order.id)),
        Answer::SoldOut(item) => (StatusCode::CONFLICT, json!(format!("not enough {item} in stock"))),
    })
}

/// Returns the answer for a request that failed. The client may retry it in any case, because an order with the same id
/// is placed only once.
fn failed(error: &Error) -> Reply {
    let is_passing = error.is_retryable() || matches!(error, Error::Unknown(_));
    let status = if is_passing { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, json!(error.to_string()))
}

/// Delivers messages, the oldest first and each at least once: a message is deleted only after it was received. Only
/// the leader delivers; during a change of leaders two nodes may do so for a moment.
async fn deliver(node: Node, shop: Shop, hook: String) {
    let mut client = Client::new(&hook);
    loop {
        if !node.is_leader() || deliver_some(&shop, &mut client).await.unwrap_or(0) == 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn deliver_some(shop: &Shop, client: &mut Client) -> Result<usize> {
    let letters = shop.letters().await?;
    let orders: Vec<&str> = letters.iter().map(|letter| letter.order_id.as_str()).collect();
    if orders.is_empty() {
        return Ok(0);
    }
    match client.call(Method::POST, "/letters", &orders).await? {
        (StatusCode::OK, _) => {
            let count = letters.len();
            shop.delivered(letters.into_iter().map(|letter| letter.id).collect()).await?;
            Ok(count)
        }
        (status, _) => Err(format!("the hook answered {status}").into()),
    }
}
