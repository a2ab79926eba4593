//! Keys through their handles: every kind of value, alone and in one transaction with SQL, on a node and remotely.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::ops::Bound;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt;
use quorate::keys::{
    AddOptions, Aggregate, BitAction, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Change, Condition, End,
    ExpiryCondition, KeyInfo, Kind, Overflow, SetOperation, StringCommand, Version, Which,
};
use quorate::users::UserRole;
use quorate::{Error, Failure, FailureKind, Keys, Level, Sql, params, steps};
use support::on_both;

const HOUR: Duration = Duration::from_secs(3600);

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn some(text: &'static str) -> Option<Bytes> {
    Some(bytes(text))
}

fn failure<T>(result: Result<T, Error>) -> Failure {
    match result {
        Err(Error::Failed(failure)) => failure,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// Returns a handle whose reads see its writes.
fn keys(sql: &Sql) -> Keys {
    sql.keys().with_own_writes()
}

async fn version(keys: &Keys, key: &str) -> Version {
    keys.describe(key).await.unwrap().unwrap().version
}

#[test]
fn strings_are_set_under_conditions() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        assert_eq!(keys.get("a").await?, None);
        assert!(!keys.set("a", "0").if_exists().await?);
        assert!(keys.set("a", "1").if_missing().await?);
        assert!(!keys.set("a", "2").if_missing().await?);
        let first = version(&keys, "a").await;
        assert!(keys.set("a", "2").if_version(first).await?);
        assert!(!keys.set("a", "3").if_version(first).await?);
        assert_eq!(keys.set("a", "3").if_value("2").returning().await?, (true, some("2")));
        assert_eq!(keys.get("a").await?, some("3"));
        assert!(version(&keys, "a").await > first);
        assert_eq!(keys.append("a", "45").await?, 3);
        assert_eq!(keys.set_range("a", 1, "-").await?, 3);
        assert_eq!(keys.get_range("a", 0, -2).await?, "3-");
        assert_eq!(keys.length("a").await?, 3);
        assert_eq!(keys.take("a").await?, some("3-5"));
        assert_eq!(keys.take("a").await?, None);
        assert_eq!(keys.increment("n", 40).await?, 40);
        assert_eq!(keys.increment("n", 2).await?, 42);
        assert_eq!(keys.increment_float("n", 0.5).await?, 42.5);
        Ok(())
    });
}

#[test]
fn keys_expire_are_renamed_copied_and_deleted() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        keys.set("a", "1").expires(HOUR).await?;
        let expires_at = keys.describe("a").await?.unwrap().expires_at;
        assert!(expires_at.is_some());
        keys.set("a", "2").keep_expiry().await?;
        assert_eq!(keys.describe("a").await?.unwrap().expires_at, expires_at);
        assert!(!keys.expire_if("a", HOUR, ExpiryCondition::Missing).await?);
        assert!(keys.persist("a").await?);
        assert!(!keys.persist("a").await?);
        assert!(keys.copy("a", "b").await?);
        assert!(!keys.rename_if_free("a", "b").await?);
        assert!(keys.rename("a", "c").await?);
        assert_eq!(keys.exist(["a", "b", "c", "c"]).await?, 3);
        assert!(keys.move_to("c", 3).await?);
        assert_eq!((keys.get("c").await?, keys.space(3).get("c").await?), (None, some("2")));
        assert!(!keys.delete_if("b", Condition::Value(bytes("x"))).await?);
        assert_eq!(keys.delete(["a", "b"]).await?, 1);
        keys.set("d", "1").await?;
        assert!(keys.expire("d", SystemTime::now() - HOUR).await?);
        assert_eq!(keys.describe("d").await?, None::<KeyInfo>);
        Ok(())
    });
}

/// The time of an expiry counts from its entry, so a request with one is the same when it is sent again.
#[test]
fn a_duration_counts_from_the_entry() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        let set = || keys.with_key("1").set("a", "1").expires(HOUR).returning();
        let first = set().await?;
        let info = keys.describe("a").await?.unwrap();
        assert_eq!(set().await?, first);
        assert_eq!(keys.describe("a").await?, Some(info));
        for _ in 0..2 {
            assert!(keys.with_key("2").expire("a", HOUR).await?);
            assert_eq!(keys.with_key("3").hash("h").set([("f", "1")]).expires(HOUR).await?, Some(1));
            assert_eq!(keys.with_key("4").hash("h").expire(["f"], HOUR).await?, [Change::Done]);
            assert_eq!(keys.with_key("5").set_of("s").add_expiring(["m"], HOUR).await?, 1);
        }
        Ok(())
    });
}

