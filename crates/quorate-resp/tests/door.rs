//! A connection: what becomes of requests that arrive together, of transactions, logins and subscriptions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests stop at the first surprise")]

mod support;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quorate_keys::KeysReply;
use quorate_resp::differential::MemoryDoor;
use quorate_resp::limits::{ARGUMENTS_MAX, SUBSCRIPTION_BYTES_MAX, TRANSACTION_BYTES_MAX};
use quorate_resp::{Answered, Awaited, Batch, Common, Connection, Cursors, Door, Host, Job, Moment, NOAUTH, Role};
use support::{NOW, talk};

#[test]
fn requests_that_arrive_together_are_one_write_between_two_reads() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "GET a\nGET b\nSET a 1\nGET a\nSET a 2\nINCR a\nGET a\nGET a"), {
        "$-1 $-1 +OK $1 1 +OK :3 $1 3 $1 3"
    });
    assert_eq!(door.jobs(), 3);
}

#[test]
fn what_reads_several_keys_reads_one_state() {
    let requests =
        ["MGET a b c", "EXISTS a b", "SUNION a b", "SINTERCARD 2 a b", "ZDIFF 2 a b", "Q.GETV a", "HGETALL h"];
    for request in requests {
        let mut door = MemoryDoor::new(1);
        talk(&mut door, request);
        assert_eq!(door.jobs(), 1, "{request}");
    }
}

#[test]
fn a_request_that_continues_sees_what_was_before_it_only() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "ZADD z 1 m\nZRANDMEMBER z\nDEL z\nZRANDMEMBER z\nDBSIZE"), ":1 $1 m :1 $-1 :0");
}

#[test]
fn scans_go_on_where_they_were_over_any_connection() {
    let mut door = MemoryDoor::new(1);
    for number in 0..300 {
        talk(&mut door, &format!("HSET h field{number:03} {number}\nSET key{number:03} v"));
    }
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let page = talk(&mut door, &format!("SCAN {cursor} MATCH key* COUNT 7"));
        let words: Vec<&str> = page.split(' ').filter(|word| !word.starts_with(['*', '$'])).collect();
        cursor = words[0].to_owned();
        found.extend(words[1..].iter().map(|word| (*word).to_owned()));
        if cursor == "0" {
            break;
        }
    }
    let expected: Vec<String> = (0..300).map(|number| format!("key{number:03}")).collect();
    assert_eq!(found, expected);
    assert!(talk(&mut door, "HSCAN h 12345").starts_with("-ERR unknown cursor"));
}

#[test]
fn transactions_depend_on_what_they_watch() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "WATCH a\nMULTI\nSET a 1\nGET a\nEXEC"), "+OK +OK +QUEUED +QUEUED *2 +OK $1 1");
    assert_eq!(talk(&mut door, "WATCH a\nSET a 2\nMULTI\nSELECT 3\nSET a 3\nEXEC\nGET a"), {
        "+OK +OK +OK +QUEUED +QUEUED *-1 $1 2"
    });
    assert_eq!(talk(&mut door, "WATCH a\nUNWATCH\nSET a 4\nMULTI\nEXEC"), "+OK +OK +OK +OK *0");
}

#[test]
fn a_failed_command_of_a_transaction_does_not_stop_the_others() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "MULTI\nSET a x\nINCR a\nSET b 1\nEXEC"), {
        "+OK +QUEUED +QUEUED +QUEUED *3 +OK -ERR value is not an integer or out of range +OK"
    });
}

#[test]
fn subscribers_of_version_2_may_do_little_else() {
    let mut door = MemoryDoor::new(1);
    let told = "*3 $9 subscribe $1 a :1 *3 $10 psubscribe $2 b* :2";
    assert_eq!(talk(&mut door, "SUBSCRIBE a\nPSUBSCRIBE b*"), told);
    assert!(talk(&mut door, "GET a").starts_with("-ERR Can't execute 'get'"));
    assert_eq!(talk(&mut door, "PING"), "*2 $4 pong $0");
    assert_eq!(talk(&mut door, "UNSUBSCRIBE\nPUNSUBSCRIBE"), "*3 $11 unsubscribe $1 a :1 *3 $12 punsubscribe $2 b* :0");
    assert_eq!(talk(&mut door, "GET a"), "$-1");
}

