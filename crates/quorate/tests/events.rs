//! Events through their handles: who listens gets each of them once and in order, on a node and remotely.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt as _, TryStreamExt as _};
use quorate::events::{Event, EventId, ListenError, Listener};
use quorate::{Error, Events, FailureKind, Level, Sql, params, steps};
use quorate_env::{Instant, timeout};
use support::{Cluster, PATIENCE, on_both, run};

/// After this time a call is dropped that waits in vain. On a slower machine it is dropped while it still looks, which
/// is as good for the test.
const SHORT: Duration = Duration::from_millis(200);

/// Returns the next event of a listener.
async fn next(listener: &mut Listener) -> Event {
    loop {
        match timeout(PATIENCE, listener.next()).await.expect("an event comes in time") {
            Ok(event) => return event,
            Err(ListenError::Failed(error)) if error.is_retryable() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns what the next events of a listener say.
async fn said(listener: &mut Listener, count: usize) -> Vec<String> {
    let mut said = Vec::new();
    while said.len() < count {
        said.push(String::from_utf8(next(listener).await.payload.into()).unwrap());
    }
    said
}

/// Adds an event, which waits until the cluster knows events.
async fn events_of(sql: &Sql) -> Result<Events, Error> {
    let events = sql.events();
    events.notify("start", "").await?;
    Ok(events)
}

#[test]
fn events_of_commands_statements_and_triggers_are_heard_in_order() {
    on_both(|sql| async move {
        let events = events_of(&sql).await?;
        let mut all = events.listen(["orders"]).patterns(["log.*"]);
        let started = all.begin().await?;
        sql.batch(steps![
            "CREATE TABLE orders (item TEXT)",
            "CREATE TRIGGER tell AFTER INSERT ON orders BEGIN SELECT notify('orders', new.item); END",
        ])
        .await?;
        sql.batch(steps![
            events.notify("orders", "first"),
            ("INSERT INTO orders VALUES (?), ('third')", params!["second"]),
            events.notify("unheard", "x"),
            sql.keys().set("k", "v"),
        ])
        .await?;
        sql.execute("SELECT notify('log.a', 'fourth')", ()).await?;
        let id = events.notify("orders", "fifth").await?;
        assert_eq!(said(&mut all, 4).await, ["first", "second", "third", "fourth"]);
        let last = next(&mut all).await;
        assert_eq!((last.id, last.channel.as_str()), (id, "orders"));
        assert!(all.next().now_or_never().is_none(), "there are no more");
        let mut again = events.listen(["orders"]).after(started);
        assert_eq!(said(&mut again, 4).await, ["first", "second", "third", "fifth"]);
        assert_eq!((again.position(), events.last().await?), (Some(id), id));
        let stream = events.listen([""; 0]).patterns(["l*"]).after(EventId::START).into_stream();
        assert_eq!(pin!(stream).try_next().await.unwrap().unwrap().payload, "fourth");
        Ok(())
    });
}

#[test]
fn what_is_undone_is_not_heard() {
    on_both(|sql| async move {
        let events = events_of(&sql).await?;
        let mut listener = events.listen(["c"]);
        listener.begin().await?;
        sql.execute("CREATE TABLE t (a UNIQUE)", ()).await?;
        let failed = sql.batch(steps![events.notify("c", "no"), "INSERT INTO t VALUES (1), (1)"]).await;
        assert!(failed.is_err());
        let pipeline = steps![
            events.notify("c", "first"),
            "INSERT INTO t SELECT ifnull(notify('c', 'no'), 7) UNION ALL SELECT ifnull(notify('c', 'no'), 7)",
            "SELECT notify('c', 'second')",
        ];
        assert_eq!(
            sql.pipeline(pipeline).await?.results.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true, false, true]
        );
        let mut tx = sql.begin().await?;
        tx.execute("SELECT notify('c', 'no')", ()).await?;
        tx.rollback();
        let mut tx = sql.begin().await?;
        tx.execute("SELECT notify('c', 'third')", ()).await?;
        tx.savepoint("s")?;
        tx.execute("SELECT notify('c', 'no')", ()).await?;
        tx.rollback_to("s").await?;
        tx.execute("INSERT INTO t SELECT notify('c', 'fourth')", ()).await?;
        tx.commit().await?;
        events.notify("c", "last").await?;
        assert_eq!(said(&mut listener, 5).await, ["first", "second", "third", "fourth", "last"]);
        let refused = sql.query("SELECT notify('c', 'x')", ()).await.unwrap_err();
        assert_eq!(refused.failure().map(|failure| failure.kind), Some(FailureKind::Refused));
        assert_eq!(refused.to_string(), "notify() adds an event, which a query can't; use `execute`");
        Ok(())
    });
}

#[test]
fn a_call_that_was_dropped_delays_no_event() {
    on_both(|sql| async move {
        let events = events_of(&sql).await?;
        let mut listener = events.listen(["c"]);
        listener.begin().await?;
        // Usually it has looked by then, and waits.
        assert!(timeout(SHORT, listener.next()).await.is_err());
        events.notify("c", "x").await?;
        // The call that is woken is dropped while it looks. Those that follow are too short for it to look unasked.
        let mut heard = listener.next().now_or_never();
        let deadline = Instant::now() + PATIENCE / 2;
        while heard.is_none() {
            assert!(Instant::now() < deadline, "the event is not heard");
            heard = timeout(Duration::from_secs(1), listener.next()).await.ok();
        }
        assert_eq!(heard.unwrap().unwrap().payload, "x");
        Ok(())
    });
}

#[test]
fn a_request_that_is_sent_again_adds_one_event() {
    on_both(|sql| async move {
        let events = events_of(&sql).await?;
        let keyed = events.with_key("one");
        let first = keyed.notify("c", "x").await?;
        assert_eq!(keyed.notify("c", "x").await?, first);
        let mut listener = events.listen(["c"]).after(EventId::START);
        assert_eq!(next(&mut listener).await.id, first);
        assert!(listener.next().now_or_never().is_none());
        Ok(())
    });
}

#[test]
fn many_listeners_hear_each_event() {
    on_both(|sql| async move {
        let events = events_of(&sql).await?;
        let mut listeners: Vec<_> = (0..50).map(|_| events.listen(["c"])).collect();
        for listener in &mut listeners {
            listener.begin().await?;
        }
        let heard = join_all(listeners.iter_mut().map(|listener| said(listener, 20)));
        let notify = async {
            for number in 0..20 {
                events.notify("c", number.to_string()).await.unwrap();
            }
        };
        let (heard, ()) = futures_util::join!(heard, notify);
        let expected: Vec<_> = (0..20).map(|number| number.to_string()).collect();
        assert!(heard.iter().all(|heard| *heard == expected), "{heard:?}");
        Ok(())
    });
}

/// Each event that was acknowledged is heard once and in order, by listeners on members and by a client, some of which
/// begin again after an event now and then.
#[test]
fn listeners_miss_nothing_while_leaders_are_killed() {
    run(async {
        const EVENTS: usize = 60;
        let mut cluster = Cluster::start().await;
        let client = cluster.client().await;
        let events = client.events();
        let start = events.notify("c", "start").await.unwrap();
        let heard = async {
            let mut heard = Vec::new();
            let mut listener = events.listen(["c"]).after(start);
            while heard.len() < EVENTS {
                let event = next(&mut listener).await;
                heard.push((event.id, String::from_utf8(event.payload.into()).unwrap()));
                if heard.len() % 7 == 0 {
                    listener = events.listen(["c"]).after(event.id);
                }
            }
            heard
        };
        let notify = async {
            let mut acknowledged = Vec::new();
            for number in 0..EVENTS {
                if number % 20 == 10 {
                    let leader = cluster.leader().await;
                    cluster.kill(&leader);
                    acknowledged.push(events.notify("c", number.to_string()).await.unwrap());
                    cluster.restart(&leader).await;
                } else {
                    acknowledged.push(events.notify("c", number.to_string()).await.unwrap());
                }
            }
            acknowledged
        };
        let (heard, acknowledged) = futures_util::join!(heard, notify);
        assert!(heard.iter().map(|(id, _)| id).eq(&acknowledged));
        assert!(heard.iter().map(|(_, said)| said.clone()).eq((0..EVENTS).map(|number| number.to_string())));
        for node in cluster.nodes() {
            let mut listener = node.events().at(Level::Linearizable).listen(["c"]).after(start);
            assert!(said(&mut listener, EVENTS).await.iter().eq(heard.iter().map(|(_, said)| said)));
        }
    });
}