#[test]
fn hashes_and_sets_have_elements() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        let hash = keys.hash("hash");
        assert_eq!(hash.set([("a", "1"), ("b", "2")]).await?, Some(2));
        assert_eq!(hash.set([("a", "3"), ("c", "3")]).if_missing().await?, None);
        assert_eq!(hash.get("a").await?, some("1"));
        assert_eq!(hash.get_each(["b", "c"]).await?, [some("2"), None]);
        assert_eq!(hash.increment("a", 4).await?, 5);
        assert_eq!(hash.increment_float("b", 0.25).await?, 2.25);
        assert_eq!(hash.expire(["a", "x"], HOUR).await?, [Change::Done, Change::Missing]);
        assert!(hash.describe(["a"]).await?[0].unwrap().1.is_some());
        assert_eq!(hash.persist(["a"]).await?, [Change::Done]);
        assert_eq!(hash.contains_each(["a", "c"]).await?, [true, false]);
        assert_eq!(hash.scan().limit(1).await?.rows, [(bytes("a"), bytes("5"))]);
        let pages: Vec<_> = hash.scan().limit(1).pages().try_collect().await?;
        assert_eq!(pages.concat().len(), 2);
        assert_eq!(hash.draw(7).await?.len(), 2);
        assert_eq!((hash.remove(["a", "x"]).await?, hash.len().await?), (1, 1));

        let (left, right) = (keys.set_of("left"), keys.set_of("right"));
        assert_eq!(left.add(["a", "b", "c"]).await?, 3);
        assert_eq!(right.add_expiring(["c", "d"], HOUR).await?, 2);
        assert!(left.move_to("right", "b").await?);
        assert!(!left.contains("b").await?);
        assert_eq!(keys.combine(SetOperation::Union, ["left", "right"]).await?, ["a", "b", "c", "d"]);
        assert_eq!(keys.combine_into(SetOperation::Intersection, ["left", "right"], "both").await?, 1);
        assert_eq!(keys.set_of("both").pop(9).await?, ["c"]);
        assert_eq!(keys.describe("both").await?, None);
        Ok(())
    });
}

#[test]
fn sorted_sets_have_ranks_and_lists_have_ends() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        let scores = keys.sorted_set("scores");
        assert_eq!(scores.add([(1.0, "a"), (2.0, "b"), (3.0, "c")]).await?, 3);
        let missing = AddOptions { which: Which::Missing, ..AddOptions::default() };
        assert_eq!(scores.add_if([(9.0, "a"), (0.0, "z")], missing).await?, 1);
        assert_eq!(scores.increment("a", 1.5).await?, 2.5);
        assert_eq!(scores.score("a").await?, Some(2.5));
        assert_eq!(scores.scores(["a", "x"]).await?, [Some(2.5), None]);
        assert_eq!(scores.expire(["a", "x"], HOUR).await?, [Change::Done, Change::Missing]);
        assert!(scores.describe(["a"]).await?[0].unwrap().1.is_some());
        assert_eq!(scores.persist(["a"]).await?, [Change::Done]);
        assert_eq!((scores.rank("a").await?, scores.reverse_rank("a").await?), (Some((2, 2.5)), Some((1, 2.5))));
        let members = |found: Vec<(Bytes, f64)>| found.into_iter().map(|(member, _)| member).collect::<Vec<_>>();
        assert_eq!(members(scores.by_rank(0, 1).reverse().await?), ["c", "a"]);
        assert_eq!(members(scores.by_score(1.0..3.0).await?), ["b", "a"]);
        assert_eq!(members(scores.by_score(..).skip(1).limit(2).await?), ["b", "a"]);
        assert_eq!(scores.by_score(2.5..).count().await?, 2);
        // Among the members with the lowest score.
        assert_eq!(scores.by_member(Bound::Unbounded, Bound::Unbounded).count().await?, 1);
        assert_eq!(scores.pop_last(1).await?, [(bytes("c"), 3.0)]);
        assert_eq!(scores.pop_first(1).await?, [(bytes("z"), 0.0)]);
        assert_eq!(scores.by_rank(0, 0).remove().await?, 1);
        assert_eq!((scores.remove(["a", "x"]).await?, scores.len().await?), (1, 0));

        let list = keys.list("list");
        assert_eq!(list.push_if_exists(["x"], End::Left).await?, 0);
        assert_eq!(list.push_right(["c", "d"]).await?, 2);
        assert_eq!(list.push_left(["b", "a"]).await?, 4);
        assert_eq!(list.range(0, -1).await?, ["a", "b", "c", "d"]);
        assert!(list.set(1, "B").await?);
        assert_eq!(list.insert_after("B", "x").await?, Some(5));
        assert_eq!(list.insert_before("nothing", "x").await?, None);
        assert_eq!(list.remove(0, "x").await?, 1);
        assert_eq!(list.get(-1).await?, some("d"));
        assert_eq!(list.move_to(End::Right, "other", End::Left).await?, some("d"));
        assert_eq!(
            (list.pop_left(1).await?, list.pop_right(9).await?),
            (vec![bytes("a")], vec![bytes("c"), bytes("B")])
        );
        assert_eq!(list.pop_left(1).await?, [] as [Bytes; 0]);
        assert!(keys.list("other").trim(0, 0).await?);
        assert_eq!(keys.list("other").len().await?, 1);
        Ok(())
    });
}