#[test]
fn requests_that_can_not_be_read_close_the_connection() {
    let mut door = MemoryDoor::new(1);
    let out = door.send(b"PING\r\n*1\r\n:1\r\nPING\r\n", NOW);
    assert_eq!(out, "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n");
    assert!(door.is_closed());
}

#[test]
fn clients_wait_until_a_key_changes() {
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    let moment = || Moment { now: NOW, seed: 1, space: 0, cursors: Arc::new(Cursors::new(1)) };
    talk_to_users(&mut door, "AUTH writer right\n");
    let mut input = BytesMut::from("BLPOP a b 1.5\r\nPING\r\n");
    let mut batch = door.take(&mut input, moment(), &Users);
    assert_eq!(batch.len(), 1);
    let nothing = || Answered::Ran(vec![KeysReply::Missing.into()]);
    for answer in [Answered::Woken, Answered::Woken] {
        assert!(matches!(batch.job(), Some(Job::Run { is_write: true, .. })));
        batch.answer(nothing());
        let Some(Job::Wait(wait)) = batch.job() else { panic!("it does not wait") };
        assert_eq!(wait.awaited, Awaited::Keys { space: 0, keys: vec!["a".into(), "b".into()] });
        assert_eq!(wait.until, Some(NOW + 1_500_000_000));
        batch.answer(answer);
    }
    assert!(matches!(batch.job(), Some(Job::Run { .. })));
    let found = KeysReply::MembersOf("b".into(), vec!["x".into()]);
    batch.answer(Answered::Ran(vec![found.into()]));
    assert!(batch.job().is_none());
    let mut out = BytesMut::new();
    door.finish(batch, &mut out);
    assert_eq!(out, "*2\r\n$1\r\nb\r\n$1\r\nx\r\n");
}

#[test]
fn a_client_that_can_not_wait_gets_the_reason() {
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    talk_to_users(&mut door, "AUTH writer right\n");
    let moment = Moment { now: NOW, seed: 1, space: 0, cursors: Arc::new(Cursors::new(1)) };
    let mut batch = door.take(&mut BytesMut::from("BLPOP a 0\r\n"), moment, &Users);
    assert!(matches!(batch.job(), Some(Job::Run { .. })));
    batch.answer(Answered::Ran(vec![KeysReply::Missing.into()]));
    assert!(matches!(batch.job(), Some(Job::Wait(_))));
    batch.answer(Answered::Failed("TRYAGAIN too many wait".to_owned()));
    assert!(batch.job().is_none());
    let mut out = BytesMut::new();
    door.finish(batch, &mut out);
    assert_eq!(out, "-TRYAGAIN too many wait\r\n");
}

