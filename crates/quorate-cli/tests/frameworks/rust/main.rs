//! redis-rs, unmodified: redis-rs URL URL. Asynchronous connections are at the first node, and one that blocks at the
//! second.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{ConnectionManager, ConnectionManagerConfig, transaction_async};
use redis::{AsyncCommands as _, Client, Commands as _, Connection, RedisResult, pipe, transaction};

/// So many before the leader is killed, and so many after it is there again.
const STEPS: u64 = 10;
/// How long a reply may take. The port tries a write for 30 seconds.
const REPLY_TIME_MAX: Duration = Duration::from_secs(60);

/// Numbers steps. Prints `working` after the first ones, and ends some steps after the end of standard input.
fn steps() -> impl Iterator<Item = u64> {
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.store(true, Ordering::Relaxed);
    });
    let mut after = 0;
    (0..).take_while(move |number| {
        if *number == STEPS {
            println!("working");
        }
        after += u64::from(ended.load(Ordering::Relaxed));
        after <= STEPS
    })
}

/// Adds one to a number, which others change, too.
fn add_one(connection: &mut Connection) -> RedisResult<()> {
    transaction(connection, &["watched"], |connection, step| {
        let count: Option<u64> = connection.get("watched")?;
        step.set("watched", count.unwrap_or(0) + 1).ignore().query::<Option<()>>(connection)
    })
}

async fn add_one_async(manager: ConnectionManager) -> RedisResult<()> {
    transaction_async(manager, &["watched"], async |mut connection, mut step| {
        let count: Option<u64> = connection.get("watched").await?;
        step.set("watched", count.unwrap_or(0) + 1).ignore().query_async::<Option<()>>(&mut connection).await
    })
    .await
}

#[tokio::main]
async fn main() -> RedisResult<()> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let (first, second) = (Client::open(urls[0].as_str())?, Client::open(urls[1].as_str())?);
    let config = ConnectionManagerConfig::new().set_response_timeout(Some(REPLY_TIME_MAX));
    let mut manager = first.get_connection_manager_with_config(config).await?;
    let mut subscriber = first.get_async_pubsub().await?;
    subscriber.subscribe("steps").await?;
    let mut told = subscriber.into_on_message();
    let mut blocking = second.get_connection()?;
    let _: () = manager.del(&["count", "list", "watched"]).await?;
    let mut done = 0;
    for step in steps() {
        let found: (u64, u64, u64) = pipe()
            .set("step", step)
            .ignore()
            .get("step")
            .incr("count", 1)
            .rpush("list", step)
            .query_async(&mut manager)
            .await?;
        assert_eq!(found, (step, step + 1, step + 1));
        let found: (u64, Vec<u64>) =
            pipe().atomic().incr("count", 0).lrange("list", -1, -1).query_async(&mut manager).await?;
        assert_eq!(found, (step + 1, vec![step]));
        let adding = tokio::task::spawn_blocking(move || add_one(&mut blocking).map(|()| blocking));
        add_one_async(manager.clone()).await?;
        blocking = adding.await.unwrap()?;
        let _: u64 = blocking.publish("steps", step)?;
        assert_eq!(told.next().await.unwrap().get_payload::<u64>()?, step);
        done += 1;
    }
    // After a write at its node, a read there sees all that was acknowledged before it at any node.
    assert_eq!(blocking.incr("count", 1), Ok(done + 1));
    assert_eq!(blocking.get("watched"), Ok(2 * done));
    assert_eq!(blocking.lrange("list", 0, -1), Ok((0..done).collect::<Vec<u64>>()));
    println!("passed");
    Ok(())
}
