//! The shop: what it does with its database. Nothing here knows HTTP, and nothing else knows SQL.

use std::time::Duration;

use quorate::{Error, Level, MigrateError, Optimistic, Params, Sql, migrations, params};
use serde::{Deserialize, Serialize};

/// Orders that one page of a listing has at most.
const PAGE: i64 = 500;
/// Messages that are taken from the outbox at a time.
const BATCH: i64 = 200;

/// So much of an item.
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

/// What became of an order.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is placed, now or before.
    Placed,
    /// There is too little of an item, and nothing was done.
    SoldOut(String),
}

/// A message of the outbox.
pub struct Letter {
    pub id: i64,
    pub order_id: String,
}

/// Why an order was not placed.
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
    /// The shop in a database, whose tables are made if they are not there; all nodes may do so at once.
    pub async fn open(sql: Sql) -> Result<Self, MigrateError> {
        sql.migrate(&migrations!("../../examples/shop/schema")).await?;
        Ok(Self(sql))
    }

    /// The same, whose calls fail after so long.
    pub fn with_patience(&self, time: Duration) -> Self {
        Self(self.0.with_deadline(time))
    }

    /// Takes an order, once: the same order again is answered as the first time.
    ///
    /// The closure runs on this node's own data, without a lock, and again if what it read has changed meanwhile: so
    /// nothing is sold twice, whichever nodes sell. That it begins with all that was acknowledged is for those that
    /// write nothing in the end: of two who send the same order, none is told that it is sold out to the other.
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

    /// An order, if there is one of this id.
    pub async fn find(&self, id: &str) -> Result<Option<Order>, Error> {
        Ok(self.page("o.id = ?1", params![id, 1]).await?.pop())
    }

    /// Orders behind the one of this id, in the order of their ids; none behind the last.
    pub async fn orders(&self, after: &str) -> Result<Vec<Order>, Error> {
        self.page("o.id > ?1", params![after, PAGE]).await
    }

    async fn page(&self, which: &str, params: Params) -> Result<Vec<Order>, Error> {
        let lines =
            "SELECT json_group_array(json_object('item', item, 'count', count)) FROM lines WHERE order_id = o.id";
        let query = format!("SELECT id, customer, ({lines}) FROM orders o WHERE {which} ORDER BY id LIMIT ?2");
        let rows: Vec<(String, String, String)> = self.0.at(Level::Linearizable).query_as(query, params).await?;
        let order = |(id, customer, lines): (String, String, String)| {
            // SQLite has made the text.
            Order { id, customer, lines: serde_json::from_str(&lines).unwrap_or_default() }
        };
        Ok(rows.into_iter().map(order).collect())
    }

    /// What is left of everything.
    pub async fn stock(&self) -> Result<Vec<(String, i64)>, Error> {
        self.0.at(Level::Linearizable).query_as("SELECT item, left FROM stock ORDER BY item", ()).await
    }

    /// From now on so much of an item is left.
    pub async fn set_stock(&self, item: &str, left: i64) -> Result<(), Error> {
        let upsert = "INSERT INTO stock VALUES (?1, ?2) ON CONFLICT DO UPDATE SET left = excluded.left";
        self.0.execute(upsert, (item, left)).await.map(drop)
    }

    /// The oldest messages that nobody is known to have got.
    pub async fn letters(&self) -> Result<Vec<Letter>, Error> {
        let rows = self.0.query_as("SELECT id, order_id FROM outbox ORDER BY id LIMIT ?", (BATCH,)).await?;
        Ok(rows.into_iter().map(|(id, order_id)| Letter { id, order_id }).collect())
    }

    /// These were got.
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
    // Everything was read; what is written from here on takes effect together, and only if all of that still holds.
    tx.execute("INSERT INTO orders (id, customer) VALUES (?, ?)", (order.id.as_str(), order.customer.as_str()))?;
    for Line { item, count } in &order.lines {
        tx.execute("UPDATE stock SET left = left - ? WHERE item = ?", (*count, item.as_str()))?;
        tx.execute("INSERT INTO lines VALUES (?, ?, ?)", (order.id.as_str(), item.as_str(), *count))?;
    }
    tx.execute("INSERT INTO outbox (order_id) VALUES (?)", (order.id.as_str(),))?;
    Ok(())
}
