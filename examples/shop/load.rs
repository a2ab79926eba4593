//! The customers. They order from all nodes at once, retry if they get no answer, and sometimes send an order twice. At
//! the end the answers that they got are compared with what each node holds, and with the letters that the hook
//! received.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::Result;
use crate::http::{Call, Client, Reply, serve};
use crate::shop::{Line, Order};

/// The number of items, and the stock of each for every thousand orders, which is not quite enough.
const ITEMS: u64 = 40;
const STOCK_PER_THOUSAND: u64 = 90;
/// The number of concurrent customers.
const CUSTOMERS: u64 = 24;
/// One order in this many is sent to two nodes at once, and one in this many is looked up on another node.
const TWICE_ONE_IN: u64 = 10;
const LOOKED_UP_ONE_IN: u64 = 5;
/// How long a request is retried, and the pause between retries.
const PATIENCE: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(30);

/// The answers that the customers got, and the letters that the hook received.
#[derive(Default)]
struct Results {
    placed: BTreeMap<String, Order>,
    sold_out: Vec<String>,
    /// The number of retries.
    again: u64,
    /// How often the hook received a letter for each order.
    letters: BTreeMap<String, u64>,
    slowest: Duration,
    wrong: Vec<String>,
}

/// The state that all customers share.
#[derive(Clone)]
struct Shared {
    shops: Arc<Vec<String>>,
    orders: u64,
    next: Arc<AtomicU64>,
    results: Arc<Mutex<Results>>,
}

/// Sends the orders, compares the results, and prints them. Returns an error if something is wrong.
pub async fn run(shops: Vec<String>, hook: &str, orders: u64) -> Result<()> {
    let shared = Shared { shops: Arc::new(shops), orders, next: Arc::default(), results: Arc::default() };
    let letters = shared.clone();
    let take = move |call| std::future::ready(letters.take_letters(&call));
    tokio::spawn(serve(TcpListener::bind(hook).await?, take));
    let stock = (orders * STOCK_PER_THOUSAND / 1000).max(1);
    for item in 0..ITEMS {
        let line = Line { item: name(item), count: i64::try_from(stock)? };
        shared.insist(&mut shared.clients(), item, Method::PUT, "/stock", &line).await?;
    }
    let begun = Instant::now();
    let mut customers = JoinSet::new();
    (0..CUSTOMERS).for_each(|number| drop(customers.spawn(shared.clone().shop(number))));
    while let Some(ended) = customers.join_next().await {
        ended??;
    }
    let took = begun.elapsed();
    shared.compare(i64::try_from(stock)?).await?;
    let results = shared.results();
    println!("{orders} orders in {:.1} s: {results}", took.as_secs_f64());
    results.wrong.iter().for_each(|wrong| println!("WRONG: {wrong}"));
    if results.wrong.is_empty() { Ok(()) } else { Err("the shop is not correct".into()) }
}

fn name(item: u64) -> String {
    format!("item-{item:02}")
}

