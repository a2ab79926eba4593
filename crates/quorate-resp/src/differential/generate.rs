//! Random requests: all commands of the door, on few keys, with all types, wrong types and wrong words.

use bytes::Bytes;

#[cfg(test)]
mod tests;

/// The most requests that are sent together.
const REQUESTS_PER_PIPELINE: u64 = 20;

/// Requests by their words. `a|b` is one of these words, `?w` may be left out, `w+` is there up to three times, and
/// `a,b` are two words that belong together. Letters stand for words: K a key, V a value, M a field or member, I an
/// integer, N a small one, F a number, D a short decimal, B the place of a bit, S and L bounds by score and by name,
/// T a duration, A a time, and G a pattern.
const TEMPLATES: &[(char, &str)] = &[
    ('s', "get K"),
    ('s', "mget K+"),
    ('s', "strlen K"),
    ('s', "getrange|substr K I I"),
    ('s', "set K V ?NX|XX ?GET"),
    ('s', "set K V"),
    ('s', "set K V EX|PX T"),
    ('s', "set K V EXAT|PXAT A ?GET"),
    ('s', "set K V KEEPTTL ?GET ?XX"),
    ('s', "set K V IFEQ V"),
    ('s', "setnx K V"),
    ('s', "setex|psetex K T V"),
    ('s', "getset K V"),
    ('s', "getdel K"),
    ('s', "getex K ?PERSIST"),
    ('s', "getex K EX|PX T"),
    ('s', "mset K,V+"),
    ('s', "msetnx K,V+"),
    ('s', "append K V"),
    ('s', "setrange K N V"),
    ('s', "incr|decr K"),
    ('s', "incrby|decrby K I"),
    ('s', "incrbyfloat K x|nan|inf"),
    ('f', "set K D"),
    ('f', "incrbyfloat K D"),
    ('f', "hset K M D"),
    ('f', "hincrbyfloat K M D"),
    ('f', "del K"),
    ('s', "getbit K B"),
    ('s', "setbit K B 0|1"),
    ('s', "bitcount K"),
    ('s', "bitcount K I I ?BYTE|BIT"),
    ('s', "bitpos K 0|1 ?I"),
    ('s', "bitpos K 0|1 I I ?BYTE|BIT"),
    ('s', "bitop AND|OR|XOR K K+"),
    ('s', "bitop NOT K K"),
    ('s', "bitfield K ?OVERFLOW,WRAP|SAT|FAIL SET|INCRBY u8|i5|u63|i64|u1 B|#1 I GET u4|i8 B"),
    ('s', "bitfield_ro K GET u4|i8|u64 B|#2"),
    ('l', "lpos K V ?RANK,N ?COUNT,N ?MAXLEN,N"),
    ('z', "zunion|zinter 2 K K ?WEIGHTS,F,F ?AGGREGATE,SUM|MIN|MAX ?WITHSCORES"),
    ('z', "zdiff N K+ ?WITHSCORES"),
    ('z', "zunionstore|zinterstore K N K+ ?AGGREGATE,SUM|MIN|MAX"),
    ('z', "zdiffstore K 2 K K"),
    ('z', "zintercard N K+ ?LIMIT,N"),
    ('z', "zrangestore K K I I ?REV"),
    ('z', "zrangestore K K S S BYSCORE ?REV ?LIMIT,N,N"),
    ('z', "zrangestore K K S S BYSCORE ?BYSCORE|BYLEX ?REV ?REV"),
    ('z', "zrange K S S BYSCORE ?BYSCORE|BYLEX ?REV ?REV ?LIMIT,N,N"),
    ('y', "zrange K L L BYLEX BYSCORE|BYLEX ?REV"),
    ('h', "hget|hexists|hstrlen K M"),
    ('h', "hmget K M+"),
    ('h', "hgetall|hkeys|hvals|hlen K"),
    ('h', "hset|hmset K M,V+"),
    ('h', "hset K M,V+"),
    ('h', "hsetnx K M V"),
    ('h', "hdel K M+"),
    ('h', "hincrby K M I"),
    ('h', "hincrbyfloat K M x|nan|inf"),
    ('h', "hrandfield K ?N ?WITHVALUES"),
    ('h', "hscan K 0 ?MATCH,G ?COUNT,N ?NOVALUES"),
    ('h', "hexpire|hpexpire K T ?NX|XX|GT|LT FIELDS 2 M M"),
    ('h', "hexpireat|hpexpireat K A FIELDS 1 M"),
    ('h', "httl|hpttl|hexpiretime|hpexpiretime|hpersist K FIELDS 2 M M"),
    ('h', "hgetdel K FIELDS 2 M M"),
    ('h', "hgetdel K FIELDS|x 1 M"),
    ('h', "hgetdel K ?x FIELDS N M+"),
    ('h', "hgetex K ?PERSIST FIELDS 2 M M"),
    ('h', "hgetex K EX|PX T FIELDS 1 M"),
    ('h', "hsetex K ?FNX|FXX ?KEEPTTL FIELDS 2 M V M V"),
    ('h', "hsetex K EX|PX T FIELDS 1 M V"),
    ('e', "sismember K M"),
    ('e', "smismember K M+"),
    ('e', "smembers|scard K"),
    ('e', "sadd K M+"),
    ('e', "sadd K M M M"),
    ('e', "srem K M+"),
    ('e', "srandmember K ?N"),
    ('e', "spop K 100"),
    ('e', "smove K K M"),
    ('e', "sinter|sunion|sdiff K+"),
    ('e', "sinterstore|sunionstore|sdiffstore K K+"),
    ('e', "sintercard N K+ ?LIMIT,N"),
    ('e', "sscan K 0 ?MATCH,G ?COUNT,N"),
    ('z', "zscore K M"),
    ('z', "zmscore K M+"),
    ('z', "zcard K"),
    ('z', "zrank|zrevrank K M ?WITHSCORE"),
    ('z', "zrandmember K ?N ?WITHSCORES"),
    ('z', "zadd K F,M+"),
    ('z', "zadd K F,M+"),
    ('z', "zadd K ?NX|XX ?GT|LT ?CH ?INCR F,M+"),
    ('z', "zincrby K F M"),
    ('z', "zrem K M+"),
    ('z', "zpopmin|zpopmax K ?N"),
    ('z', "zmpop N K+ MIN|MAX ?COUNT,N"),
    ('z', "zrange K I I ?REV ?WITHSCORES"),
    ('z', "zrange K S S BYSCORE ?REV ?LIMIT,N,N ?WITHSCORES"),
    ('y', "zadd K 0,M+"),
    ('y', "zadd K 0,M+"),
    ('y', "zrange K L L BYLEX ?REV ?LIMIT,N,N"),
    ('z', "zrevrange K I I ?WITHSCORES"),
    ('z', "zrangebyscore|zrevrangebyscore K S S ?WITHSCORES ?LIMIT,N,N"),
    ('y', "zrangebylex|zrevrangebylex K L L ?LIMIT,N,N"),
    ('z', "zcount K S S"),
    ('y', "zlexcount K L L"),
    ('z', "zremrangebyrank K I I"),
    ('z', "zremrangebyscore K S S"),
    ('y', "zremrangebylex K L L"),
    ('z', "zscan K 0 ?MATCH,G ?COUNT,N"),
    ('l', "llen K"),
    ('l', "lrange K I I"),
    ('l', "lindex K I"),
    ('l', "lpush|rpush K V+"),
    ('l', "lpush|rpush K V V V"),
    ('l', "lpushx|rpushx K V+"),
    ('l', "lpop|rpop K ?N"),
    ('l', "lset K N V"),
    ('l', "linsert K BEFORE|AFTER V V"),
    ('l', "lrem K N V"),
    ('l', "ltrim K I I"),
    ('l', "lmove K K LEFT|RIGHT LEFT|RIGHT"),
    ('l', "rpoplpush K K"),
    ('l', "lmpop N K+ LEFT|RIGHT ?COUNT,N"),
    ('l', "blpop|brpop K+ 0.001"),
    ('l', "blmove K K LEFT|RIGHT LEFT|RIGHT 0.001"),
    ('l', "brpoplpush K K 0.001"),
    ('l', "blmpop 0.001 1 K LEFT|RIGHT ?COUNT,N"),
    ('z', "bzpopmin|bzpopmax K+ 0.001"),
    ('z', "bzmpop 0.001 1 K MIN|MAX ?COUNT,N"),
    ('*', "exists|touch|del|unlink K+"),
    ('*', "type K"),
    ('*', "ttl|pttl|expiretime|pexpiretime|persist K"),
    ('*', "expire|pexpire K T ?NX|XX|GT|LT"),
    ('*', "expireat|pexpireat K A ?NX|XX|GT|LT"),
    ('*', "rename|renamenx K K"),
    ('*', "copy K K ?REPLACE ?DB,0|1"),
    ('*', "move K 0|1|99|x"),
    ('*', "keys G"),
    ('*', "dbsize"),
    ('*', "randomkey"),
    ('*', "scan 0 COUNT 1000 ?MATCH,G ?TYPE,string|hash|set|zset|list|x"),
    ('*', "object refcount|encoding|idletime|freq|nosuch K"),
    ('*', "memory usage|nosuch K ?SAMPLES,N ?SAMPLES,N"),
    ('*', "select 0|0|0|1|16|-1|x"),
    ('*', "multi"),
    ('*', "flushdb|flushall ?ASYNC|SYNC"),
    ('*', "exec"),
    ('*', "exec"),
    ('*', "discard"),
    ('*', "watch K+"),
    ('*', "unwatch"),
    ('*', "ping ?V"),
    ('*', "echo V"),
    ('*', "client setname|getname|id|info|nosuch ?M"),
    ('*', "client setinfo lib-name|LIB-VER|x M|V"),
    ('*', "client list ?ID,N+ ?TYPE,normal|pubsub|x"),
    ('*', "client no-evict|no-touch on|off|x"),
    ('*', "client tracking x"),
    ('*', "client reply x"),
    // The version of the protocol is left as it is, mostly.
    ('*', "hello ?4|x|1|V ?SETNAME,M|V ?x"),
    ('*', "hello 2|3 ?SETNAME,M ?AUTH,default|nosuch,V AUTH|SETNAME|x"),
    ('*', "auth V"),
    ('*', "auth default|nosuch V ?V"),
    ('*', "reset"),
    ('*', "command count|nosuch ?V"),
    ('*', "command getkeys get|mget|mset|object|ping|nosuch|watch ?encoding ?K ?K"),
    ('*', "command getkeys zunion|lmpop|zmpop N K+ ?MIN"),
    ('*', "command getkeys zunionstore|zinterstore K N K+"),
    ('*', "command info|docs nosuch"),
    ('*', "command list FILTERBY PATTERN|x mge*|zrevran*|nosuch ?x"),
    ('*', "config get slowlog-max-len|SLOWLOG-max-len|slowlog*|nosuch ?slowlog-log-slower-than"),
    ('*', "config set slowlog-max-len|Slowlog-Max-Len|slowlog-log-slower-than -1|-2|x"),
    ('*', "config set slowlog-max-len N"),
    ('*', "config set slowlog-max-len 7 ?SLOWLOG-MAX-LEN,6 ?nosuch,1 ?slowlog-log-slower-than,-1|-2|x"),
    ('*', "config set notify-keyspace-events q"),
    ('*', "config resetstat|nosuch"),
    ('*', "latency latest|nosuch"),
    ('*', "latency history V"),
    ('*', "latency reset ?V"),
    ('*', "time|role"),
    ('*', "info ?nosuch"),
    ('*', "wait 0 1"),
    ('*', "nosuch V"),
    ('*', "publish V V"),
    ('*', "pubsub numpat|nosuch"),
    ('*', "client|command|config|function|latency|memory|object|pubsub|script|slowlog help"),
    ('*', "pubsub numsub V+"),
    ('*', "pubsub channels ?G"),
    ('*', "spublish V V"),
    ('*', "pubsub shardnumsub V+"),
    ('*', "pubsub shardchannels ?G"),
    ('*', "slowlog get -2|x|0"),
    ('*', "slowlog len|reset|nosuch"),
    ('*', "client kill 1.1.1.1:1|x"),
    ('*', "client kill ADDR 1.1.1.1:1 ID|TYPE|MAXAGE|DB|SKIPME|x 77777|x|yes NAME x"),
    ('*', "client unblock 0|77777|x ?TIMEOUT|ERROR|x"),
    ('*', "script flush ?SYNC|ASYNC|x"),
    ('*', "script exists V+"),
    ('*', "function flush ?SYNC|ASYNC|x"),
    ('*', "function list ?WITHCODE ?LIBRARYNAME,G"),
    ('*', "lastsave"),
    ('*', "waitaof 0 0|x|-1 1|-1|x"),
    ('s', "msetex 2 K V K V ?NX|XX ?KEEPTTL"),
    ('s', "msetex N K V ?NX|XX EX|PX T"),
    ('s', "delifeq K V"),
    ('l', "sort|sort_ro K ?ALPHA ?ASC|DESC ?LIMIT,N,N"),
    ('e', "sort|sort_ro K ?ALPHA ?ASC|DESC ?LIMIT,N,N"),
    ('z', "sort|sort_ro K ?BY,nosort ALPHA ?ASC|DESC ?LIMIT,N,N"),
    ('l', "sort|sort_ro K BY nosort|s*|h1->*|h*->f ?ASC|DESC ?LIMIT,N,N ?GET,#"),
    ('e', "sort|sort_ro K ALPHA ?ASC|DESC GET s*|h*->f|s*->f|#|x|*-> ?GET,#"),
    ('f', "rpush f9 N+"),
    ('f', "sort f9 BY s*|h*->f|f* ?ALPHA ?ASC|DESC ?GET,s* ?STORE,f8"),
    ('f', "lrange f8 0 -1"),
    ('s', "lcs K K ?LEN"),
    ('s', "lcs K K IDX ?MINMATCHLEN,N ?WITHMATCHLEN"),
];

