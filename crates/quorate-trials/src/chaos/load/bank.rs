//! A bank: a transfer is one batch that adds to an account, writes to the ledger, and takes from another account. A
//! constraint refuses to take more than there is, and then the whole batch must be undone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorate::params;
use quorate_history::bank::{Access, Transfer};

use super::{Client, Result, int};

pub const TABLES: &[&str] = &[
    "CREATE TABLE accounts (account INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0))",
    "CREATE TABLE ledger (number INTEGER NOT NULL)",
];

/// The initial balances of the accounts.
pub const AT_FIRST: [i64; 8] = [100; 8];
/// The largest amount of a transfer: more than an account often has.
const AMOUNT_MAX: u64 = 80;
/// More rows than a ledger ever has, and more bytes than they take.
const BOOKS_MAX: (usize, usize) = (10_000_000, 1 << 30);

#[derive(Clone, Default)]
pub struct Bank {
    number: Arc<AtomicU64>,
}

impl Bank {
    /// Opens the accounts.
    pub async fn open(&self, client: &Client) -> Result<()> {
        let rows = AT_FIRST.into_iter().zip(0_i64..).map(|(balance, account)| (account, balance));
        client.patient().execute_many("INSERT INTO accounts VALUES (?, ?)", rows).await?;
        Ok(())
    }

    pub async fn step(&self, client: &Client) {
        let op = if client.rng.chance(0.7) {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            let transfer = random_transfer(client);
            let (from, to) = (int(transfer.from as u64), int(transfer.to as u64));
            let batch = [
                ("UPDATE accounts SET balance = balance + ? WHERE account = ?", params![transfer.amount, to]),
                ("INSERT INTO ledger VALUES (?)", params![int(number)]),
                ("UPDATE accounts SET balance = balance - ? WHERE account = ?", params![transfer.amount, from]),
            ];
            let ended = client.run("bank transfer", true, client.write().batch(batch)).await;
            ended.with(Access::Transfer { number, transfer })
        } else {
            let read = client.read();
            let read = read.query_as::<i64>("SELECT balance FROM accounts ORDER BY account", ());
            let ended = client.run("bank read", false, read).await;
            ended.with(Access::Read(ended.answer.clone().unwrap_or_default()))
        };
        client.ledger.record().bank.push(op);
    }

    pub async fn finish(&self, client: &Client) -> Result<()> {
        let books = "SELECT 0, balance FROM (SELECT balance FROM accounts ORDER BY account)
                     UNION ALL SELECT 1, number FROM ledger";
        let read = client.patient().with_limits(BOOKS_MAX.0, BOOKS_MAX.1);
        let ended = client.run("bank read", false, read.query_as::<(i64, i64)>(books, ())).await;
        let rows = ended.answer.as_ref().ok_or("the books can't be read at the end")?;
        let of = |kind| rows.iter().filter(move |row| row.0 == kind).map(|row| row.1);
        let ledger = of(1).map(u64::try_from).collect::<Result<_, _>>()?;
        client.ledger.record().bank.push(ended.with(Access::Books { balances: of(0).collect(), ledger }));
        Ok(())
    }
}

fn random_transfer(client: &Client) -> Transfer {
    let account = |number| usize::try_from(number).unwrap_or(0);
    let count = AT_FIRST.len() as u64;
    let from = client.rng.below(count);
    let to = (from + 1 + client.rng.below(count - 1)) % count;
    let amount = i64::try_from(1 + client.rng.below(AMOUNT_MAX)).unwrap_or(1);
    Transfer { from: account(from), to: account(to), amount }
}