#[test]
fn the_audience_is_that_of_all_connections_of_a_node() {
    let common = Arc::new(Common::default());
    let connect = |id| Door::new(Connection::new(id, "here", NOW, Arc::clone(&common)));
    let (mut first, mut second, mut asking) = (connect(1), connect(2), connect(3));
    talk_to_users(&mut first, "AUTH writer right\nSUBSCRIBE a b a\nPSUBSCRIBE a*\n");
    talk_to_users(&mut second, "AUTH writer right\nSUBSCRIBE a\nPSUBSCRIBE a* b*\n");
    talk_to_users(&mut asking, "AUTH writer right\n");
    let asked = "PUBSUB CHANNELS\nPUBSUB CHANNELS b*\nPUBSUB NUMSUB a b c\nPUBSUB NUMPAT\n";
    assert_eq!(talk_to_users(&mut asking, asked), "*2 $1 a $1 b *1 $1 b *6 $1 a :2 $1 b :1 $1 c :0 :2");
    assert_eq!(["a", "ab", "b", "c"].map(|channel| common.audience.reached(channel.as_bytes())), [4, 2, 2, 0]);
    talk_to_users(&mut first, "UNSUBSCRIBE a\nRESET\n");
    assert_eq!(talk_to_users(&mut asking, asked), "*1 $1 a *0 *6 $1 a :1 $1 b :0 $1 c :0 :2");
    drop(second);
    assert_eq!(talk_to_users(&mut asking, asked), "*0 *0 *6 $1 a :0 $1 b :0 $1 c :0 :0");
    assert!(talk_to_users(&mut asking, "PUBSUB HELP\n").starts_with("*14 +PUBSUB <subcommand>"));
    assert_eq!(talk_to_users(&mut asking, "PUBSUB CHANNELS a b\nPUBSUB none\n"), {
        "-ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP. -ERR unknown subcommand \
         'none'. Try PUBSUB HELP."
    });
}

#[test]
fn shard_channels_have_names_of_their_own() {
    let common = Arc::<Common>::default();
    let connect = |id| Door::new(Connection::new(id, "here", NOW, Arc::clone(&common)));
    let (mut door, mut asking) = (connect(1), connect(2));
    let told = talk_to_users(&mut door, "AUTH writer right\nSSUBSCRIBE a b a\nSUBSCRIBE b\nPSUBSCRIBE *\n");
    assert_eq!(told, {
        "+OK *3 $10 ssubscribe $1 a :1 *3 $10 ssubscribe $1 b :2 *3 $10 ssubscribe $1 a :2 *3 $9 subscribe $1 b :1 \
         *3 $10 psubscribe $1 * :2"
    });
    talk_to_users(&mut asking, "AUTH writer right\n");
    let asked = "PUBSUB SHARDCHANNELS\nPUBSUB SHARDCHANNELS b*\nPUBSUB SHARDNUMSUB a c\n";
    assert_eq!(talk_to_users(&mut asking, asked), "*2 $1 a $1 b *1 $1 b *4 $1 a :1 $1 c :0");
    let event = |door: &Door, channel: &'static str| {
        let mut out = BytesMut::new();
        door.event(&channel.into(), &"x".into(), &mut out);
        String::from_utf8_lossy(&out).replace("\r\n", " ").trim().to_owned()
    };
    assert_eq!(event(&door, "__shard__:a"), "*3 $8 smessage $1 a $1 x");
    assert_eq!(event(&door, "__shard__:c"), "");
    assert_eq!(event(&door, "a"), "*4 $8 pmessage $1 * $1 a $1 x");
    assert_eq!(["__shard__:a", "__shard__:c", "a"].map(|name| common.audience.reached(name.as_bytes())), [1, 0, 1]);
    assert_eq!(talk_to_users(&mut door, "UNSUBSCRIBE\nPUNSUBSCRIBE\nGET a\nSUNSUBSCRIBE\nSUNSUBSCRIBE\nPING\n"), {
        "*3 $11 unsubscribe $1 b :1 *3 $12 punsubscribe $1 * :0 -ERR Can't execute 'get': only (P|S)SUBSCRIBE / \
         (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context *3 $12 sunsubscribe $1 a :1 \
         *3 $12 sunsubscribe $1 b :0 *3 $12 sunsubscribe $-1 :0 +PONG"
    });
    assert_eq!(talk_to_users(&mut door, "MULTI\nSSUBSCRIBE a\nEXEC\n"), {
        "+OK +QUEUED *1 -ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"
    });
}

