//! Our own commands: versions, ranges of keys, locks, transactions as a whole, levels, and names of requests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod support;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quorate_model::{Command, SqlCommand, SqlReply, StatementResult, Value};
use quorate_resp::differential::MemoryDoor;
use quorate_resp::limits::TRANSACTION_COSTLY_MAX;
use quorate_resp::{Answered, Awaited, Connection, Cursors, Door, Host, Job, Moment, Role};
use support::{NOW, talk, talk_at};

fn version(door: &mut MemoryDoor, key: &str) -> u64 {
    talk(door, &format!("Q.VERSION {key}")).trim_start_matches(':').parse().unwrap()
}

#[test]
fn a_string_is_set_and_removed_by_its_version() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "Q.VERSION a\nQ.GETV a\nQ.CAS a 7 x\nQ.CAD a 7"), ":0 *-1 $-1 :0");
    let first = talk(&mut door, "Q.CAS a 0 x");
    assert_eq!(first, format!(":{}", version(&mut door, "a")));
    assert_eq!(talk(&mut door, "Q.CAS a 0 y\nQ.GETV a"), format!("$-1 *2 {first} $1 x"));
    let first = version(&mut door, "a");
    let second = talk(&mut door, &format!("Q.CAS a {first} y EX 10"));
    assert_eq!(talk(&mut door, &format!("Q.CAS a {first} z\nGET a\nTTL a")), "$-1 $1 y :10");
    let second = second.trim_start_matches(':');
    assert!(second.parse::<u64>().unwrap() > first);
    assert_eq!(talk(&mut door, &format!("Q.CAD a {first}\nQ.CAD a {second}\nEXISTS a")), ":0 :1 :0");
}

#[test]
fn versions_are_those_of_any_key_and_rise_over_its_removal() {
    let mut door = MemoryDoor::new(1);
    talk(&mut door, "HSET h f v");
    let first = version(&mut door, "h");
    assert!(talk(&mut door, "Q.GETV h").starts_with("-WRONGTYPE"));
    talk(&mut door, "DEL h\nHSET h f v");
    assert!(version(&mut door, "h") > first);
    assert_eq!(talk(&mut door, "Q.CAS h -1 x"), "-ERR value is out of range, must be positive");
}

#[test]
fn keys_are_read_in_their_order_page_by_page() {
    let mut door = MemoryDoor::new(1);
    talk(&mut door, "MSET a 1 b:1 2 b:2 3 b:3 4 c 5\nHSET b:h f v");
    assert_eq!(talk(&mut door, "Q.RANGE b c LIMIT 2"), "*2 $4 b:2\0 *2 $3 b:1 $3 b:2");
    assert_eq!(talk(&mut door, "Q.RANGE b:3 c LIMIT 3 WITHVALUES"), "*2 $-1 *4 $3 b:3 $1 4 $3 b:h $-1");
    assert_eq!(talk(&mut door, "Q.RANGE \"\" \"\" REV LIMIT 1"), "*2 $1 c *1 $1 c");
    assert_eq!(talk(&mut door, "Q.PREFIX b: LIMIT 2"), "*2 $4 b:2\0 *2 $3 b:1 $3 b:2");
    assert_eq!(talk(&mut door, "Q.PREFIX b: FROM b:3"), "*2 $-1 *2 $3 b:3 $3 b:h");
    assert_eq!(talk(&mut door, "Q.PREFIX b: REV LIMIT 2"), "*2 $3 b:3 *2 $3 b:h $3 b:3");
    assert_eq!(talk(&mut door, "Q.PREFIX b: REV FROM b:3"), "*2 $-1 *2 $3 b:2 $3 b:1");
    assert_eq!(talk(&mut door, "Q.PREFIX b: FROM a\nQ.RANGE c b"), {
        "*2 $-1 *4 $3 b:1 $3 b:2 $3 b:3 $3 b:h *2 $-1 *0"
    });
}

