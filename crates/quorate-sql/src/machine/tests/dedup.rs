//! Exactly-once: the guarantees of sessions across batches and restarts.

use quorate_apply::session::{SESSION_IDLE_NANOS, SESSIONS_MAX};
use quorate_model::ARCHIVER_LEVEL;
use quorate_model::keys::{KEYS_LEVEL, MEMBER_EXPIRY_LEVEL};
use quorate_model::limits::{KEPT_OUTCOME_BYTES_MAX, SESSION_WINDOW};
use quorate_model::locks::LOCKS_LEVEL;
use quorate_model::users::USERS_LEVEL;

use super::*;

/// A request of a session that inserts a row.
fn request(session: u64, sequence: u64, floor: u64) -> Proposal {
    asking(session, sequence, floor, "INSERT INTO t VALUES (random()) RETURNING a")
}

fn asking(session: u64, sequence: u64, floor: u64, sql: &str) -> Proposal {
    let origin = Origin { session: SessionId(session), sequence, floor };
    Proposal::new(Some(origin), vec![command(sql)])
}

/// A node with an empty table and an open session.
fn node() -> (Node, u64) {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let session = open(&mut node);
    (node, session)
}

fn open(node: &mut Node) -> u64 {
    let index = node.next;
    let reply = node.propose(&open_session()).unwrap();
    assert_eq!(reply.results.as_slice(), [CommandResult::Control(ControlReply::Session(SessionId(index)))]);
    index
}