#[test]
fn sort_reads_elements_then_what_keys_say_of_them_and_stores_at_last() {
    let mut door = MemoryDoor::new(1);
    talk(&mut door, "RPUSH l 3 1 2\nMSET w1 9 w2 8 w3 7 v1 A v2 B\nHSET h1 f 5\nZADD z 2 a 1 b\nSADD s x\nSADD t b a");
    let lists = [
        ("SORT l", "*3 $1 1 $1 2 $1 3"),
        ("SORT l DESC LIMIT 1 1", "*1 $1 2"),
        ("SORT l BY nosort DESC", "*3 $1 2 $1 1 $1 3"),
        ("SORT_RO l BY w* GET v* GET #", "*6 $-1 $1 3 $1 B $1 2 $1 A $1 1"),
        ("SORT l BY h*->f GET h*->f GET v", "*6 $-1 $-1 $-1 $-1 $1 5 $-1"),
        ("SORT z BY nosort DESC", "*2 $1 a $1 b"),
        ("SORT z", "-ERR One or more scores can't be converted into double"),
        ("SORT h1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("SORT l BY w* GET v* STORE s\nLRANGE s 0 -1", ":3 *3 $0  $1 B $1 A"),
        ("SORT t BY nosort DESC STORE d\nLRANGE d 0 -1", ":2 *2 $1 b $1 a"),
        ("SORT none STORE s\nEXISTS s", ":0 :0"),
        ("SORT_RO l STORE s", "-ERR syntax error"),
    ];
    for (lines, replies) in lists {
        assert_eq!(talk(&mut door, lines), replies, "{lines}");
    }
    let refused = "-ERR the reply has several pages, which a transaction can't read";
    assert_eq!(talk(&mut door, "MULTI\nSORT l STORE d\nSORT l\nEXEC"), {
        format!("+OK +QUEUED +QUEUED *2 {refused} *3 $1 1 $1 2 $1 3")
    });
    assert!(talk(&mut door, "Q.ID once SORT l STORE d").starts_with("-ERR only a command that writes"));
}

#[test]
fn sort_looks_up_and_repeats_a_limited_number_of_values() {
    let mut door = MemoryDoor::new(1);
    let items: Vec<_> = (0..10_001).map(|number: u32| Bytes::from(number.to_string())).collect();
    let push = [vec!["RPUSH".into(), "l".into()], items].concat();
    door.ask(&[push], NOW).unwrap();
    assert!(talk(&mut door, "SORT l BY w*").starts_with("-ERR SORT looks up at most 10000 keys"));
    assert!(talk(&mut door, "SORT l LIMIT 0 5001 GET w* GET v*").starts_with("-ERR SORT looks up at most 10000 keys"));
    assert_eq!(talk(&mut door, "SORT l LIMIT 10000 5 GET w* GET #"), "*2 $-1 $5 10000");
    let gets = |get: &str| format!("SORT l{}", format!(" GET {get}").repeat(200));
    assert!(talk(&mut door, &gets("w*")).starts_with("-ERR SORT looks up at most 10000 keys"));
    assert!(talk(&mut door, &gets("#")).starts_with("-ERR GET # returns at most 64 MiB"));
    assert!(talk(&mut door, &gets("x")).starts_with("-ERR GET # returns at most 64 MiB"));
}

#[test]
fn events_are_published_in_transactions_too() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "MULTI\nPUBLISH a x\nSET b 1\nEXEC\nPUBLISH a x"), "+OK +QUEUED +QUEUED *2 :0 +OK :0");
}

#[test]
fn a_connection_is_described_by_its_last_command() {
    let mut door = MemoryDoor::new(1);
    let described = "id=1 addr=here name=me age=1700000000 db=2 sub=0 psub=0 ssub=0 multi=-1 watch=0 cmd=client|list \
                     user=default resp=2 lib-name= lib-ver=";
    let list = talk(&mut door, "CLIENT SETNAME me\nSELECT 2\nCLIENT LIST");
    assert!(list.contains(described), "{list}");
    for (filter, is_shown) in [
        ("ID 1", true),
        ("ID 2 1", true),
        ("ID 2", false),
        ("TYPE normal", true),
        ("type NORMAL id 1", true),
        ("TYPE pubsub", false),
        ("TYPE replica", false),
        ("ADDR here USER default NAME me DB 2 MAXAGE 10", true),
        ("ADDR there", false),
        ("USER ann", false),
        ("MAXAGE 1800000000", false),
        ("SKIPME yes", false),
    ] {
        assert_eq!(talk(&mut door, &format!("CLIENT LIST {filter}")).contains("id=1 "), is_shown, "{filter}");
    }
    assert_eq!(talk(&mut door, "CLIENT LIST TYPE fast"), "-ERR Unknown client type 'fast'");
    assert_eq!(talk(&mut door, "CLIENT LIST ID one"), "-ERR syntax error");
    assert_eq!(talk(&mut door, "CLIENT LIST ALL"), "-ERR syntax error");
    assert_eq!(talk(&mut door, "CLIENT LIST DB 16"), "-ERR DB number should be between 0 and 15");
}