#[test]
fn a_scan_returns_each_key_once_in_order() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        for number in 0..25 {
            keys.set(format!("user:{number:02}"), "x").await?;
        }
        keys.list("user:list").push_left(["x"]).await?;
        keys.set("v", "x").await?;
        for reverse in [false, true] {
            let scan = keys.scan().prefix("user:").kind(Kind::String).limit(10);
            let scan = if reverse { scan.reverse() } else { scan };
            let mut pages = pin!(scan.pages());
            let mut found = Vec::new();
            while let Some(page) = pages.try_next().await? {
                assert!(page.len() <= 10);
                found.extend(page.into_iter().map(|entry| entry.key));
            }
            let mut expected: Vec<_> = (0..25).map(|number| Bytes::from(format!("user:{number:02}"))).collect();
            if reverse {
                expected.reverse();
            }
            assert_eq!(found, expected);
        }
        let page = keys.scan().range("user:03", "user:05").values().await?;
        assert_eq!((page.rows.len(), page.rows[0].value.clone()), (2, some("x")));
        Ok(())
    });
}

#[test]
fn bits_are_read_set_counted_and_combined() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        let bits = keys.bits("bits");
        assert_eq!((bits.get(9).await?, bits.find(false).await?, bits.find(true).await?), (false, Some(0), None));
        assert!(!bits.set(9, true).await?);
        assert!(bits.set(9, true).await?);
        assert_eq!((bits.get(9).await?, bits.count().await?, bits.find(true).await?), (true, 1, Some(9)));
        let range = BitRange { start: 10, end: None, unit: BitUnit::Bit };
        assert_eq!((bits.count_in(range).await?, bits.find_in(true, range).await?), (0, None));
        let integer = BitInteger { signed: false, bits: 4 };
        let add = BitStep { integer, offset: 0, action: BitAction::Add(20, Overflow::Fail) };
        assert_eq!(bits.fields([add, BitStep { action: BitAction::Get, ..add }]).await?, [None, Some(0)]);
        keys.set("other", [0b1100_0000_u8]).await?;
        assert_eq!(keys.combine_bits_into(BitOperation::Or, ["bits", "other"], "or").await?, 2);
        assert_eq!(keys.get("or").await?.as_deref(), Some(&[0b1100_0000, 0b0100_0000][..]));
        Ok(())
    });
}