#[test]
fn members_of_a_set_expire_as_fields_of_a_hash_do() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "Q.SADD s EX 10 MEMBERS 2 a b\nSADD s c\nQ.SADD s PX 3500 MEMBERS 1 a"), ":2 :1 :0");
    assert_eq!(talk(&mut door, "Q.STTL s MEMBERS 4 a b c d\nQ.SPTTL s MEMBERS 1 a"), "*4 :4 :10 :-1 :-2 *1 :3500");
    assert_eq!(talk(&mut door, "Q.SEXPIRE s 20 NX MEMBERS 3 b c d"), "*3 :0 :1 :-2");
    assert_eq!(talk(&mut door, "Q.SPEXPIRE s 5000 LT MEMBERS 2 b c\nQ.SPERSIST s MEMBERS 2 b a"), "*2 :1 :1 *2 :1 :1");
    assert_eq!(talk(&mut door, "Q.SEXPIRE s 0 MEMBERS 1 a\nSMEMBERS s"), "*1 :2 *2 $1 b $1 c");
    assert_eq!(talk_at(&mut door, "SMEMBERS s\nQ.SPERSIST s MEMBERS 1 c", NOW + 5_000_000_000), "*1 $1 b *1 :-2");
}

#[test]
fn members_of_a_sorted_set_expire_as_fields_of_a_hash_do() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "ZADD z 1 a 2 b 3 c\nQ.ZEXPIRE z 10 MEMBERS 2 a d"), ":3 *2 :1 :-2");
    assert_eq!(talk(&mut door, "Q.ZPEXPIRE z 3500 NX MEMBERS 2 a b\nZINCRBY z 5 b"), "*2 :0 :1 $1 7");
    assert_eq!(talk(&mut door, "Q.ZTTL z MEMBERS 4 a b c d\nQ.ZPTTL z MEMBERS 1 b"), "*4 :10 :4 :-1 :-2 *1 :3500");
    assert_eq!(talk(&mut door, "Q.ZPERSIST z MEMBERS 2 a c\nQ.ZEXPIRE z 0 MEMBERS 1 c"), "*2 :1 :-1 *1 :2");
    assert_eq!(talk_at(&mut door, "ZRANGE z 0 -1\nZCARD z\nZRANK z b", NOW + 4_000_000_000), "*1 $1 a :1 $-1");
    assert!(talk(&mut door, "SET k v\nQ.ZTTL k MEMBERS 1 a").starts_with("+OK -WRONGTYPE"));
}

#[test]
fn wrong_words_on_members_are_errors_that_name_the_word() {
    let mut door = MemoryDoor::new(1);
    const COUNT: &str = "-ERR the number after MEMBERS must be that of the members";
    assert_eq!(talk(&mut door, "Q.SEXPIRE s 1 MEMBERS 2 a\nQ.SEXPIRE s 1 a b c"), format!("{COUNT} {COUNT}"));
    assert_eq!(talk(&mut door, "Q.SEXPIRE s 1 YY MEMBERS 1 a"), "-ERR Unsupported option YY");
    assert_eq!(talk(&mut door, "Q.SADD s EX 0 MEMBERS 1 a"), "-ERR invalid expire time in 'q.sadd' command");
    assert_eq!(talk(&mut door, "Q.SADD s KEEPTTL 1 MEMBERS 1 a"), "-ERR syntax error");
    assert!(talk(&mut door, "SET k v\nQ.STTL k MEMBERS 1 a").starts_with("+OK -WRONGTYPE"));
}

/// Returns the token in a reply of Q.LOCK.
fn token(reply: &str) -> u64 {
    reply.split(' ').nth(1).unwrap().trim_start_matches(':').parse().unwrap()
}