fn count(node: &mut Node) -> i64 {
    node.conn().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// The number of outcomes that the database keeps.
fn kept(node: &Node) -> usize {
    in_table(node) + node.applier.as_ref().unwrap().sessions().small()
}

/// The number of those that have a row of their own.
fn in_table(node: &Node) -> usize {
    node.conn().query_row("SELECT count(*) FROM _quorate_outcomes", [], |row| row.get::<_, u32>(0)).unwrap() as usize
}

fn kind(outcome: Outcome) -> FailureKind {
    outcome.unwrap_err().kind
}

#[test]
fn a_retry_gets_the_same_outcome_and_does_nothing() {
    let (mut node, session) = node();
    let first = node.propose(&request(session, 1, 0));
    let third = node.propose(&request(session, 3, 0));
    assert!(first.is_ok() && third.is_ok() && first != third);
    assert_eq!(node.propose(&request(session, 1, 0)), first);
    node.restart();
    assert_eq!(node.propose(&request(session, 3, 0)), third);
    assert!(node.propose(&request(session, 2, 0)).is_ok(), "any order");
    assert_eq!((count(&mut node), kept(&node)), (3, 3));
    // The same request twice in one batch.
    let next = node.next;
    let twice = node.apply(&[entry(next, &request(session, 4, 0)), entry(next + 1, &request(session, 4, 0))]);
    assert_eq!((twice[0].clone(), count(&mut node)), (twice[1].clone(), 4));
}

#[test]
fn outcomes_are_kept_until_the_floor_passes_them() {
    const MANY: u64 = 700;
    let (mut node, session) = node();
    let sql = |sequence: u64| match sequence % 50 {
        0 => format!("INSERT INTO t VALUES ('{sequence}, and a text that makes the outcome large') RETURNING a"),
        1 => "INSERT INTO nowhere VALUES (1)".to_owned(),
        _ => "INSERT INTO t VALUES (1)".to_owned(),
    };
    let requests = |floor| (1..=MANY).map(move |sequence| asking(session, sequence, floor, &sql(sequence)));
    let ask = |node: &mut Node, floor| {
        let first = node.next;
        let entries: Vec<_> = (first..).zip(requests(floor)).map(|(index, ask)| stamped(index, START, &ask)).collect();
        entries.chunks(90).flat_map(|batch| node.apply(batch)).collect::<Vec<_>>()
    };
    let first = ask(&mut node, 0);
    assert_eq!((kept(&node), in_table(&node) > 150), (700, true));
    node.restart();
    assert_eq!(ask(&mut node, 0), first);
    assert_eq!(ask(&mut node, 600)[600..], first[600..]);
    assert_eq!(kept(&node), 100);
    node.restart();
    assert_eq!(ask(&mut node, 600)[600..], first[600..]);
    let last = stamped(node.next, START, &request(session, MANY + 1, MANY));
    node.apply(&[last]).remove(0).unwrap();
    assert_eq!((kept(&node), in_table(&node)), (1, 0));
}

#[test]
fn sessions_of_the_first_layout_are_upgraded() {
    let (mut node, session) = node();
    let first = node.propose(&request(session, 1, 0));
    let bytes = quorate_model::codec::encode_outcome(&first);
    let conn = node.conn();
    conn.execute_batch("UPDATE _quorate_applied SET level = 1; ALTER TABLE _quorate_sessions DROP COLUMN recent")
        .unwrap();
    conn.execute("REPLACE INTO _quorate_outcomes VALUES (?1, 1, ?2)", (session.cast_signed(), bytes.as_ref())).unwrap();
    node.restart();
    assert_eq!(node.propose(&request(session, 1, 0)), first);
    node.propose(&request(session, 2, 1)).unwrap();
    assert_eq!(kept(&node), 1);
}

/// The tables and the columns that a database of layout 4 does not have, each added by one statement, between which a
/// process may end.
#[test]
fn a_database_of_layout_4_is_upgraded_from_any_state() {
    const DROPS: [&str; 10] = [
        "DROP VIEW quorate_locks; DROP TABLE _quorate_locks_claims; DROP TABLE _quorate_locks",
        "DROP VIEW quorate_keys; DROP VIEW quorate_hashes; DROP VIEW quorate_sets; DROP VIEW quorate_sorted_sets;
            DROP VIEW quorate_lists",
        "DROP TABLE _quorate_keys_elements; DROP TABLE _quorate_keys",
        "ALTER TABLE _quorate_applied DROP COLUMN archiver_token",
        "ALTER TABLE _quorate_applied DROP COLUMN archiver_node",
        "DROP TABLE _quorate_users",
        "DROP TABLE _quorate_requests",
        "UPDATE _quorate_applied SET level = 4",
        "ALTER TABLE _quorate_applied DROP COLUMN due",
        "ALTER TABLE _quorate_applied DROP COLUMN format_level",
    ];
    for count in 1..=DROPS.len() {
        let (mut node, session) = node();
        let first = node.propose(&request(session, 1, 0));
        let row = node.applier().row().clone();
        DROPS.iter().take(count).for_each(|sql| node.conn().execute_batch(sql).unwrap());
        node.restart();
        assert_eq!((node.applier().row(), row.applied.level), (&row, 1));
        assert_eq!(node.propose(&request(session, 1, 0)), first);
    }
}

/// The view of layout 9 has one column less.
#[test]
fn a_view_of_an_older_layout_is_created_anew() {
    let (mut node, _) = node();
    let view = "CREATE VIEW quorate_sorted_sets AS SELECT g.space, k.key, m.member, m.score FROM _quorate_keys k
        JOIN _quorate_keys_generations g USING (generation) JOIN _quorate_keys_members m ON m.key_id = k.id";
    node.conn().execute_batch(&format!("DROP VIEW quorate_sorted_sets; {view}")).unwrap();
    let read = "SELECT expires_at FROM quorate_sorted_sets";
    node.fails(read);
    node.restart();
    assert_eq!(node.ok(read).rows.len(), 0);
}

/// So that a cluster can be upgraded node by node, and back.
#[test]
fn the_layout_stays_old_until_the_format_level_rises() {
    let (mut node, _) = node();
    let layout =
        |node: &Node| node.conn().query_row("SELECT level FROM _quorate_applied", [], |row| row.get::<_, u32>(0));
    assert_eq!(layout(&node), Ok(4));
    let levels =
        [(2, 5), (USERS_LEVEL, 6), (ARCHIVER_LEVEL, 7), (KEYS_LEVEL, 8), (LOCKS_LEVEL, 9), (MEMBER_EXPIRY_LEVEL, 10)];
    for (level, of_layout) in levels {
        node.propose(&Proposal::new(None, vec![ControlCommand::Raise(level).into()])).unwrap();
        assert_eq!((layout(&node), node.applier().applied().level), (Ok(of_layout), level));
        node.restart();
        assert_eq!(node.applier().applied().level, level);
    }
}

#[test]
fn a_retry_of_a_failed_request_fails_in_the_same_way() {
    let (mut node, session) = node();
    node.ok("CREATE TABLE u (a UNIQUE ON CONFLICT ROLLBACK)");
    for (sequence, sql) in [(1, "SELECT * FROM later"), (2, "INSERT INTO u VALUES (1), (1)")] {
        let failure = node.propose(&asking(session, sequence, 0, sql)).unwrap_err();
        node.ok("CREATE TABLE IF NOT EXISTS later (a)");
        assert_eq!(node.propose(&asking(session, sequence, 0, sql)), Err(failure));
    }
}

#[test]
fn the_floor_drops_outcomes_and_bounds_the_window() {
    let (mut node, session) = node();
    for sequence in 1..=3 {
        node.propose(&request(session, sequence, 0)).unwrap();
    }
    node.propose(&request(session, 4, 2)).unwrap();
    assert_eq!(kept(&node), 2);
    for (sequence, floor) in [(1, 0), (2, 2), (0, 0), (5, 5), (5, 9)] {
        let forgotten = Failure::new(FailureKind::OutcomeForgotten, "the outcome was given up by the client");
        assert_eq!(node.propose(&request(session, sequence, floor)), Err(forgotten));
    }
    let text = "a session may have 4096 requests above its floor, 9; send fewer at a time";
    let exceeded = Failure::new(FailureKind::WindowExceeded, text);
    assert_eq!(node.propose(&request(session, 10 + SESSION_WINDOW, 0)), Err(exceeded));
    node.propose(&request(session, 9 + SESSION_WINDOW, 0)).unwrap();
    assert_eq!(kind(node.propose(&request(session, u64::MAX, u64::MAX))), FailureKind::WindowExceeded);
    assert_eq!((count(&mut node), kept(&node)), (5, 0));
}

#[test]
fn an_unknown_or_ended_session_is_refused() {
    let (mut node, session) = node();
    let expired = Failure::new(FailureKind::SessionExpired, "the session is not known, or was idle for too long");
    assert_eq!(node.propose(&request(session + 99, 1, 0)), Err(expired));
    node.propose(&request(session, 1, 0)).unwrap();
    node.propose(&Proposal::new(None, vec![ControlCommand::CloseSession(SessionId(session)).into()])).unwrap();
    assert_eq!(kind(node.propose(&request(session, 1, 0))), FailureKind::SessionExpired);
    assert_eq!((count(&mut node), kept(&node)), (1, 0));
    // A session is opened and ended together with the rest of its entry, or not at all.
    let index = node.next;
    let failing = command("SELECT * FROM nowhere");
    node.propose(&Proposal::new(None, vec![ControlCommand::OpenSession.into(), failing])).unwrap_err();
    assert_eq!(kind(node.propose(&request(index, 1, 0))), FailureKind::SessionExpired);
}

#[test]
fn a_session_may_end_itself() {
    let (mut node, session) = node();
    let origin = Some(Origin { session: SessionId(session), sequence: 1, floor: 0 });
    node.propose(&Proposal::new(origin, vec![ControlCommand::CloseSession(SessionId(session)).into()])).unwrap();
    assert_eq!(kept(&node), 0);
}

#[test]
fn of_a_large_outcome_only_the_fact_is_kept() {
    let (mut node, session) = node();
    let size = KEPT_OUTCOME_BYTES_MAX;
    let large = asking(session, 1, 0, &format!("INSERT INTO t VALUES (zeroblob({size})) RETURNING a"));
    node.propose(&large).unwrap();
    let text = "it was done, but what it returned was too large to be kept for a retry";
    assert_eq!(node.propose(&large), Err(Failure::new(FailureKind::OutcomeTooBig, text)));
    assert_eq!(count(&mut node), 1);
}

#[test]
fn an_idle_session_is_refused_even_if_its_row_exists() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let open = open_session();
    let start = START + 100 * 3600 * SECOND;
    // More sessions than one entry removes.
    let entries: Vec<_> = (2..10).map(|index| stamped(index, start, &open)).collect();
    node.apply(&entries);
    let at = |node: &mut Node, now, session| {
        let index = node.next;
        node.apply(&[stamped(index, now, &request(session, index, 0))]).remove(0)
    };
    at(&mut node, start + SESSION_IDLE_NANOS, 9).unwrap();
    for session in [8, 2] {
        assert_eq!(kind(at(&mut node, start + SESSION_IDLE_NANOS + 1, session)), FailureKind::SessionExpired);
    }
    at(&mut node, start + 2 * SESSION_IDLE_NANOS, 9).unwrap();
    let left = node.conn().query_row("SELECT count(*) FROM _quorate_sessions", [], |row| row.get::<_, i64>(0));
    assert!(left.unwrap() < 4);
}

#[test]
fn at_the_limit_the_longest_idle_session_ends() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let open = open_session();
    let (end, later) = (2 + SESSIONS_MAX as u64, START + 7200 * SECOND);
    let entries: Vec<_> = (2..end).map(|index| stamped(index, later + index, &open)).collect();
    for batch in entries.chunks(4096) {
        node.apply(batch);
    }
    let at_end = |index, proposal: &Proposal| stamped(index, later + end, proposal);
    let requests = [request(2, 1, 0), open, request(2, 2, 0), request(3, 1, 0)];
    let entries: Vec<_> = (end..).zip(&requests).map(|(index, proposal)| at_end(index, proposal)).collect();
    let outcomes = node.apply(&entries);
    assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, true, false]);
}