#[test]
fn strings_and_fields_are_set_together_and_taken() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        assert!(keys.set_all([("a", "1"), ("b", "2")]).if_missing().expires(HOUR).await?);
        assert!(!keys.set_all([("b", "3"), ("c", "3")]).if_missing().await?);
        assert_eq!(keys.exist(["a", "b", "c"]).await?, 2);
        assert_eq!(keys.get_and_persist("a").await?, some("1"));
        assert_eq!(keys.describe("a").await?.unwrap().expires_at, None);
        assert_eq!(keys.get_and_expire("a", HOUR).await?, some("1"));
        assert!(keys.describe("a").await?.unwrap().expires_at.is_some());
        let hash = keys.hash("hash");
        hash.set([("f", "1"), ("g", "2")]).await?;
        assert_eq!(hash.get_and_expire(["f", "x"], HOUR).await?, [some("1"), None]);
        assert!(hash.describe(["f"]).await?[0].unwrap().1.is_some());
        assert_eq!(hash.take(["f", "f"]).await?, [some("1"), None]);
        assert_eq!(hash.len().await?, 1);
        Ok(())
    });
}

#[test]
fn several_lists_and_sorted_sets_are_searched_combined_and_popped() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        let list = keys.list("list");
        list.push_right(["a", "b", "a"]).await?;
        assert_eq!((list.find("b").await?, list.find("x").await?), (Some(1), None));
        assert_eq!(list.find_each("a", End::Right, 9).await?, [2, 0]);
        assert_eq!(
            keys.pop_from_lists(["none", "list"], 2, End::Right).await?,
            Some((bytes("list"), [bytes("a"), bytes("b")].into()))
        );
        assert_eq!(keys.pop_from_lists(["none"], 2, End::Right).await?, None);

        let (one, two) = (keys.sorted_set("one"), keys.sorted_set("two"));
        one.add([(1.0, "a"), (2.0, "b")]).await?;
        two.add([(3.0, "b"), (4.0, "c")]).await?;
        let both = [("one", 1.0), ("two", 2.0)];
        let union = keys.combine_scores(SetOperation::Union, both, Aggregate::Sum).await?;
        assert_eq!(union, [(bytes("a"), 1.0), (bytes("b"), 8.0), (bytes("c"), 8.0)]);
        assert_eq!(keys.combine_scores_into(SetOperation::Intersection, both, Aggregate::Lowest, "lowest").await?, 1);
        assert_eq!(keys.sorted_set("lowest").score("b").await?, Some(2.0));
        assert_eq!(one.by_score(2.0..).store("high").await?, 1);
        assert_eq!(keys.sorted_set("high").draw(5).await?, [(bytes("b"), 2.0)]);
        let popped = keys.pop_from_sorted_sets(["none", "two"], 1, true).await?;
        assert_eq!(popped, Some((bytes("two"), vec![(bytes("c"), 4.0)])));
        Ok(())
    });
}

#[test]
fn a_batch_changes_tables_and_keys_together_or_not_at_all() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        sql.execute("CREATE TABLE visits (name TEXT UNIQUE)", ()).await?;
        let insert = "INSERT INTO visits (name) VALUES (?)";
        let steps = || steps![(insert, params!["ann"]), keys.increment("visits", 1), keys.get("visits")];
        let done = sql.batch(steps()).await?;
        assert_eq!(done.results.len(), 3);
        assert_eq!(done.results[0].changes, 1);
        assert_eq!((done.replies.get(1), done.replies.get::<Option<Bytes>>(2)), (Some(1_i64), Some(some("1"))));
        assert_eq!((done.replies.get::<bool>(0), done.replies.get::<u64>(1)), (None, None));

        // The statement fails the second time, so the key stays as it is.
        let refused = failure(sql.batch(steps![keys.increment("visits", 1), (insert, params!["ann"])]).await);
        assert_eq!((refused.kind, refused.command), (FailureKind::Constraint, Some(1)));
        // And the key may fail the statement.
        let refused = failure(sql.batch(steps![(insert, params!["bob"]), keys.expect("visits", None)]).await);
        assert_eq!((refused.kind, refused.command), (FailureKind::Conflict, Some(1)));
        assert_eq!(keys.get("visits").await?, some("1"));
        let sql = sql.with_own_writes();
        let visits: i64 = sql.query_one("SELECT count(*) FROM visits", ()).await?;
        assert_eq!(visits, 1);

        let piped = sql.pipeline(steps![keys.list("visits").len(), keys.increment("visits", 1)]).await?;
        assert_eq!(piped.results[0].as_ref().unwrap_err().kind, FailureKind::WrongType);
        assert_eq!(piped.replies.get(1), Some(2_i64));
        Ok(())
    });
}