#[test]
fn a_lock_is_held_by_one_until_it_is_given_back_or_its_time_ends() {
    let mut door = MemoryDoor::new(1);
    let first = token(&talk(&mut door, "Q.LOCK jobs 1000 HOLDER ann NOTE night"));
    assert_eq!(talk(&mut door, "Q.LOCK jobs 1000 HOLDER bob\nQ.LOCK jobs 1000 HOLDER bob WAIT 5"), "*-1 *-1");
    assert_eq!(token(&talk(&mut door, "Q.LOCK jobs 1000 HOLDER ann")), first);
    assert_eq!(talk(&mut door, &format!("Q.RENEW jobs ann {first} 2000\nQ.RENEW jobs bob {first} 2000")), ":1 :0");
    assert_eq!(talk(&mut door, "Q.LOCKINFO jobs"), {
        format!(
            "*8 $4 name $4 jobs $7 permits :1 $7 holders *1 *8 $6 holder $3 ann $5 token :{first} $4 left :2000 $4 \
             note $0  $7 waiters *0"
        )
    });
    assert_eq!(talk(&mut door, "Q.UNLOCK jobs bob\nQ.UNLOCK jobs ann\nQ.UNLOCK jobs ann"), ":0 :1 :0");
    let second = token(&talk(&mut door, "Q.LOCK jobs 1000 HOLDER bob"));
    assert!(second > first);
    let third = talk_at(&mut door, "Q.LOCK jobs 1000", NOW + 1_000_000_000);
    assert!(token(&third) > second);
    // The name of a holder that has none is made for it, and told.
    let holder = third.split(' ').next_back().unwrap();
    assert_eq!(talk_at(&mut door, &format!("Q.UNLOCK jobs {holder}"), NOW + 1_000_000_000), ":1");
}

#[test]
fn locks_are_listed_and_taken_away() {
    let mut door = MemoryDoor::new(1);
    let tokens = ["a:1", "a:2", "b"].map(|name| token(&talk(&mut door, &format!("Q.LOCK {name} 1000 PERMITS 2"))));
    assert!(talk(&mut door, "Q.LOCK b 1000 PERMITS 3").starts_with("-ERR the lock has 2 permits"));
    let page = talk(&mut door, "Q.LOCKS a: LIMIT 1");
    assert!(page.starts_with("*2 $3 a:2 *1 *8 $4 name $3 a:1"), "{page}");
    let page = talk(&mut door, "Q.LOCKS a: FROM a:2");
    assert!(page.starts_with("*2 $-1 *1 *8 $4 name $3 a:2"), "{page}");
    assert_eq!(talk(&mut door, &format!("Q.FORCEUNLOCK b {}", tokens[0])), "*0");
    assert_eq!(talk(&mut door, "Q.FORCEUNLOCK b\nQ.LOCKINFO b"), format!("*1 :{} *-1", tokens[2]));
    let lost = format!("-ERR the lock is not held with the token {}", tokens[2]);
    assert!(talk(&mut door, &format!("Q.HOLDS b {}", tokens[2])).starts_with(&lost));
    assert_eq!(talk(&mut door, &format!("Q.HOLDS a:1 {}", tokens[0])), ":1");
}

/// A server that says who may do what.
struct Server(Role);

impl Host for Server {
    fn anonymous(&self) -> Result<Role, String> {
        Ok(self.0)
    }

    fn may_write(&self, sql: &str) -> bool {
        !sql.starts_with("SELECT")
    }

    fn is_level(&self, level: &str) -> bool {
        level == "linearizable"
    }
}

/// Lets a client send lines; returns what it reads, and the jobs that it had, which `answer` answers.
fn jobs(role: Role, lines: &str, mut answer: impl FnMut(&Job) -> Answered) -> (String, Vec<Job>) {
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    let (mut input, mut out) = (BytesMut::from(lines.replace('\n', "\r\n").as_bytes()), BytesMut::new());
    input.extend_from_slice(b"\r\n");
    let mut jobs = Vec::new();
    loop {
        let moment = Moment { now: NOW, seed: 1, space: 0, cursors: Arc::new(Cursors::new(1)) };
        let mut batch = door.take(&mut input, moment, &Server(role));
        if batch.is_empty() {
            return (String::from_utf8_lossy(&out).replace("\r\n", " ").trim().to_owned(), jobs);
        }
        while let Some(job) = batch.job() {
            batch.answer(answer(&job));
            jobs.push(job);
        }
        door.finish(batch, &mut out);
    }
}

fn fails(_: &Job) -> Answered {
    Answered::Failed("ERR nothing is here".to_owned())
}