const VALUES: &[&str] =
    &["", "0", "1", "-7", "9223372036854775807", "9223372036854775808", "01", "1.5", "0.125", "abc", "\0\r\n", "10"];
/// Redis adds others with the rounding of its processor's longest type.
const DECIMALS: &[&str] = &["0", "1", "-1.5", "0.125", "2.5e1", "3.1", "-0.1", "abc", "17"];
const OFFSETS: &[&str] = &["0", "3", "7", "11", "20", "100", "-1", "x", "4294967296"];
const MEMBERS: &[&str] = &["", "f", "g", "fa", "h", "a", "b", "1", "2"];
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "3",
    "-3",
    "5",
    "100",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "x",
    "1.5",
    "9223372036854775808",
    "",
];
const SMALL: &[&str] = &["0", "1", "2", "3", "1", "2", "-1", "-2", "5", "x", "40"];
const FLOATS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1.5",
    "0.125",
    "2.5e1",
    "1e10",
    "1e300",
    "inf",
    "-inf",
    "+inf",
    "nan",
    "x",
    "",
    "1e-7",
    "3.1",
    "123456789",
    "1e20",
];
const SCORES: &[&str] = &["-inf", "+inf", "0", "1", "(1", "2", "(2", "3", "-1", "(-inf", "x", "(x", "1.5", "nan"];
const NAMES: &[&str] = &["-", "+", "[a", "(a", "[f", "(fa", "[", "(", "x", "[g", "+", "-"];
const DURATIONS: &[&str] =
    &["100000", "500000", "1000000", "0", "-1", "x", "100000", "9223372036854775807", "-9223372036854775808"];