/// Returns a pseudo-random number that depends only on `number` (splitmix64).
fn draw(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the order with a number: one to three items, one to three of each.
fn order(number: u64, customer: u64) -> Order {
    let mut lines: Vec<Line> = Vec::new();
    for line in 0..=draw(number) % 3 {
        let drawn = draw(number ^ (line + 1) << 40);
        let item = name(drawn % ITEMS);
        if lines.iter().all(|line| line.item != item) {
            lines.push(Line { item, count: i64::try_from(drawn / ITEMS % 3).unwrap_or(0) + 1 });
        }
    }
    lines.sort_by(|one, other| one.item.cmp(&other.item));
    Order { id: format!("order-{number:08}"), customer: format!("customer-{customer:02}"), lines }
}

impl Shared {
    fn results(&self) -> std::sync::MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> Vec<Client> {
        self.shops.iter().map(|addr| Client::new(addr)).collect()
    }

    /// Runs one customer.
    async fn shop(self, customer: u64) -> Result<()> {
        let (mut clients, mut others) = (self.clients(), self.clients());
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.orders {
                return Ok(());
            }
            let (order, first) = (order(number, customer), draw(number) >> 32);
            let begun = Instant::now();
            let (status, answer) = if draw(number ^ 1 << 60).is_multiple_of(TWICE_ONE_IN) {
                let one = self.insist(&mut clients, first, Method::POST, "/orders", &order);
                let other = self.insist(&mut others, first + 1, Method::POST, "/orders", &order);
                let (one, other) = tokio::try_join!(one, other)?;
                if one.0 != other.0 {
                    self.results().wrong.push(format!("{} was answered by {one:?} and by {other:?}", order.id));
                }
                one
            } else {
                self.insist(&mut clients, first, Method::POST, "/orders", &order).await?
            };
            self.note(order.clone(), status, &answer, begun.elapsed());
            if draw(number ^ 1 << 61).is_multiple_of(LOOKED_UP_ONE_IN) {
                self.look_up(&mut others, first + 2, &order, status).await?;
            }
        }
    }

    fn note(&self, order: Order, status: StatusCode, answer: &Value, took: Duration) {
        let mut results = self.results();
        results.slowest = results.slowest.max(took);
        match status {
            StatusCode::CREATED => drop(results.placed.insert(order.id.clone(), order)),
            StatusCode::CONFLICT => results.sold_out.push(order.id),
            other => results.wrong.push(format!("{} was answered by {other}: {answer}", order.id)),
        }
    }

    /// Checks that a placed order is present on the next node, and that a refused one is not.
    async fn look_up(&self, clients: &mut [Client], from: u64, order: &Order, answered: StatusCode) -> Result<()> {
        let path = format!("/orders/{}", order.id);
        let (status, found) = self.insist(clients, from, Method::GET, &path, &()).await?;
        let is_right = match answered {
            StatusCode::CREATED => status == StatusCode::OK && found == json!(order),
            _ => status == StatusCode::NOT_FOUND,
        };
        if !is_right {
            self.results()
                .wrong
                .push(format!("{} was answered by {answered}, but a later read by {status}: {found}", order.id));
        }
        Ok(())
    }

    /// Sends a request to one node after the other until one answers.
    async fn insist(
        &self,
        clients: &mut [Client],
        from: u64,
        method: Method,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<Reply> {
        let (begun, count) = (Instant::now(), u64::try_from(clients.len())?);
        for attempt in from.. {
            let client = &mut clients[usize::try_from(attempt % count)?];
            match client.call(method.clone(), path, body).await {
                Ok(reply) if reply.0 != StatusCode::SERVICE_UNAVAILABLE => return Ok(reply),
                _ if begun.elapsed() > PATIENCE => break,
                _ => {}
            }
            self.results().again += 1;
            tokio::time::sleep(PAUSE).await;
        }
        Err(format!("no node answered {method} {path} within {PATIENCE:?}").into())
    }

    /// Receives letters, as the hook.
    fn take_letters(&self, call: &Call) -> Reply {
        let orders: Vec<String> = match call.read() {
            Ok(orders) => orders,
            Err(reply) => return reply,
        };
        let mut results = self.results();
        for order in orders {
            *results.letters.entry(order).or_default() += 1;
        }
        (StatusCode::OK, json!(null))
    }

    /// Compares what each node holds with the answers of the customers and the letters of the hook.
    async fn compare(&self, stock: i64) -> Result<()> {
        let complete = async {
            while !self.results().is_complete() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        // Missing letters are reported below.
        let _ = tokio::time::timeout(PATIENCE, complete).await;
        for addr in self.shops.iter() {
            let (orders, left) = self.held(addr).await?;
            let mut results = self.results();
            let mut wrong = Vec::new();
            if orders != results.placed {
                let lost = results.placed.keys().filter(|id| !orders.contains_key(*id)).count();
                let more = orders.keys().filter(|id| !results.placed.contains_key(*id)).count();
                wrong.push(format!("{addr} holds {} orders: {lost} are lost, {more} were never placed", orders.len()));
            }
            let mut sold: BTreeMap<&str, i64> = BTreeMap::new();
            for line in orders.values().flat_map(|order| &order.lines) {
                *sold.entry(&line.item).or_default() += line.count;
            }
            for (item, left) in &left {
                let sold = sold.get(item.as_str()).copied().unwrap_or(0);
                if *left < 0 || sold + left != stock {
                    wrong.push(format!("{addr}: of {stock} {item} {sold} are sold and {left} are left"));
                }
            }
            let letters = results.letters.keys();
            if !letters.eq(results.placed.keys()) {
                wrong.push(format!("the hook received letters for {} orders", results.letters.len()));
            }
            results.wrong.extend(wrong);
        }
        Ok(())
    }

    /// Returns all orders of a node, and its stock.
    async fn held(&self, addr: &str) -> Result<(BTreeMap<String, Order>, Vec<(String, i64)>)> {
        let mut clients = [Client::new(addr)];
        let mut orders = BTreeMap::new();
        let mut after = String::new();
        loop {
            let path = format!("/orders/after/{after}");
            let (_, page) = self.insist(&mut clients, 0, Method::GET, &path, &()).await?;
            let page: Vec<Order> = serde_json::from_value(page)?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.id);
            for order in page {
                if let Some(twice) = orders.insert(order.id.clone(), order) {
                    self.results().wrong.push(format!("{addr} lists {} twice", twice.id));
                }
            }
        }
        let (_, left) = self.insist(&mut clients, 0, Method::GET, "/stock", &()).await?;
        Ok((orders, serde_json::from_value(left)?))
    }
}

impl Results {
    /// Whether the hook received a letter for every order that was placed.
    fn is_complete(&self) -> bool {
        self.placed.keys().all(|id| self.letters.contains_key(id))
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = self.letters.values().map(|count| count - 1).sum::<u64>();
        write!(
            f,
            "{} placed, {} sold out, {} requests sent again, slowest {} ms, {} letters of which {again} came again",
            self.placed.len(),
            self.sold_out.len(),
            self.again,
            self.slowest.as_millis(),
            self.letters.len(),
        )
    }
}
