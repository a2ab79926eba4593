//! Commands on the server, on its parameters, and on commands.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests stop at the first surprise")]

mod support;

use quorate_resp::differential::MemoryDoor;
use support::talk;

#[test]
fn all_is_saved_and_there_are_no_scripts() {
    let mut door = MemoryDoor::new(1);
    let lines = [
        ("LASTSAVE", ":1700000000"),
        ("SAVE", "+OK"),
        ("BGSAVE SCHEDULE", "+Background saving started"),
        ("BGREWRITEAOF", "+Background append only file rewriting started"),
        ("WAITAOF 1 0 0", "*2 :1 :0"),
        ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
        ("SCRIPT EXISTS a b\nSCRIPT FLUSH ASYNC", "*2 :0 :0 +OK"),
        ("FUNCTION LIST\nFUNCTION FLUSH", "*0 +OK"),
        ("MULTI\nSAVE\nDISCARD", "+OK -ERR Command 'save' not allowed inside a transaction +OK"),
    ];
    for (lines, replies) in lines {
        assert_eq!(talk(&mut door, lines), replies, "{lines}");
    }
}

#[test]
fn help_names_what_is_below_a_command() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "MEMORY HELP"), {
        "*5 +MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are: +USAGE \
         +    Returns about how many bytes a key takes. +HELP +    Prints this help."
    });
    for of in ["CLIENT", "CONFIG", "SLOWLOG", "LATENCY", "OBJECT", "PUBSUB", "SCRIPT", "FUNCTION", "COMMAND"] {
        let told = talk(&mut door, &format!("{of} HELP"));
        assert!(told.contains(&format!("+{of} <subcommand>")) && told.contains(" +HELP "), "{told}");
    }
}

#[test]
fn the_slow_log_is_read_and_configured() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "SLOWLOG GET\nSLOWLOG GET -1\nSLOWLOG LEN\nSLOWLOG RESET"), "*0 *0 :0 +OK");
    let count = "-ERR count should be greater than or equal to -1";
    assert_eq!(talk(&mut door, "SLOWLOG GET -2\nSLOWLOG GET x"), format!("{count} {count}"));
    assert_eq!(talk(&mut door, "CONFIG SET slowlog-log-slower-than 5 slowlog-max-len 7\nCONFIG GET slowlog*"), {
        "+OK *4 $23 slowlog-log-slower-than $1 5 $15 slowlog-max-len $1 7"
    });
    assert!(talk(&mut door, "CONFIG SET slowlog-max-len -1").starts_with("-ERR CONFIG SET failed"));
    assert!(talk(&mut door, "CONFIG SET appendonly no").starts_with("-ERR CONFIG SET failed"));
    assert_eq!(talk(&mut door, "CONFIG SET appendonly yes"), "+OK");
}

#[test]
fn the_table_describes_itself() {
    let mut door = MemoryDoor::new(1);
    assert_eq!(talk(&mut door, "COMMAND GETKEYS MSET a 1 b 2"), "*2 $1 a $1 b");
    assert_eq!(talk(&mut door, "COMMAND GETKEYS LMPOP 2 a b LEFT"), "*2 $1 a $1 b");
    assert_eq!(talk(&mut door, "COMMAND GETKEYS ZUNIONSTORE c 2 a b WEIGHTS 1 2"), "*3 $1 c $1 a $1 b");
    assert!(talk(&mut door, "COMMAND INFO get nosuch").starts_with("*2 *10 $3 get :2 *1 +readonly :1 :1 :1"));
    assert!(talk(&mut door, "COMMAND DOCS object").contains("$15 object|encoding"));
    assert_eq!(talk(&mut door, "COMMAND LIST FILTERBY PATTERN zrev*").split(' ').next(), Some("*4"));
}