#[test]
fn a_pipeline_is_done_only_if_its_premises_hold() {
    on_both(|sql| async move {
        let (keys, other) = (keys(&sql), keys(&sql).space(3));
        keys.set("a", "1").await?;
        let first = version(&keys, "a").await;
        let premises = || [keys.expect("a", Some(first)), other.expect("a", None)];
        let steps = || steps![keys.list("a").len(), keys.increment("a", 1)];
        let done = keys.pipeline_if(premises(), steps()).await?;
        assert_eq!(done.results[0].as_ref().unwrap_err().kind, FailureKind::WrongType);
        assert_eq!(done.replies.get(1), Some(2_i64));
        let refused = failure(keys.pipeline_if(premises(), steps()).await);
        assert_eq!((refused.kind, refused.command), (FailureKind::Conflict, None));
        assert_eq!(keys.get("a").await?, some("2"));
        let keyed = keys.with_key("k").pipeline_if([other.expect("a", None)], steps()).await;
        assert_eq!(failure(keyed).kind, FailureKind::Refused);
        Ok(())
    });
}

#[test]
fn what_a_batch_returns_is_bounded() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        keys.set("large", vec![7; 9 << 20]).await?;
        sql.batch([keys.get("large")]).await?;
        let steps = steps![keys.increment("n", 1), keys.get("large"), keys.take("large")];
        let refused = failure(sql.batch(steps).await);
        assert_eq!((refused.kind, refused.command), (FailureKind::TooBig, Some(2)));
        assert_eq!(keys.exist(["n", "large"]).await?, 1);
        Ok(())
    });
}

#[test]
fn a_user_who_may_only_read_reads_keys() {
    on_both(|sql| async move {
        keys(&sql).set("a", "1").await?;
        let reader = keys(&sql).with_role(UserRole::Read);
        assert_eq!(reader.get("a").await?, some("1"));
        assert!(matches!(reader.increment("a", 1).await, Err(Error::Forbidden(_))));
        // As a write it would be an entry of the log.
        assert!(matches!(reader.get("a").with_position().await, Err(Error::Forbidden(_))));
        Ok(())
    });
}

#[test]
fn a_transaction_writes_keys_too() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        sql.execute("CREATE TABLE t (a)", ()).await?;
        let increment = &keys;
        let committed = sql
            .at(Level::Linearizable)
            .transact(|tx| async move {
                let count: i64 = tx.query_one("SELECT count(*) FROM t", ()).await?;
                tx.execute("INSERT INTO t VALUES (?)", (count,))?;
                tx.add(increment.increment("count", count + 1))
            })
            .await?;
        assert_eq!(committed.replies.get(1), Some(1_i64));
        assert_eq!(keys.get("count").await?, some("1"));
        Ok(())
    });
}

#[test]
fn failures_have_the_texts_of_redis_also_when_they_are_repeated() {
    on_both(|sql| async move {
        let keys = keys(&sql);
        keys.set("a", "x").await?;
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let no_integer = "ERR value is not an integer or out of range";
        for _ in 0..2 {
            let read = failure(keys.hash("a").get("f").await);
            assert_eq!((read.kind, read.message.as_str()), (FailureKind::WrongType, wrong));
            let written = failure(keys.with_key("1").list("a").push_left(["x"]).await);
            assert_eq!((written.kind, written.message.as_str()), (FailureKind::WrongType, wrong));
            let added = failure(keys.with_key("2").increment("a", 1).await);
            assert_eq!((added.kind, added.message.as_str()), (FailureKind::InvalidValue, no_integer));
        }
        let long = failure(keys.get(vec![b'k'; 65_537]).await);
        assert_eq!(
            (long.kind, long.message.as_str()),
            (FailureKind::TooBig, "ERR the key has 65537 bytes, and may have 65536")
        );
        assert_eq!(failure(keys.space(8).get("a").await).kind, FailureKind::Refused);
        let (_, position) = keys.run::<bool>(StringCommand::Length { key: bytes("a") }).with_position().await?;
        assert_eq!(keys.at(Level::AtLeast(position)).get("a").await?, some("x"));
        Ok(())
    });
}
