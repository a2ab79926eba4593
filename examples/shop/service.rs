//! The service: one process of it embeds a node, answers HTTP, and delivers the outbox while it leads.
//!
//! | asked | answered |
//! |---|---|
//! | `POST /orders` | 201 placed, now or before; 409 an item is sold out; 503 ask again with the same id |
//! | `GET /orders/ID` | 200 the order; 404 |
//! | `GET /orders/after/ID` | 200 orders behind this id, a page of them |
//! | `GET /stock` | 200 what is left, by item |
//! | `PUT /stock` | 200 so much is left of an item from now on |

use std::path::Path;
use std::time::Duration;

use hyper::{Method, StatusCode};
use quorate::{Config, Error, Node};
use serde_json::json;
use tokio::net::TcpListener;

use crate::Result;
use crate::http::{Asked, Client, Reply, serve};
use crate::shop::{Answer, Line, Order, Shop};

/// How long a request may try before its client is told to ask again.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long starting may take: a majority of the nodes has to be there.
const START_MAX: Duration = Duration::from_secs(60);
/// Lines of an order.
const LINES_MAX: usize = 100;
/// How long the outbox is left alone when it is empty, or nobody takes its messages.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs until it is killed. What is to be told of orders goes to `hook`, by `POST /letters`.
pub async fn run(config: &Path, listen: &str, hook: &str) -> Result<()> {
    let node = Node::start(Config::load(config)?).await?;
    let shop = Shop::open(node.sql().with_deadline(START_MAX)).await?.with_patience(PATIENCE);
    tokio::spawn(deliver(node, shop.clone(), hook.to_owned()));
    println!("the shop is open on {listen}");
    let answer = move |asked| {
        let shop = shop.clone();
        async move { answer(&shop, asked).await.unwrap_or_else(|error| failed(&error)) }
    };
    serve(TcpListener::bind(listen).await?, answer).await
}

async fn answer(shop: &Shop, asked: Asked) -> Result<Reply, Error> {
    let path: Vec<&str> = asked.path.split('/').skip(1).collect();
    Ok(match (&asked.method, path.as_slice()) {
        (&Method::POST, ["orders"]) => match asked.read() {
            Ok(order) => place(shop, order).await?,
            Err(reply) => reply,
        },
        (&Method::GET, ["orders", id]) => match shop.find(id).await? {
            Some(order) => (StatusCode::OK, json!(order)),
            None => (StatusCode::NOT_FOUND, json!("there is no such order")),
        },
        (&Method::GET, ["orders", "after", id]) => (StatusCode::OK, json!(shop.orders(id).await?)),
        (&Method::GET, ["stock"]) => (StatusCode::OK, json!(shop.stock().await?)),
        (&Method::PUT, ["stock"]) => match asked.read() {
            Ok(Line { item, count }) => (StatusCode::OK, json!(shop.set_stock(&item, count).await?)),
            Err(reply) => reply,
        },
        _ => (StatusCode::NOT_FOUND, json!("there is /orders and /stock")),
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
        let text = format!("an order has an id and 1 to {LINES_MAX} lines, each of another item and at least 1 of it");
        return Ok((StatusCode::BAD_REQUEST, json!(text)));
    }
    Ok(match shop.order(&order).await? {
        Answer::Placed => (StatusCode::CREATED, json!(order.id)),
        Answer::SoldOut(item) => (StatusCode::CONFLICT, json!(format!("there is too little {item}"))),
    })
}

/// Whatever became of a request that failed, it may be asked again: an order of the same id is placed once.
fn failed(error: &Error) -> Reply {
    let is_passing = error.is_retryable() || matches!(error, Error::Unknown(_));
    let status = if is_passing { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, json!(error.to_string()))
}

/// Delivers messages, the oldest first, each at least once: it is forgotten only when it was got. The node that leads
/// does so; two may, for a moment.
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
    match client.ask(Method::POST, "/letters", &orders).await? {
        (StatusCode::OK, _) => {
            let got = letters.len();
            shop.delivered(letters.into_iter().map(|letter| letter.id).collect()).await?;
            Ok(got)
        }
        (status, _) => Err(format!("the hook answered {status}").into()),
    }
}