#[test]
fn a_statement_is_asked_by_itself_and_its_rows_are_maps() {
    let row = vec![Value::Integer(1), Value::Real(2.5), Value::Text("x".into()), Value::Null];
    let result = StatementResult {
        columns: ["a", "b", "c", "d"].map(str::to_owned).into(),
        rows: vec![row],
        ..StatementResult::default()
    };
    let (out, jobs) = jobs(Role::Read, "PING\nQ.SQL \"SELECT ?\" 5 \"\\xff\"\nPING", |_| {
        Answered::Ran(vec![SqlReply::Statement(result.clone()).into()])
    });
    assert_eq!(out, "+PONG *1 *8 $1 a :1 $1 b $3 2.5 $1 c $1 x $1 d $-1 +PONG");
    let [Job::Run { is_write: false, commands, .. }] = jobs.as_slice() else { panic!("{jobs:?}") };
    let [Command::Sql(SqlCommand::Statement(statement))] = commands.as_slice() else { panic!("{commands:?}") };
    let blob = Value::Blob(Bytes::from_static(b"\xff"));
    assert_eq!(statement.params, [Value::Text("5".into()).into(), blob.into()]);
}

#[test]
fn users_who_only_read_run_no_statement_that_writes() {
    let (out, jobs) = jobs(Role::Read, "Q.SQL \"DELETE FROM t\"\nQ.SQL \"SELECT 1\"", fails);
    let refused = "-NOPERM User default has no permissions to run the 'q.sql' command";
    assert_eq!((out, jobs.len()), (format!("{refused} -ERR nothing is here"), 1));
}

#[test]
fn a_transaction_as_a_whole_is_one_atomic_job() {
    let lines = "SET a 1\nMULTI\nQ.ATOMIC\nSET b 1\nQ.SQL \"DELETE FROM t\"\nEXEC\nSET c 1\nQ.ATOMIC";
    let (out, jobs) = jobs(Role::Write, lines, fails);
    assert_eq!(out, {
        "-ERR nothing is here +OK +QUEUED +QUEUED +QUEUED -ERR nothing is here -ERR nothing is here -ERR Q.ATOMIC \
         without MULTI"
    });
    let shape = |job: &Job| match job {
        Job::Run { is_write: true, terms, commands, .. } => (terms.is_atomic, commands.len()),
        other => panic!("{other:?}"),
    };
    let shapes: Vec<_> = jobs.iter().map(shape).collect();
    assert_eq!(shapes, [(false, 1), (true, 2), (false, 1)]);
}

#[test]
fn a_transaction_as_a_whole_has_no_command_that_is_wrong() {
    for wrong in ["INCRBY a x", "Q.CAS a x y", "SELECT 99"] {
        for lines in [format!("Q.ATOMIC\nSET b 1\n{wrong}"), format!("{wrong}\nSET b 1\nQ.ATOMIC")] {
            let (out, jobs) = jobs(Role::Write, &format!("MULTI\n{lines}\nEXEC"), fails);
            let aborted = "+QUEUED -EXECABORT Transaction discarded because of: ";
            assert!(out.contains(aborted) && jobs.is_empty(), "{out} {jobs:?}");
        }
    }
}

#[test]
fn a_transaction_that_fails_leaves_the_connection_as_it_was() {
    let queued = "SET a 1\nSELECT 3\nCLIENT SETNAME me\nHELLO 3\nSET a 2";
    let spaces = |lines: &str| {
        let (out, jobs) = jobs(Role::Write, &format!("{lines}\nCLIENT GETNAME\nGET a"), fails);
        assert!(out.ends_with("$-1 -ERR nothing is here"), "{out}");
        let Some(Job::Run { commands, .. }) = jobs.last() else { panic!("{jobs:?}") };
        let [Command::Keys(command)] = commands.as_slice() else { panic!("{commands:?}") };
        assert_eq!(command.space, 0, "{lines}");
    };
    spaces(&format!("MULTI\n{queued}\nEXEC"));
    spaces(&format!("MULTI\n{queued}\nQ.ID n EXEC"));
    spaces(&format!("MULTI\n{queued}\nQ.ATOMIC\nINCRBY a x\nEXEC"));
}