#[test]
fn a_client_may_end_its_own_connection_after_the_reply() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "CLIENT UNBLOCK 1\nCLIENT KILL ID 1\nCLIENT KILL there"), ":0 :0 -ERR No such client");
    assert_eq!(talk(&mut door, "CLIENT KILL LADDR here ID 1").split(' ').next(), Some("-ERR"));
    assert_eq!(talk(&mut door, "RESET\nCLIENT KILL ID 1 SKIPME no\nPING"), "+RESET :1");
    assert!(door.is_closed());
}

#[test]
fn replies_can_be_turned_off() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "CLIENT REPLY SKIP\nPING\nECHO 1\nCLIENT REPLY OFF\nPING\nCLIENT REPLY ON"), "$1 1 +OK");
    assert_eq!(talk(&mut door, "CLIENT REPLY OFF\nCLIENT REPLY SKIP\nPING\nPING\nCLIENT REPLY ON"), "+OK");
}

#[test]
fn commands_below_others_do_not_have_the_rights_of_their_namesakes() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "MULTI\nSLOWLOG RESET\nLATENCY RESET\nEXEC"), "+OK +QUEUED +QUEUED *2 +OK :0");
    assert_eq!(talk(&mut door, "MULTI\nCLIENT REPLY OFF\nDISCARD"), {
        "+OK -ERR Command 'client|reply' not allowed inside a transaction +OK"
    });
    talk(&mut door, "SUBSCRIBE news");
    assert!(talk(&mut door, "SLOWLOG RESET").starts_with("-ERR Can't execute 'slowlog|reset'"));
}

/// A server with users.
struct Users;

impl Host for Users {
    fn anonymous(&self) -> Result<Role, String> {
        Err(NOAUTH.to_owned())
    }

    fn replicas(&self) -> u64 {
        2
    }
}

/// Lets a client of a server with users send bytes; one user reads, and one writes.
fn talk_to_users(door: &mut Door, lines: &str) -> String {
    let (mut input, mut out) = (BytesMut::from(lines.replace('\n', "\r\n").as_bytes()), BytesMut::new());
    loop {
        let moment = Moment { now: NOW, seed: 1, space: 0, cursors: Arc::new(Cursors::new(1)) };
        let mut batch: Batch = door.take(&mut input, moment, &Users);
        if batch.is_empty() {
            return String::from_utf8_lossy(&out).replace("\r\n", " ").trim().to_owned();
        }
        while let Some(job) = batch.job() {
            batch.answer(match job {
                Job::Login { user, password } if password == "right" => {
                    Answered::Login(Some(if user == "writer" { Role::Write } else { Role::Read }))
                }
                Job::Login { .. } => Answered::Login(None),
                _ => Answered::Failed("ERR nothing is here".to_owned()),
            });
        }
        door.finish(batch, &mut out);
    }
}