#[test]
fn wrong_requests_have_the_errors_of_redis() {
    let mut door = MemoryDoor::new(1);
    talk(&mut door, "ZADD z 0 a\nHSET h f v");
    let parameter =
        |name: &str, why: &str| format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
    let label = |name| format!("-ERR {name} cannot contain spaces, newlines or special characters.");
    let not_integer = "argument couldn't be parsed into an integer";
    let too_low = |least| format!("argument must be between {least} and 9223372036854775807 inclusive");
    let syntax = "-ERR syntax error".to_owned();
    for (request, reply) in [
        ("ZRANGE z 0 1 BYLEX BYSCORE", syntax.clone()),
        ("ZRANGE z 0 1 BYSCORE BYLEX", syntax.clone()),
        ("ZRANGE z 0 1 REV REV", syntax.clone()),
        ("ZRANGESTORE z z 0 1 BYSCORE BYLEX", syntax.clone()),
        ("HGETDEL h FOO 1 f", syntax.clone()),
        ("OBJECT FREQ missing", "$-1".to_owned()),
        ("MEMORY USAGE z SAMPLES -1", syntax.clone()),
        ("CLIENT SETINFO lib-name a\x7fb", label("lib-name")),
        ("CLIENT SETINFO Lib-Ver a\x7fb", label("Lib-Ver")),
        ("CLIENT SETNAME a\x7fb", label("Client names")),
        ("CLIENT LIST ID", syntax.clone()),
        ("CLIENT LIST ID x", syntax.clone()),
        ("CLIENT LIST ID 1 x", syntax.clone()),
        ("CLIENT LIST ID 1 0", "-ERR client-id should be greater than 0".to_owned()),
        ("CLIENT LIST ID 2 TYPE normal", "$0".to_owned()),
        ("COMMAND COUNT x", "-ERR wrong number of arguments for 'command|count' command".to_owned()),
        ("COMMAND GETKEYS", "-ERR wrong number of arguments for 'command|getkeys' command".to_owned()),
        ("COMMAND GETKEYS get", "-ERR Invalid number of arguments specified for command".to_owned()),
        ("COMMAND GETKEYS nosuch a", "-ERR Invalid command specified".to_owned()),
        ("COMMAND GETKEYS ping", "-ERR The command has no key arguments".to_owned()),
        ("COMMAND GETKEYS zunion 3 a b", "-ERR Invalid arguments specified for command".to_owned()),
        ("COMMAND GETKEYS watch a", "*1 $1 a".to_owned()),
        ("COMMAND INFO nosuch", "*1 $-1".to_owned()),
        ("CONFIG SET slowlog-max-len -1", parameter("slowlog-max-len", &too_low(0))),
        ("CONFIG SET Slowlog-Max-Len x", parameter("slowlog-max-len", not_integer)),
        ("CONFIG SET slowlog-log-slower-than x", parameter("slowlog-log-slower-than", not_integer)),
        ("CONFIG SET slowlog-log-slower-than -2", parameter("slowlog-log-slower-than", &too_low(-1))),
        ("CONFIG SET slowlog-max-len 1 SLOWLOG-max-len 1", parameter("SLOWLOG-max-len", "duplicate parameter")),
        ("CONFIG SET slowlog-max-len 1 x", syntax.clone()),
        ("CONFIG GET SLOWLOG-max-len", "*2 $15 SLOWLOG-max-len $3 128".to_owned()),
    ] {
        assert_eq!(talk(&mut door, request), reply, "{request}");
    }
}

#[test]
fn all_parameters_are_changed_or_none() {
    let mut door = MemoryDoor::new(1);
    for wrong in ["nosuch 1", "slowlog-log-slower-than x"] {
        assert!(talk(&mut door, &format!("CONFIG SET slowlog-max-len 1 {wrong}")).starts_with("-ERR"));
    }
    assert!(talk(&mut door, "CONFIG GET slowlog-max-len").ends_with(" 128"));
    assert_eq!(talk(&mut door, "CONFIG SET slowlog-max-len 1 slowlog-log-slower-than 5"), "+OK");
    assert_eq!(talk(&mut door, "CONFIG GET slowlog-*").matches("$1").count(), 3);
}
