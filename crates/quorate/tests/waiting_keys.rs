//! Pops that wait, watches, and values as JSON, on a node and remotely.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::join;
use quorate::keys::{End, JsonError, Seen, Watch, from_json, to_json};
use quorate::{Error, FailureKind};
use support::on_both;

/// Longer than anything here may take.
const LONG: Duration = Duration::from_secs(30);
/// Shorter than anything that never comes.
const SHORT: Duration = Duration::from_millis(20);

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn a_pop_waits_until_there_is_something() {
    on_both(|sql| async move {
        let keys = sql.keys();
        let (list, set) = (keys.list("list"), keys.sorted_set("set"));
        let (taken, pushed) = join(list.pop_left(2).within(LONG), list.push_right(["a", "b", "c"]).into_future()).await;
        assert_eq!((taken?, pushed?), (vec![bytes("a"), bytes("b")], 3));
        assert_eq!(list.pop_right(1).within(LONG).await?, [bytes("c")], "it is there already");
        let (taken, added) = join(set.pop_last(1).within(LONG), set.add([(1.5, "m")]).into_future()).await;
        assert_eq!((taken?, added?), (vec![(bytes("m"), 1.5)], 1));
        let waits = keys.pop_from_lists(["none", "list"], 1, End::Left).within(LONG);
        let (taken, _) = join(waits, list.push_left(["d"]).into_future()).await;
        assert_eq!(taken?, Some((bytes("list"), vec![bytes("d")])));
        let (moved, _) = join(list.move_to(End::Left, "to", End::Right).within(LONG), async {
            keys.set("other", "1").await?;
            list.push_left(["e"]).await
        })
        .await;
        assert_eq!((moved?, keys.list("to").range(0, -1).await?), (Some(bytes("e")), vec![bytes("e")]));
        Ok(())
    });
}

#[test]
fn a_pop_that_waits_in_vain_takes_nothing() {
    on_both(|sql| async move {
        let keys = sql.keys();
        assert!(keys.list("none").pop_left(1).within(SHORT).await?.is_empty());
        assert_eq!(keys.list("none").move_to(End::Left, "to", End::Left).within(Duration::ZERO).await?, None);
        let refused = keys.with_key("k").list("none").pop_left(1).within(LONG).await;
        assert!(matches!(refused, Err(Error::Failed(failure)) if failure.message.contains("key can't wait")));
        keys.set("text", "a").await?;
        let failed = keys.list("text").pop_left(1).within(LONG).await;
        assert!(matches!(failed, Err(Error::Failed(failure)) if failure.kind == FailureKind::WrongType));
        let (failed, _) =
            join(keys.sorted_set("later").pop_first(1).within(LONG), keys.set("later", "a").into_future()).await;
        assert!(matches!(failed, Err(Error::Failed(failure)) if failure.kind == FailureKind::WrongType));
        Ok(())
    });
}

/// Returns the next states of keys: the key, and whether it exists.
async fn next<const N: usize>(watch: &mut Watch) -> Result<[(String, bool); N], Error> {
    let mut seen = Vec::new();
    for _ in 0..N {
        let Seen { key, info } = watch.next().await?;
        seen.push((String::from_utf8(key.to_vec()).unwrap(), info.is_some()));
    }
    seen.sort();
    Ok(seen.try_into().unwrap())
}

fn state(key: &str, exists: bool) -> (String, bool) {
    (key.to_owned(), exists)
}

#[test]
fn a_watch_returns_what_a_key_is_and_what_it_becomes() {
    on_both(|sql| async move {
        let keys = sql.keys();
        let mut watch = keys.watch("a");
        assert_eq!(next(&mut watch).await?, [state("a", false)]);
        keys.hash("a").set([("field", "1")]).await?;
        keys.set("ab", "another").await?;
        assert_eq!(next(&mut watch).await?, [state("a", true)]);
        let version = keys.describe("a").await?.unwrap().version;
        keys.hash("a").set([("field", "2")]).await?;
        let seen = watch.next().await?;
        assert!(seen.info.unwrap().version > version);
        keys.delete(["a"]).await?;
        assert_eq!(next(&mut watch).await?, [state("a", false)]);
        keys.set("a", "1").await?;
        assert_eq!(next(&mut watch).await?, [state("a", true)]);
        keys.expire("a", Duration::from_millis(300)).await?;
        // It may be seen once more before it has expired.
        while next(&mut watch).await? == [state("a", true)] {}
        keys.set("a", "1").await?;
        assert_eq!(next(&mut watch).await?, [state("a", true)]);
        keys.flush().await?;
        assert_eq!(next(&mut watch).await?, [state("a", false)]);
        Ok(())
    });
}

#[test]
fn a_watch_of_a_prefix_returns_the_states_of_its_keys_alone() {
    on_both(|sql| async move {
        let keys = sql.keys();
        keys.set_all([("p:1", "a"), ("p:2", "b"), ("q", "c")]).await?;
        let mut watch = keys.watch_prefix("p:");
        assert_eq!(next(&mut watch).await?, [state("p:1", true), state("p:2", true)]);
        keys.set("q", "d").await?;
        keys.space(1).set("p:1", "in another space").await?;
        keys.delete(["p:1"]).await?;
        assert_eq!(next(&mut watch).await?, [state("p:1", false)]);
        keys.set_all([("p:2", "e"), ("p:3", "f")]).await?;
        assert_eq!(next(&mut watch).await?, [state("p:2", true), state("p:3", true)]);
        keys.flush().await?;
        assert_eq!(next(&mut watch).await?, [state("p:2", false), state("p:3", false)]);
        Ok(())
    });
}

#[test]
fn a_watch_goes_on_after_a_call_that_was_dropped() {
    on_both(|sql| async move {
        let keys = sql.keys();
        let mut watch = keys.watch("a");
        assert_eq!(next(&mut watch).await?, [state("a", false)]);
        assert!(watch.next().now_or_never().is_none());
        keys.set("a", "1").await?;
        // Each of these calls is dropped before the watch has looked, and the first ones perhaps before it is woken.
        let mut seen = None;
        for _ in 0..20 {
            seen = watch.next().now_or_never();
            if seen.is_some() {
                break;
            }
            quorate_env::sleep(Duration::from_millis(1)).await;
        }
        let seen = match seen {
            Some(seen) => seen?,
            None => watch.next().await?,
        };
        assert!(seen.info.is_some());
        Ok(())
    });
}

#[test]
fn values_are_written_and_read_as_json() {
    on_both(|sql| async move {
        let keys = sql.keys();
        let value = vec![("a".to_owned(), Some(1.5)), ("ü".to_owned(), None)];
        keys.set("a", to_json(&value).unwrap()).await?;
        assert_eq!(keys.get("a").json::<Vec<(String, Option<f64>)>>().await.unwrap(), Some(value));
        assert_eq!(keys.get("none").json::<u64>().await.unwrap(), None);
        let wrong = keys.get("a").json::<u64>().await;
        assert!(matches!(&wrong, Err(error @ JsonError::Json(_)) if !error.is_retryable()), "{wrong:?}");
        keys.list("jobs").push_right([to_json(&7_u64).unwrap()]).await?;
        let jobs = keys.list("jobs").pop_left(1).within(LONG).await?;
        assert_eq!(jobs.iter().map(|job| from_json::<u64>(job).unwrap()).collect::<Vec<_>>(), [7]);
        Ok(())
    });
}