const TIMES: &[&str] = &["4102444800", "1", "0", "-5", "8000000000", "x", "5000000000000"];
const PATTERNS: &[&str] = &["*", "s*", "?1", "[sh]*", "h[^1]", "f*", "*a", "\\*", "zz", "*1*"];

/// Durations while the test moves the clock.
const SHORT_DURATIONS: &[&str] = &["1", "2", "3", "5", "10", "0", "-1", "x", "100", "1500", "100000"];
/// By how many milliseconds a test moves the clock.
const CLOCK_STEPS: &[u64] = &[1, 1, 2, 3, 5, 10, 100, 499, 500, 1_000, 5_000, 100_000, 86_400_000, 259_200_000];

/// A generator of requests. The same seed generates the same ones.
#[derive(Clone, Debug)]
pub struct Generator {
    state: u64,
    /// The time of the clock that the test moves, in milliseconds since 1970.
    clock: Option<u64>,
}

impl Generator {
    /// Returns a generator for servers whose clocks run: nothing expires during a test.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, clock: None }
    }

    /// Generates requests for servers whose clocks stand still at this time from now on, in milliseconds since 1970.
    pub fn set_clock(&mut self, milliseconds: u64) {
        self.clock = Some(milliseconds);
    }

    /// Returns by how many milliseconds such clocks are to be moved next.
    pub fn step(&mut self) -> u64 {
        *self.pick(CLOCK_STEPS)
    }

    /// Returns requests that are sent together to servers that speak this version of the protocol, and that speak it
    /// after them.
    pub fn pipeline(&mut self, hello: &'static str) -> Vec<Vec<Bytes>> {
        let mut requests: Vec<_> = (0..=self.below(REQUESTS_PER_PIPELINE)).map(|_| self.request()).collect();
        let changes = |request: &Vec<Bytes>| {
            let name = request.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
            name == b"reset" || name == b"hello"
        };
        if requests.iter().any(changes) {
            requests.push(vec!["hello".into(), hello.into()]);
        }
        requests
    }

    /// Returns the next request.
    pub fn request(&mut self) -> Vec<Bytes> {
        let (mut kind, mut template) = *self.pick(TEMPLATES);
        // While a test moves the clock, half of the requests are about times.
        let must_tell_time = self.clock.is_some() && self.below(2) == 0;
        while self.waits_too_long(template) || (must_tell_time && !tells_time(template)) {
            (kind, template) = *self.pick(TEMPLATES);
        }
        let mut words = Vec::new();
        template.split(' ').for_each(|token| self.token(kind, token, &mut words));
        // A short duration would end while the test runs, and other scores than 0 have no order of names.
        let is_kept = kind == 'y' || (self.clock.is_none() && template.contains(" T"));
        if template.contains("0.001") {
            // Another time may be very long.
            return words;
        }
        match self.below(40) {
            0 if words.len() > 1 => _ = words.pop(),
            1 => words.push(self.value()),
            2 if words.len() > 1 && !is_kept => {
                let place = 1 + self.below(words.len() as u64 - 1) as usize;
                let word = self.value();
                if let Some(replaced) = words.get_mut(place) {
                    *replaced = word;
                }
            }
            _ => {}
        }
        words
    }

    /// Returns whether a template is left out since a client would wait: Redis looks for clients that have waited long
    /// enough ten times a second, and they wait for ever while its clock stands still.
    fn waits_too_long(&mut self, template: &str) -> bool {
        let blocks = template.contains("0.001");
        match self.clock {
            Some(_) => blocks || template.starts_with("wait"),
            None => blocks && self.below(20) > 0,
        }
    }

    fn token(&mut self, kind: char, token: &str, words: &mut Vec<Bytes>) {
        let token = match token.strip_prefix('?') {
            Some(_) if self.below(2) == 0 => return,
            Some(token) => token,
            None => token,
        };
        let (token, times) = token.strip_suffix('+').map_or((token, 1), |token| (token, 1 + self.below(3)));
        for _ in 0..times {
            for part in token.split(',') {
                let word = self.word(kind, part);
                words.push(word);
            }
        }
    }

    fn word(&mut self, kind: char, part: &str) -> Bytes {
        let list = match part {
            "K" => return self.key(kind),
            "V" => VALUES,
            "D" => DECIMALS,
            "B" => OFFSETS,
            "M" => MEMBERS,
            "I" => INTEGERS,
            "N" => SMALL,
            "F" => FLOATS,
            "S" => SCORES,
            "L" => NAMES,
            "T" if self.clock.is_some() => SHORT_DURATIONS,
            "T" => DURATIONS,
            "A" => match self.clock.filter(|_| self.below(3) > 0) {
                Some(clock) => return self.time_near(clock),
                None => TIMES,
            },
            "G" => PATTERNS,
            words => {
                let words: Vec<&str> = words.split('|').collect();
                return Bytes::copy_from_slice(self.pick(&words).as_bytes());
            }
        };
        // The first words of a list are the usual ones.
        let usual = (list.len() as u64).min(5);
        let below = if self.below(2) == 0 { usual } else { list.len() as u64 };
        let place = self.below(below) as usize;
        list.get(place).map_or_else(Bytes::new, |word| Bytes::from_static(word.as_bytes()))
    }

    /// Returns a key, mostly of the kind that is asked for.
    fn key(&mut self, kind: char) -> Bytes {
        let others = ['s', 'h', 'e', 'z', 'l'];
        let is_apart = matches!(kind, 'f' | 'y');
        let is_other = kind == '*' || (!is_apart && self.below(12) == 0);
        let kind = if is_other { *self.pick(&others) } else { kind };
        format!("{kind}{}", 1 + self.below(3)).into()
    }

    /// Returns a time not far from that of the clock, in seconds or milliseconds since 1970.
    fn time_near(&mut self, clock: u64) -> Bytes {
        let time = if self.below(2) == 0 { clock } else { clock / 1_000 };
        (time + self.below(10) - 3).to_string().into()
    }

    fn value(&mut self) -> Bytes {
        Bytes::from_static(self.pick(VALUES).as_bytes())
    }

    /// Returns a number below a bound, or 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ (mixed >> 31)) * u128::from(bound)) >> 64) as u64
    }

    #[allow(clippy::indexing_slicing, reason = "the place is below the length, and no list is empty")]
    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }
}

/// Returns whether a template sets or returns when something expires.
fn tells_time(template: &str) -> bool {
    [" T", " A ", "ttl"].iter().any(|word| template.contains(word))
}
