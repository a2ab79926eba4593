//! A small service on Quorate: the HTTP API of a shop with stock, orders and an outbox, with a process for each node,
//! and customers that check whether it stays correct while nodes are killed. `run.sh` runs all of it.
//!
//! ```text
//! shop serve --config NODE.toml --http HOST:PORT --hook HOST:PORT
//! shop load --shops HOST:PORT,HOST:PORT,... --hook HOST:PORT [--orders N]
//! ```

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "an example, outside of the simulated world"
)]

mod http;
mod load;
mod service;
mod shop;

use std::collections::BTreeMap;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let mut options = BTreeMap::new();
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        options.insert(name, value);
    }
    let option = |name: &str| options.get(name).cloned().ok_or_else(|| format!("{name} is missing"));
    match task.as_str() {
        "serve" => service::run(option("--config")?.as_ref(), &option("--http")?, &option("--hook")?).await,
        "load" => {
            let orders = option("--orders").map_or(Ok(10_000), |orders| orders.parse())?;
            let shops = option("--shops")?.split(',').map(str::to_owned).collect();
            load::run(shops, &option("--hook")?, orders).await
        }
        _ => Err("the first argument must be `serve` or `load`".into()),
    }
}
