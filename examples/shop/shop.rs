//! The shop's operations on its database. This module does not use HTTP, and no other module uses SQL.

use std::time::Duration;

use quorate::sql::MigrateError;
use quorate::{Error, Level, Optimistic, Params, Sql, migrations, params};
use serde::{Deserialize, Serialize};

/// The maximum number of orders on a page of a listing.
const PAGE: i64 = 500;
/// The maximum number of messages that are read from the outbox at a time.
const BATCH: i64 = 200;

/// A quantity of an item.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Line {
    pub item: String,
    pub count: i64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Order {
    pub id: String,
    pub customer: String,
    pub lines: Vec<Line>,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The order is placed, now or before.
    Placed,
    /// There is not enough of an item, and nothing was changed.
    SoldOut(String),
}

/// A message of the outbox.
pub struct Letter {
    pub id: i64,
    pub order_id: String,
}

/// The reason why an order was not placed.
enum Refused {
    SoldOut(String),
    Database(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

#[derive(Clone)]
pub struct Shop(Sql);

impl Shop {
    /// Opens the shop in a database, and creates its tables if they do not exist. All nodes may do this at the same
    /// time.
    pub async fn open(sql: Sql) -> Result<Self, MigrateError> {
        sql.migrate(&migrations!("../../examples/shop/schema")).await?;
        Ok(Self(sql))
    }

    /// Returns the same shop, whose calls fail after `time`.
    pub fn with_patience(&self, time: Duration) -> Self {
        Self(self.0.with_deadline(time))
    }

    /// Places an order, once: if the same order is sent again, it gets the same answer.
    ///
    /// The closure runs on this node's own data, without a lock, and runs again if what it read has changed in the
    /// meantime. So no item is sold twice, even if several nodes sell at the same time. A closure that writes nothing
    /// is not checked in this way: its answer is as fresh as its level. The level `Linearizable` keeps a node that lags
    /// from answering "sold out" from an old state to an order that another node has already placed.
    pub async fn order(&self, order: &Order) -> Result<Answer, Error> {
        let place = |tx: Optimistic| {
            let order = order.clone();
            async move { place(&tx, &order).await }
        };
        match self.0.at(Level::Linearizable).transact(place).await {
            Ok(_) => Ok(Answer::Placed),
            Err(Refused::SoldOut(item)) => Ok(Answer::SoldOut(item)),
            Err(Refused::Database(error)) => Err(error),
        }
    }

    /// Returns the order with this id, if there is one.
    pub async fn find(&self, id: &str) -> Result<Option<Order>, Error> {
        Ok(self.page("o.id = ?1", params![id, 1]).await?.pop())
    }

    /// Returns a page of the orders after this id, sorted by id; it is empty after the last order.
    pub async fn orders(&self, after: &str) -> Result<Vec<Order>, Error> {
        self.page("o.id > ?1", params![after, PAGE]).await
    }

    async fn page(&self, which: &str, params: Params) -> Result<Vec<Order>, Error> {
        let lines =
            "SELECT json_group_array(json_object('item', item, 'count', count)) FROM lines WHERE order_id = o.id";
        let query = format!("SELECT id, customer, ({lines}) FROM orders o WHERE {which} ORDER BY id LIMIT ?2");
        let rows: Vec<(String, String, String)> = self.0.at(Level::Linearizable).query_as(query, params).await?;
        let order = |(id, customer, lines): (String, String, String)| {
            // SQLite wrote this JSON, so it is valid.
            Order { id, customer, lines: serde_json::from_str(&lines).unwrap_or_default() }
        };
        Ok(rows.into_iter().map(order).collect())
    }

    /// Returns the stock of all items.
    pub async fn stock(&self) -> Result<Vec<(String, i64)>, Error> {
        self.0.at(Level::Linearizable).query_as("SELECT item, left FROM stock ORDER BY item", ()).await
    }

    /// Sets the stock of an item.
    pub async fn set_stock(&self, item: &str, left: i64) -> Result<(), Error> {
        let upsert = "INSERT INTO stock VALUES (?1, ?2) ON CONFLICT DO UPDATE SET left = excluded.left";
        self.0.execute(upsert, (item, left)).await.map(drop)
    }

    /// Returns the oldest messages that are not known to be delivered.
    pub async fn letters(&self) -> Result<Vec<Letter>, Error> {
        let rows = self.0.query_as("SELECT id, order_id FROM outbox ORDER BY id LIMIT ?", (BATCH,)).await?;
        Ok(rows.into_iter().map(|(id, order_id)| Letter { id, order_id }).collect())
    }

    /// Deletes messages that were delivered.
    pub async fn delivered(&self, letters: Vec<i64>) -> Result<(), Error> {
        self.0.execute_many("DELETE FROM outbox WHERE id = ?", letters.into_iter().map(|id| (id,))).await.map(drop)
    }
}

async fn place(tx: &Optimistic, order: &Order) -> Result<(), Refused> {
    let placed = tx.query_optional::<i64>("SELECT 1 FROM orders WHERE id = ?", (order.id.as_str(),)).await?;
    if placed.is_some() {
        return Ok(());
    }
    for Line { item, count } in &order.lines {
        let left = tx.query_optional::<i64>("SELECT left FROM stock WHERE item = ?", (item.as_str(),)).await?;
        if left.unwrap_or(0) < *count {
            return Err(Refused::SoldOut(item.clone()));
        }
    }
    // All reads are done. The following writes take effect together, and only if nothing that was read has changed.
    tx.execute("INSERT INTO orders (id, customer) VALUES (?, ?)", (order.id.as_str(), order.customer.as_str()))?;
    for Line { item, count } in &order.lines {
        tx.execute("UPDATE stock SET left = left - ? WHERE item = ?", (*count, item.as_str()))?;
        tx.execute("INSERT INTO lines VALUES (?, ?, ?)", (order.id.as_str(), item.as_str(), *count))?;
    }
    tx.execute("INSERT INTO outbox (order_id) VALUES (?)", (order.id.as_str(),))?;
    Ok(())
}