/// Other clients of the port wait for these.
#[test]
fn commands_that_take_long_are_done_one_by_one_and_few_in_a_transaction() {
    let (_, jobs) = self::jobs(Role::Write, "GET a\nGET b\nLCS a b\nLCS a b\nSORT_RO a\nGET a\nGET b", fails);
    assert_eq!(jobs.len(), 5, "{jobs:?}");
    let transaction = |costly| format!("MULTI\n{}EXEC", "LCS a b\n".repeat(costly));
    let (_, jobs) = self::jobs(Role::Write, &transaction(TRANSACTION_COSTLY_MAX), fails);
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    let (out, jobs) = self::jobs(Role::Write, &transaction(TRANSACTION_COSTLY_MAX + 1), fails);
    assert!(out.ends_with("-EXECABORT Transaction discarded because of previous errors.") && jobs.is_empty(), "{out}");
}

#[test]
fn a_transaction_has_no_queries() {
    let (out, jobs) = jobs(Role::Write, "MULTI\nQ.SQL \"SELECT 1\"\nEXEC", fails);
    let refused = "-ERR in a transaction, Q.SQL is for statements that write; query before MULTI";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    assert_eq!((out, jobs.len()), (format!("+OK {refused} {aborted}"), 0));
}

#[test]
fn a_request_with_a_name_is_the_same_when_it_is_sent_again() {
    let (_, jobs) = jobs(Role::Write, "Q.ID n SPOP s\nQ.ID n SPOP s\nMULTI\nSPOP s\nQ.ID n EXEC\nSPOP s", fails);
    let jobs: Vec<_> = jobs.iter().map(|job| format!("{job:?}")).collect();
    let [first, second, transaction, other] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!(first, second);
    assert!([first, transaction].iter().all(|job| job.contains("key: Some(b\"n\")")), "{jobs:?}");
    assert!(other.contains("key: None"), "{other}");
    let others = ["GET a", "BLPOP a 0", "QUIT", "Q.LOCK a 9", "CONFIG SET slowlog-max-len 9"];
    let (out, none) = self::jobs(Role::Write, &others.map(|other| format!("Q.ID n {other}")).join("\n"), fails);
    let refused = "-ERR only a command that writes, and does not wait, can have a name";
    assert_eq!((out, none.len()), ([refused; 5].join(" "), 0));
}

#[test]
fn the_level_holds_for_what_follows() {
    let (out, jobs) = jobs(Role::Read, "GET a\nQ.LEVEL\nQ.LEVEL linearizable\nQ.LEVEL\nQ.LEVEL x\nGET a", fails);
    let refused = "-ERR the level is local, linearizable, bounded=TIME or at-least=POSITION";
    assert_eq!(out, format!("-ERR nothing is here $5 local +OK $12 linearizable {refused} -ERR nothing is here"));
    let level_of = |job: &Job| match job {
        Job::Run { level, .. } => level.clone(),
        other => panic!("{other:?}"),
    };
    let levels: Vec<_> = jobs.iter().map(level_of).collect();
    assert_eq!(levels, [None, Some(Bytes::from_static(b"linearizable"))]);
}

#[test]
fn a_client_that_waits_for_a_lock_asks_again_once_it_was_granted() {
    use quorate_model::locks::{Lease, LocksReply, Token};
    let mut asked = 0;
    let (out, jobs) = jobs(Role::Write, "Q.LOCK a 1000 HOLDER ann WAIT 500\nPING", |job| {
        asked += 1;
        match (job, asked) {
            (Job::Run { .. }, 1) => Answered::Ran(vec![LocksReply::Busy(Lease::default()).into()]),
            (Job::Run { .. }, _) => Answered::Ran(vec![LocksReply::Held(Lease { token: Token(7), left: 1 }).into()]),
            _ => Answered::Woken,
        }
    });
    assert_eq!(out, "*2 :7 $3 ann +PONG");
    let [_, Job::Wait(wait), _] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert!(matches!(wait.awaited, Awaited::Lock(_)));
    assert_eq!(wait.until, Some(NOW + 500_000_000));
}