#[test]
fn clients_log_in_before_they_do_anything_else() {
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    assert_eq!(talk_to_users(&mut door, "GET a\nAUTH reader wrong\nAUTH reader right\nWAIT 1 0\n"), {
        "-NOAUTH Authentication required. -WRONGPASS invalid username-password pair or user is disabled. +OK :2"
    });
    assert_eq!(talk_to_users(&mut door, "SET a 1\nGET a\n"), {
        "-NOPERM User reader has no permissions to run the 'set' command -ERR nothing is here"
    });
    assert_eq!(talk_to_users(&mut door, "HELLO 3 AUTH writer right SETNAME me\n").split(' ').next(), Some("%7"));
    assert_eq!(talk_to_users(&mut door, "SET a 1\nCLIENT GETNAME\n"), "-ERR nothing is here $2 me");
}

#[test]
fn a_password_alone_is_an_error_without_users_as_in_redis() {
    let mut door = MemoryDoor::new(1);
    assert!(talk(&mut door, "AUTH secret").starts_with("-ERR AUTH <password> called without any password configured"));
    assert_eq!(talk(&mut door, "AUTH default secret\nAUTH ann secret\nSET a 1"), "+OK +OK +OK");
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    assert_eq!(talk_to_users(&mut door, "AUTH right\nPING\n"), "+OK +PONG");
}

/// A server that does not know its users yet.
struct Starting;

impl Host for Starting {
    fn anonymous(&self) -> Result<Role, String> {
        Err("TRYAGAIN not yet".to_owned())
    }
}

#[test]
fn a_client_of_a_server_that_starts_is_not_told_to_log_in() {
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    let moment = Moment { now: NOW, seed: 1, space: 0, cursors: Arc::new(Cursors::new(1)) };
    for request in ["PING\r\n", "HELLO 3\r\n"] {
        let (batch, mut out) = (door.take(&mut BytesMut::from(request), moment.clone(), &Starting), BytesMut::new());
        door.finish(batch, &mut out);
        assert_eq!(out, "-TRYAGAIN not yet\r\n");
    }
}

#[test]
fn what_a_connection_holds_is_limited_by_its_bytes() {
    let mut door = MemoryDoor::new(1);
    let name = |number: u8| Bytes::from(vec![number; SUBSCRIPTION_BYTES_MAX / 4]);
    let subscribe = |number| vec![Bytes::from("SUBSCRIBE"), name(number)];
    let mut told = |request: Vec<Bytes>| door.ask(&[request], NOW).unwrap().remove(0);
    for number in [1, 2, 3, 3, 4] {
        assert!(!told(subscribe(number)).is_error(), "{number}");
    }
    assert!(told(subscribe(5)).is_error());
    told(vec!["UNSUBSCRIBE".into(), name(4)]);
    assert!(!told(subscribe(5)).is_error());
    told(vec!["RESET".into()]);
    // Arguments without bytes take memory, too.
    told(vec!["MULTI".into()]);
    let request = [vec![Bytes::from("DEL")], vec![Bytes::new(); ARGUMENTS_MAX - 1]].concat();
    let queued = (0..).take_while(|_| !told(request.clone()).is_error()).count();
    assert!(queued * ARGUMENTS_MAX * size_of::<Bytes>() <= TRANSACTION_BYTES_MAX && queued > 0, "{queued}");
    assert!(told(vec!["EXEC".into()]).is_error());
}

#[test]
fn patterns_are_all_taken_or_none() {
    let mut door = MemoryDoor::new(1);
    let long = "a".repeat(2 << 10);
    assert!(talk(&mut door, &format!("PSUBSCRIBE a* {long}")).starts_with("-ERR the pattern"));
    assert_eq!(talk(&mut door, "GET a"), "$-1");
}

#[test]
fn events_are_pushed_once_for_each_subscription() {
    let mut door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
    talk_to_users(&mut door, "HELLO 3 AUTH writer right\nSUBSCRIBE news\nPSUBSCRIBE n*\n");
    let mut out = BytesMut::new();
    door.event(&Bytes::from("news"), &Bytes::from("x"), &mut out);
    door.event(&Bytes::from("other"), &Bytes::from("x"), &mut out);
    assert_eq!(
        out,
        ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n>4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$1\r\nx\r\n"
    );
}
